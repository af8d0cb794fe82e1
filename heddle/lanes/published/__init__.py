"""The program as published (goSLP): pairs chosen together, pairs of pairs until a register is full, then lane orders.

Only for comparison with `choose.ilp`, which chooses among ordered packs of all widths at once; nothing else asks for
it. What comes out is a list of packs; they become productions like any others, so that emission and check are the same.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from heddle.lanes.choose import choice
from heddle.lanes.choose.ilp import solve as cheapest
from heddle.lanes.cost import Table
from heddle.lanes.dependence import Region
from heddle.lanes.packs import Graph
from heddle.lanes.published.ilp import Terms, choose
from heddle.lanes.published.orders import LaneOrders
from heddle.lanes.published.units import Level, Unit

SHARE = 0.75  # of the seconds that are left goes to each width
GLUE = ("scalar", "constant", "broadcast", "build", "concat", "shuffle", "shuffle2", "patch", "extract",
        "carry", "leave", "extract behind")  # fmt: skip


@dataclass(frozen=True)
class Pairing:
    """What was packed at each width, statements by lane."""

    packs: tuple[tuple[int, ...], ...]
    pairs: int  # that were thought of at width 2
    gap: float  # by how much the choices may miss the best, together
    spent: float  # seconds, by the solver's own count


def pack(region: Region, table: Table, seconds: float) -> Pairing:
    """Choose pairs, then pairs of these, until nothing is gained; then put the lanes of each pack in order.

    The narrower packs are among the answer, so that a wider one that does not pay can be undone.
    """
    level, left, gap, thought_of = Level.first(region, table), seconds, 0.0, 0
    done: list[Unit] = []
    packs: dict[tuple[int, ...], None] = {}
    while level.units:
        terms = Terms(level)
        found = choose(terms, SHARE * left)
        left, gap = left - found.spent, gap + found.value - found.bound
        thought_of = thought_of or len(terms.pairs)
        chosen = [terms.pairs[n] for n in found.pairs]
        inside = {n for pair in chosen for n in (pair.one, pair.two)}
        done += [u for n, u in enumerate(level.units) if level.width > 1 and n not in inside]
        level = Level(level.builder, [pair.unit for pair in chosen])
        if chosen:
            now = sorted([*done, *level.units], key=lambda u: max(u.members))
            packs |= dict.fromkeys(LaneOrders(region, table, now).best())
    return Pairing(tuple(packs), thought_of, gap, seconds - left)


def solve(graph: Graph, pairing: Pairing, seconds: float) -> choice.Solution:
    """The cheapest productions without any vector instructions, loads and stores but these packs."""
    began = time.perf_counter()
    packs = set(pairing.packs)
    only = {n for n in range(len(graph.productions)) if allowed(graph, n, packs)}
    plain = choice.used(graph, choice.scalar_choice(graph))
    found = cheapest(graph, seconds, plain, only=only)
    facts = found.facts | {"pairs": pairing.pairs}
    bound = min(found.bound, found.cost - pairing.gap)
    return choice.Solution(found.packing, found.cost, bound, time.perf_counter() - began, "pairs", facts)


def allowed(graph: Graph, n: int, packs: set[tuple[int, ...]]) -> bool:
    """Whether a production is one of the packs, in its order, or glue."""
    p = graph.productions[n]
    if p.kind in GLUE:
        return True
    if p.kind not in ("pack", "load", "store") or p.members not in packs:
        return False
    return p.gives < 0 or graph.items[p.gives].lanes == tuple(graph.region.statements[m].name for m in p.members)
