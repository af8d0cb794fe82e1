"""The loop of a worker, as LLVM IR: run a tile, count its children down, keep the first that became ready.

The child that was just made ready is run next, while what its parent wrote is in the cache; others go onto the worker's
own stack, where those who have nothing to do steal from the far end. Nobody takes a lock but to fall asleep and to wake
another. An item is a call's number and a tile's; tile 0 of a call has no kernel, and its children need no others.
"""

from __future__ import annotations

import platform

from llvmlite import ir

from heddle.tiles.engine import layout as at
from heddle.tiles.engine.machine_code import I32, I64, POINTER, VOID, Value, WordFunction
from heddle.tiles.engine.sleep import over, rest, write_call, write_finish, write_signal
from heddle.tiles.engine.stack import NOTHING, pop, push, steal

TILE_BITS = 32
CLOCK_MONOTONIC = 1 if platform.system() == "Linux" else 6


def write(triple: str) -> str:
    """The engine: `heddle_thread`, which native threads begin with, and `heddle_call(pool, call)`.

    A worker with a call runs tiles until that call is finished, whoever's they are; without one, until the pool stops.
    """
    module = ir.Module("heddle_engine")
    module.triple = triple
    pushed, popped, stolen = push(module), pop(module), steal(module)
    signal = write_signal(module)
    finish = write_finish(module)
    execute = _execute(module, pushed, signal, finish)
    find = _find(module, popped, stolen)
    has_work = _has_work(module)
    worker = _worker(module, triple, find, execute, has_work)
    _thread(module, worker)
    write_call(module, worker, signal)
    return str(module)


def _stack(code: WordFunction, pool: Value, worker: Value, level: Value | int) -> Value:
    number = code.add(code.mul(worker, at.LEVELS), level)
    return code.add(code.get(pool, at.STACKS), code.mul(number, 8 * at.STACK_WORDS))


def _clock(code: WordFunction) -> Value:
    with code.build.goto_entry_block():
        time = code.build.alloca(ir.ArrayType(I64, 2))
    address = code.build.ptrtoint(time, I64)
    function = code.module.globals.get("clock_gettime") or ir.Function(
        code.module, ir.FunctionType(I32, [I32, POINTER]), "clock_gettime"
    )
    code.build.call(function, [ir.Constant(I32, CLOCK_MONOTONIC), time])
    return code.add(code.mul(code.get(address, 0), 1_000_000_000), code.get(address, 1))


def _kernel(code: WordFunction, call: Value, worker: Value, tile: Value, record: Value, kernel: Value) -> None:
    """Run the tile's kernel, and note when, where that is wanted."""
    times = code.get(call, at.TIMES)
    timed = code.test(times, "!=", 0)
    entry = code.add(times, code.mul(tile, 8 * at.TIME_WORDS))
    with code.when(timed):
        code.put(worker, entry, 0)
        code.put(_clock(code), entry, 1)
    scratch = code.add(code.get(call, at.SCRATCH), code.build.mul(worker, code.get(call, at.SCRATCH_BYTES)))
    function = code.build.inttoptr(kernel, ir.FunctionType(VOID, [POINTER] * 3).as_pointer())
    arguments = [code.build.inttoptr(each, POINTER) for each in (record, code.get(call, at.BASES), scratch)]
    code.build.call(function, arguments)
    with code.when(timed):
        code.put(_clock(code), entry, 2)


def _execute(module: ir.Module, push: WordFunction, signal: WordFunction, finish: WordFunction) -> WordFunction:
    """Run one tile; returns the item to run next, or nothing."""
    code = WordFunction(module, "execute", 3)
    pool, worker, item = code.arguments
    number = code.build.lshr(item, ir.Constant(I64, TILE_BITS))
    tile = code.build.and_(item, ir.Constant(I64, (1 << TILE_BITS) - 1))
    call = code.get(code.get(pool, at.TABLE), number)
    record = code.add(code.get(call, at.RECORDS), code.build.mul(tile, code.get(call, at.RECORD_BYTES)))
    kernel = code.get(record, at.KERNEL)
    with code.when(code.test(kernel, "!=", 0)):
        _kernel(code, call, worker, tile, record, kernel)
    count = code.get(record, at.CHILD_COUNT)
    with code.when(code.test(count, "==", 0)):
        with code.when(code.test(code.add_atomic(call, at.LEFT, -1), "==", 1)):
            code.call(finish, pool, call)
        code.give(NOTHING)
    kept, pushed = code.variable(NOTHING), code.variable(0)
    first, children = code.get(record, at.FIRST_CHILD), code.get(call, at.CHILDREN)
    counters = code.get(call, at.COUNTERS)
    stack = _stack(code, pool, worker, code.get(call, at.LEVEL))
    upper = code.build.shl(number, ir.Constant(I64, TILE_BITS))

    def child(index: Value) -> None:
        place = code.build.inttoptr(code.add(children, code.mul(code.build.add(first, index), 4)), POINTER)
        entry = code.build.load(place, typ=I32)
        entry.align = 4
        one = code.build.zext(entry, I64)
        counter = code.build.inttoptr(code.add(counters, code.mul(one, 4)), I32.as_pointer())
        before = code.build.atomic_rmw("sub", counter, ir.Constant(I32, 1), "acq_rel")
        with code.when(code.build.icmp_signed("==", before, ir.Constant(I32, 1))):
            ready = code.build.or_(upper, one)
            known = code.read(kept)
            with code.when(code.test(known, "!=", NOTHING)):
                code.call(push, stack, ready)
                code.write(pushed, 1)
            with code.when(code.test(known, "==", NOTHING)):
                code.write(kept, ready)

    code.each(count, child)
    with code.when(code.test(code.read(pushed), "!=", 0)):
        code.call(signal, pool)
    with code.when(code.test(code.read(kept), "!=", NOTHING)):
        _give_way(code, pool, call, stack, code.read(kept), push)
    code.give(code.read(kept))
    return code


