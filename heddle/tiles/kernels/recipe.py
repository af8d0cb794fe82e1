"""What is computed for every number: a list of instructions, each naming earlier ones by their place.

`("load", j)` reads operand j, `("const", x)` is a number, `("sum", i)` and `("max", i)` reduce instruction i over the
row; all others are functions of maths.py. A product's accumulator is operand 0 of its epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.tiles.kernels.emit import Code, Value
from heddle.tiles.kernels.maths import FUNCTIONS

Instruction = tuple[Any, ...]
Recipe = tuple[Instruction, ...]
REDUCTIONS = ("sum", "max")
IDENTITY: Recipe = (("load", 0),)


def references(instruction: Instruction) -> tuple[int, ...]:
    """The instructions that one reads."""
    return () if instruction[0] in ("load", "const") else instruction[1:]


class Evaluation:
    """Writes the instructions that a value needs, each once."""

    def __init__(self, code: Code, recipe: Recipe, load: Callable[[int], Value], known: dict[int, Value]) -> None:
        self.code, self.recipe, self.load = code, recipe, load
        self.values = dict(known)

    def value(self, place: int) -> Value:
        """The vector that an instruction gives."""
        for needed in self._order(place):
            name, *rest = self.recipe[needed]
            if name == "load":
                self.values[needed] = self.load(rest[0])
            elif name == "const":
                self.values[needed] = self.code.constant(rest[0])
            else:
                self.values[needed] = self._call(name, [self.values[each] for each in rest])
        return self.values[place]

    def _call(self, name: str, values: list[Value]) -> Value:
        return FUNCTIONS[name](self.code, *values)

    def _order(self, place: int) -> list[int]:
        """What is not yet known, in order; recipes are lists, so earlier ones come first."""
        wanted, open_ = set(), [place]
        while open_:
            each = open_.pop()
            if each not in wanted and each not in self.values:
                wanted.add(each)
                open_ += references(self.recipe[each])
        return sorted(wanted)


def evaluate(code: Code, recipe: Recipe, load: Callable[[int], Value]) -> Value:
    """The last instruction's value."""
    return Evaluation(code, recipe, load, {}).value(len(recipe) - 1)


def loads(recipe: Recipe) -> set[int]:
    """The operands that a recipe reads."""
    return {instruction[1] for instruction in recipe if instruction[0] == "load"}
