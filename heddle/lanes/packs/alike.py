"""How well values go into neighboring lanes, and the order of operands that looks best by that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from heddle.lanes.cost import is_constant
from heddle.lanes.dependence import Region
from heddle.lanes.ir import COMMUTATIVE, COMMUTATIVE_INTRINSICS, MEMORY_BYTES, Statement

DEPTH = 2  # steps back through what values are made of

Columns = list[list[str]]  # operands by position, each lane by lane


class Likeness(dict[tuple[str, str], int]):
    """How well two values go into neighboring lanes, once asked. `splat`: whether the same value is as good as any."""

    def __init__(self, region: Region, splat: bool, depth: int = DEPTH) -> None:
        super().__init__()
        self.region, self.same = region, 9 if splat else 2
        self.deeper = Likeness(region, splat, depth - 1) if depth else None
        self.turned: dict[tuple[str, str, tuple[str, ...]], tuple[str, ...]] = {}  # operands beside others, once asked

    def __missing__(self, pair: tuple[str, str]) -> int:
        found = self[pair] = self._of(*pair)
        return found

    def _of(self, a: str, b: str) -> int:
        region = self.region
        i, j = region.position.get(a), region.position.get(b)
        if i is None or j is None:
            if is_constant(a) or is_constant(b):
                return 3 if is_constant(a) and is_constant(b) else 0
            return self.same if a == b else int(i is None and j is None)
        if i == j:
            return self.same
        x, y = region.statements[i], region.statements[j]
        if x.op != y.op or x.type != y.type:
            return 0
        if x.op == "load":
            p, q = region.addresses[i], region.addresses[j]
            if p.line != q.line:
                return 1
            distance = (q.offset - p.offset) // MEMORY_BYTES.get(x.type, 1)
            return 8 if distance == 1 else 5 if distance == -1 else 4 if abs(distance) < 8 else 2
        if not x.lanes:
            return 0
        if self.deeper is None or len(x.lanes) != len(y.lanes):
            return 2
        straight = sum(map(self.deeper.__getitem__, zip(x.lanes, y.lanes, strict=True)))
        if commutes(x):
            crossed = sum(map(self.deeper.__getitem__, zip(x.lanes, y.lanes[::-1], strict=True)))
            straight = max(straight, crossed)
        return 2 + straight // 2

    def together(self, columns: Columns) -> int:
        """How well the lanes of each operand go side by side."""
        return sum([sum(map(self.__getitem__, pairwise(column))) for column in columns])

    def beside(self, left: str, right: str, lanes: tuple[str, ...]) -> tuple[str, ...]:
        """The operands of an operation that commutes, turned so that they go well with those of the lane before."""
        key = left, right, lanes
        found = self.turned.get(key)
        if found is None:
            a, b = lanes
            crossed = self[left, b] + self[right, a] > self[left, a] + self[right, b]
            found = self.turned[key] = (b, a) if crossed else lanes
        return found


def arrangement(statements: Sequence[Statement], alike: Likeness, splat: Likeness) -> Columns:
    """Operands by position; for operations that commute, the way to lay their operands side by side that looks best.

    More than one way would double the vectors of every level above: the room for vectors then ends before the loads.
    """
    plain = [list(column) for column in zip(*[s.lanes for s in statements], strict=True)]
    commuting = [commutes(s) for s in statements]
    if not any(commuting):
        return plain
    ways = [plain]
    a, b = statements[0].lanes
    for likeness in (alike, splat):
        for left, right in ((a, b),) if all(commuting) or not commuting[0] else ((a, b), (b, a)):
            columns = [[left], [right]]
            for s, turns in zip(statements[1:], commuting[1:], strict=True):
                left, right = likeness.beside(left, right, s.lanes) if turns else s.lanes
                columns[0].append(left)
                columns[1].append(right)
            if columns not in ways:
                ways.append(columns)
    return plain if len(ways) == 1 else max(ways, key=splat.together)


def commutes(s: Statement) -> bool:
    return s.op in COMMUTATIVE or s.op in COMMUTATIVE_INTRINSICS
