"""Which two units could become one of twice the width: alike, independent, and neighbors if they touch memory."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.lanes.ir import MEMORY_BYTES
from heddle.lanes.packs.alike import commutes
from heddle.lanes.published.units import Lanes, Level, Operand, Unit

PARTNERS = 10  # of a unit, at most
MOST_PAIRS = 1000  # of a region; in larger ones a unit gets fewer partners

# How much a pair is wanted, least first: whether stores ask for it, how alike its operands are, how near it lies.
Rank = tuple[bool, int, int, int, int]


@dataclass(frozen=True)
class Pair:
    """Two units side by side. Operations that commute are a pair for each way to lay their operands side by side."""

    one: int
    two: int
    unit: Unit
    saves: int


def candidates(level: Level) -> list[Pair]:
    """The pairs that are thought of: a few partners for each unit, since with all of them nothing can be proved."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for n, u in enumerate(level.units):
        alike.setdefault(level.statement(u).signature, []).append(n)
    wanted = _from_stores(level, alike)
    ranks = [rank for group in alike.values() for rank in _partners(level, group, wanted)]
    partners = PARTNERS
    while partners > 1 and sum(min(len(rank), partners) for rank in ranks) > 2 * MOST_PAIRS:
        partners -= 1
    chosen = {(a, b) for rank in ranks for *_, a, b in sorted(rank)[:partners]}
    return [pair for a, b in sorted(chosen) for pair in _ways(level, a, b)]


def _sides(level: Level, a: int, b: int) -> list[list[tuple[Lanes, Lanes]]]:
    """The operands of two units side by side; in both ways if they commute."""
    one, two = level.units[a].columns, level.units[b].columns
    straight = list(zip(one, two, strict=True))
    if not commutes(level.statement(level.units[a])):
        return [straight]
    return [straight, list(zip(one, two[::-1], strict=True))]


def _in_order(level: Level, a: int, b: int) -> tuple[int, int] | None:
    """By address where they touch memory; None if they are no neighbors or wait for each other."""
    if level.above[a] & level.bits[b] or level.above[b] & level.bits[a]:
        return None
    s = level.statement(level.units[a])
    if not s.memory:
        return a, b
    here, there = (level.region.addresses[level.units[n].members[0]] for n in (a, b))
    size, apart = level.width * MEMORY_BYTES[s.type], there.offset - here.offset
    if here.line != there.line or abs(apart) != size:
        return None
    return (a, b) if apart > 0 else (b, a)


def _from_stores(level: Level, alike: dict[tuple[str, ...], list[int]]) -> set[frozenset[int]]:
    """Units that neighboring stores would have side by side: what matters most, however unlike their operands."""
    stores = [group for key, group in alike.items() if key[0] == "store"]
    stack = [(a, b) for group in stores for a in group for b in group if a < b and _in_order(level, a, b)]
    found: set[frozenset[int]] = set()
    while stack:
        a, b = stack.pop()
        if frozenset((a, b)) in found or len({level.statement(level.units[n]).signature for n in (a, b)}) > 1:
            continue
        found.add(frozenset((a, b)))
        for x, y in (side for way in _sides(level, a, b) for side in way):
            inner = [level.made[lanes] for lanes in (tuple(sorted(x)), tuple(sorted(y))) if lanes in level.made]
            if len(set(inner)) == 2:
                stack.append((inner[0], inner[1]))
    return found


def _partners(level: Level, group: list[int], wanted: set[frozenset[int]]) -> list[list[Rank]]:
    """For each unit of a group, with whom it could go."""
    ranks: dict[int, list[Rank]] = {n: [] for n in group}
    for k, a in enumerate(group):
        for b in group[k + 1 :]:
            if (pair := _in_order(level, a, b)) is None:
                continue
            like = max(sum(_likeness(level, *side) for side in way) for way in _sides(level, *pair))
            asked = frozenset(pair) in wanted
            if like or asked or not level.units[a].columns:  # else no operand goes with its counterpart
                rank = (not asked, -like, b - a, *pair)
                ranks[a].append(rank)
                ranks[b].append(rank)
    return list(ranks.values())


def _likeness(level: Level, a: Lanes, b: Lanes) -> int:
    """Of operands, in whichever order they will lie."""
    w = level.builder
    return sum(max(w.splat[x, y], w.splat[y, x]) for x, y in zip(a, b, strict=True))


def _ways(level: Level, a: int, b: int) -> list[Pair]:
    apart = [level.cost(level.units[n]) for n in (a, b)]
    found: dict[tuple[Operand, ...], Pair] = {}
    for way in _sides(level, a, b):
        unit = Unit(level.units[a].members + level.units[b].members, tuple(x + y for x, y in way))
        cost = level.cost(unit)
        if cost is not None and apart[0] is not None and apart[1] is not None:
            found.setdefault(tuple(sorted(level.operands(unit))), Pair(a, b, unit, apart[0] + apart[1] - cost))
    return list(found.values())