def _give_way(code: WordFunction, pool: Value, call: Value, stack: Value, kept: Value, push: WordFunction) -> None:
    """Put the child back where a call of a higher level is under way, and look for that one's tiles first."""

    def higher(level: Value) -> None:
        active = code.get_atomic(pool, code.add(level, at.AT_LEVEL), "monotonic")
        with code.when(code.test(active, ">", 0)):
            code.call(push, stack, kept)
            code.give(NOTHING)

    code.each(code.get(call, at.LEVEL), higher)


def _find(module: ir.Module, pop: WordFunction, steal: WordFunction) -> WordFunction:
    """Something to do: of the highest level; one's own first, then a new call, then another worker's."""
    code = WordFunction(module, "find", 2)
    pool, worker = code.arguments
    workers = code.get(pool, at.WORKERS)

    def level(number: Value) -> None:
        active = code.get_atomic(pool, code.add(number, at.AT_LEVEL), "monotonic")
        with code.when(code.test(active, ">", 0)):
            mine = code.call(pop, _stack(code, pool, worker, number))
            with code.when(code.test(mine, "!=", NOTHING)):
                code.give(mine)
            with code.when(code.test(code.get_atomic(pool, at.PENDING, "monotonic"), ">", 0)):
                _new_call(code, pool, number)

            def victim(distance: Value) -> None:
                other = code.build.urem(code.build.add(worker, distance), workers)
                found = code.call(steal, _stack(code, pool, other, number))
                with code.when(code.test(found, "!=", NOTHING)):
                    code.give(found)

            code.each(workers, victim, start=1)

    code.each(at.LEVELS, level)
    code.give(NOTHING)
    return code


def _new_call(code: WordFunction, pool: Value, level: Value) -> None:
    """Take a call that nobody began."""
    table = code.get(pool, at.TABLE)

    def look(number: Value) -> None:
        call = code.get_atomic(table, number)
        with code.when(code.test(call, "!=", 0)):
            waiting = code.test(code.get_atomic(call, at.WAITING), "==", 1)
            mine = code.test(code.get(call, at.LEVEL), "==", level)
            with code.when(code.build.and_(waiting, mine)), code.when(code.swap(call, at.WAITING, 1, 0)):
                code.add_atomic(pool, at.PENDING, -1)
                code.give(code.build.shl(number, ir.Constant(I64, TILE_BITS)))

    code.each(at.RUNS, look)


def _has_work(module: ir.Module) -> WordFunction:
    """Whether any stack or call waits for somebody."""
    code = WordFunction(module, "has_work", 1)
    (pool,) = code.arguments
    with code.when(code.test(code.get_atomic(pool, at.PENDING, "seq_cst"), ">", 0)):
        code.give(1)
    begin = code.get(pool, at.STACKS)

    def look(number: Value) -> None:
        stack = code.add(begin, code.mul(number, 8 * at.STACK_WORDS))
        top, bottom = code.get_atomic(stack, at.TOP, "seq_cst"), code.get_atomic(stack, at.BOTTOM, "seq_cst")
        with code.when(code.build.icmp_signed("<", top, bottom)):
            code.give(1)

    code.each(code.mul(code.get(pool, at.WORKERS), at.LEVELS), look)
    code.give(0)
    return code


def _worker(
    module: ir.Module, triple: str, find: WordFunction, execute: WordFunction, has_work: WordFunction
) -> WordFunction:
    code = WordFunction(module, "worker", 3)
    pool, worker, call = code.arguments
    item, idle = code.variable(NOTHING), code.variable(0)

    def turn() -> None:
        with code.when(code.test(over(code, pool, call), "!=", 0)):
            code.give(0)
        found = code.call(find, pool, worker)
        with code.when(code.test(found, "==", NOTHING)):
            rest(code, triple, pool, call, idle, has_work)
        with code.when(code.test(found, "!=", NOTHING)):
            code.write(idle, 0)
            code.write(item, found)
            _chain(code, pool, worker, item, execute)

    code.forever(turn)
    return code


def _thread(module: ir.Module, worker: WordFunction) -> None:
    """What a native thread begins with: its argument points to the worker's."""
    code = WordFunction(module, "heddle_thread", 1, internal=False)
    (arguments,) = code.arguments
    code.call(worker, *(code.get(arguments, number) for number in range(3)))
    code.give(0)


def _chain(code: WordFunction, pool: Value, worker: Value, item: Value, execute: WordFunction) -> None:
    """A tile, then the child that it made ready, and so on."""
    inside, after = code.function.append_basic_block(), code.function.append_basic_block()
    code.build.branch(inside)
    code.build.position_at_end(inside)
    following = code.call(execute, pool, worker, code.read(item))
    code.write(item, following)
    code.build.cbranch(code.test(following, "!=", NOTHING), inside, after)
    code.build.position_at_end(after)
