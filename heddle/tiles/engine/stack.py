"""A worker's stack of ready tiles, from whose other end thieves take (Chase and Lev, SPAA 2005; Lê et al., PPoPP 2013).

Its owner pushes and pops without a lock and, but for the last item, without an atomic exchange.
"""

from __future__ import annotations

from llvmlite import ir

from heddle.tiles.engine.layout import BOTTOM, CAPACITY, RING, TOP
from heddle.tiles.engine.machine_code import Value, WordFunction

NOTHING = -1


def _place(code: WordFunction, index: Value) -> Value:
    return code.add(code.build.and_(index, ir.Constant(index.type, CAPACITY - 1)), RING)


def push(module: ir.Module) -> WordFunction:
    code = WordFunction(module, "push", 2)
    stack, item = code.arguments
    bottom = code.get_atomic(stack, BOTTOM, "monotonic")
    code.put_atomic(item, stack, _place(code, bottom), "monotonic")
    code.put_atomic(code.add(bottom, 1), stack, BOTTOM)
    code.give(0)
    return code


def pop(module: ir.Module) -> WordFunction:
    code = WordFunction(module, "pop", 1)
    (stack,) = code.arguments
    old = code.get_atomic(stack, BOTTOM, "monotonic")
    with code.when(code.test(code.get_atomic(stack, TOP, "monotonic"), ">=", old)):
        code.give(NOTHING)  # thieves only make it emptier
    bottom = code.add(old, -1)
    code.put_atomic(bottom, stack, BOTTOM, "monotonic")
    code.fence()
    top = code.get_atomic(stack, TOP, "monotonic")
    with code.when(code.test(top, ">", bottom)):
        code.put_atomic(old, stack, BOTTOM, "monotonic")
        code.give(NOTHING)
    item = code.get_atomic(stack, _place(code, bottom), "monotonic")
    with code.when(code.test(top, "==", bottom)):  # the last one: a thief may be at it as well
        won = code.swap(stack, TOP, top, code.add(top, 1))
        code.put_atomic(old, stack, BOTTOM, "monotonic")
        code.give(code.build.select(won, item, ir.Constant(item.type, NOTHING)))
    code.give(item)
    return code


def steal(module: ir.Module) -> WordFunction:
    code = WordFunction(module, "steal", 1)
    (stack,) = code.arguments
    top = code.get_atomic(stack, TOP)
    code.fence()
    bottom = code.get_atomic(stack, BOTTOM)
    with code.when(code.test(top, ">=", bottom)):
        code.give(NOTHING)
    item = code.get_atomic(stack, _place(code, top), "monotonic")
    won = code.swap(stack, TOP, top, code.add(top, 1))
    code.give(code.build.select(won, item, ir.Constant(item.type, NOTHING)))
    return code
