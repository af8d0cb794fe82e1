"""Element-wise work, norms, softmax and look-ups, fused: for each row, one pass per level of reductions, then one that
writes. What a pass needs of an earlier one besides its sums it computes again, which is cheaper than storing it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from heddle.tiles.kernels.emit import F32, I8, I32, I64, Code, Value, i64
from heddle.tiles.kernels.recipe import REDUCTIONS, Evaluation, Recipe, references
from heddle.tiles.kernels.target import Target

AT_ONCE = 4  # vectors with sums of their own, so that additions do not wait for each other
START = {"sum": 0.0, "max": float("-inf")}


@dataclass(frozen=True)
class Access:
    """How an operand is read: strides in numbers over the outer dims, then over the inner one."""

    outer: tuple[int, ...]
    inner: int
    kind: str = "f32"  # or "bool"
    table: tuple[int, int] | None = None  # a look-up: rows of the table and their stride; `outer` is then the index's


@dataclass(frozen=True)
class Rows:
    """A record: output, operands (a look-up's table, then its index), where errors are noted, first and last row."""

    outer: tuple[int, ...]
    inner: int
    recipe: Recipe
    operands: tuple[Access, ...]
    output: Access

    def write(self, name: str, target: Target) -> str:
        code = Code(name, target)
        output = code.pointer()
        pointers = [(code.pointer(), code.pointer() if each.table else None) for each in self.operands]
        errors, first, last = code.pointer(), code.number(), code.number()

        def row(index: Value, _: list[Value]) -> list[Value]:
            places = self._places(code, index)
            begins = [
                _begin(code, access, *given, places, errors)
                for access, given in zip(self.operands, pointers, strict=True)
            ]
            _Row(self, code, begins, _begin(code, self.output, output, None, places, errors)).write()
            return []

        code.loop(last, row, start=first)
        return code.finish()

    def _places(self, code: Code, index: Value) -> list[Value]:
        """A row's number as one index for each outer dim."""
        places: list[Value] = []
        for size in reversed(self.outer[1:]):
            places.insert(0, code.block.urem(index, i64(size)))
            index = code.block.udiv(index, i64(size))
        return [index, *places] if self.outer else []


def _begin(
    code: Code, access: Access, pointer: Value, index: Value | None, places: list[Value], errors: Value
) -> Value:
    """Where a row of an operand begins."""
    offset: Value = i64(0)
    for place, stride in zip(places, access.outer, strict=True):
        if stride:
            offset = code.add(offset, code.mul(place, stride))
    if access.table is None:
        return code.at(pointer, offset, 1 if access.kind == "bool" else 4)
    count, stride = access.table
    assert index is not None
    chosen = code.load(I64, code.at(index, offset, 8), 8)
    outside = code.block.icmp_unsigned(">=", chosen, i64(count))
    code.when(outside, lambda: code.store(ir.Constant(I32, 1), errors))
    return code.at(pointer, code.mul(code.block.select(outside, i64(0), chosen), stride))


class _Row:
    """One row: its passes."""

    def __init__(self, kernel: Rows, code: Code, begins: list[Value], output: Value) -> None:
        self.kernel, self.code, self.begins, self.output = kernel, code, begins, output
        self.known: dict[int, Value] = {}  # what is the same all along the row
        self.level = self._levels()

    def _levels(self) -> list[int]:
        """How many reductions each instruction waits for."""
        levels: list[int] = []
        for instruction in self.kernel.recipe:
            before = max((levels[each] for each in references(instruction)), default=0)
            levels.append(before + (instruction[0] in REDUCTIONS))
        return levels

    def write(self) -> None:
        code, recipe = self.code, self.kernel.recipe
        end = len(recipe) - 1
        for level in range(max(self.level) + 1):
            self._hoist()
            wanted = [
                place
                for place, instruction in enumerate(recipe)
                if instruction[0] in REDUCTIONS and self.level[place] == level + 1 and place not in self.known
            ]
            if wanted:
                self._reduce(wanted)
        self._hoist()
        if self.kernel.output.inner == 0:  # one number for the whole row
            return code.store(code.block.extract_element(self.known[end], ir.Constant(I32, 0)), self.output)

        def write(offset: Value, sums: list[Value], mask: Value | None) -> list[Value]:
            value = Evaluation(code, recipe, self._load(offset, mask), self.known).value(end)
            place = code.mul(offset, self.kernel.output.inner)
            code.store_vector(value, code.at(self.output, place), mask)
            return sums

        self._along(write, [])
        return None

    def _hoist(self) -> None:
        """Compute once per row what does not change along it."""
        recipe = self.kernel.recipe
        for place, instruction in enumerate(recipe):
            if place in self.known or instruction[0] in REDUCTIONS:
                continue
            if instruction[0] == "load":
                uniform = self.kernel.operands[instruction[1]].inner == 0
            else:
                uniform = all(each in self.known for each in references(instruction))
            if uniform:
                self.known[place] = Evaluation(self.code, recipe, self._load(i64(0), None), self.known).value(place)

    def _load(self, offset: Value, mask: Value | None) -> Callable[[int], Value]:
        code = self.code

        def load(number: int) -> Value:
            access, begin = self.kernel.operands[number], self.begins[number]
            if access.kind == "bool":
                return _load_bool(code, access, begin, offset, mask, self.kernel.inner % code.lanes)
            if access.inner == 0:
                return code.splat(code.load(F32, begin))
            pointer = code.at(begin, code.mul(offset, access.inner))
            return code.load_vector(pointer, mask) if access.inner == 1 else code.gather(pointer, access.inner, mask)

        return load

    def _reduce(self, wanted: list[int]) -> None:
        code, recipe = self.code, self.kernel.recipe
        kinds = [recipe[place][0] for place in wanted]

        def step(offset: Value, sums: list[Value], mask: Value | None) -> list[Value]:
            evaluation = Evaluation(code, recipe, self._load(offset, mask), self.known)
            found = []
            for place, kind, before in zip(wanted, kinds, sums, strict=True):
                value = evaluation.value(recipe[place][1])
                if mask is not None:
                    value = code.block.select(mask, value, code.constant(START[kind]))
                found.append(_combine(code, kind, before, value))
            return found

        sums = self._along(step, kinds)
        for place, kind, value in zip(wanted, kinds, sums, strict=True):
            self.known[place] = code.reduce(kind, value)

    def _along(self, step: Callable[[Value, list[Value], Value | None], list[Value]], kinds: list[str]) -> list[Value]:
        """Along the row: whole groups of vectors, the vectors that are left, and the odd end."""
        code, size, lanes, count = self.code, self.kernel.inner, self.code.lanes, len(kinds)
        starts = [code.constant(START[kind]) for kind in kinds]
        group = AT_ONCE * lanes
        whole = size // group * group

        def several(offset: Value, sums: list[Value]) -> list[Value]:
            found: list[Value] = []
            for number in range(AT_ONCE):
                mine = sums[number * count : (number + 1) * count]
                found += step(code.add(offset, number * lanes), mine, None)
            return found

        sums = code.loop(whole, several, starts * AT_ONCE, step=group) if whole else starts * AT_ONCE
        joined = sums[:count]
        for number in range(1, AT_ONCE if whole else 1):
            mine = sums[number * count : (number + 1) * count]
            joined = [
                _combine(code, kind, *pair) for kind, pair in zip(kinds, zip(joined, mine, strict=True), strict=True)
            ]
        for offset in range(whole, size - lanes + 1, lanes):
            joined = step(i64(offset), joined, None)
        if size % lanes:
            joined = step(i64(size // lanes * lanes), joined, code.first(size % lanes))
        return joined


def _combine(code: Code, kind: str, left: Value, right: Value) -> Value:
    return code.block.fadd(left, right) if kind == "sum" else code.call("llvm.maximum", left, right)


def _load_bool(code: Code, access: Access, begin: Value, offset: Value, mask: Value | None, odd: int) -> Value:
    """Bytes that are 0 or 1, as numbers; a mask covers the `odd` ones at the end of a row."""
    if access.inner == 0:
        return code.splat(code.block.uitofp(code.load(I8, begin, 1), F32))
    value = code.zero()
    last = code.lanes if mask is None else odd
    for lane in range(last):
        pointer = code.at(begin, code.mul(code.add(offset, lane), access.inner), 1)
        number = code.block.uitofp(code.load(I8, pointer, 1), F32)
        value = code.block.insert_element(value, number, ir.Constant(I32, lane))
    return value
