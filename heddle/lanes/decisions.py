"""What each method chooses for a region. A region like one before, as unrolling and inlining leave them, gets the same.

That is more than speed: the time that a block of twenty such regions has goes into one of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from heddle.lanes import packs, pairs
from heddle.lanes.choose import choice, ilp
from heddle.lanes.choose.schedule import Cycle, arrange
from heddle.lanes.cost import Table
from heddle.lanes.dependence import Region
from heddle.lanes.policy.decide import decide, weights

SEEDING = 0.2  # of the integer program's time goes to pairs: it takes their packs, and may start from their answer, …
MOST_SEEDED = 150  # … in regions of so many statements; in longer ones pairs take too long
ORDER = ("policy", "pairs", "ilp")


@dataclass
class RegionDecision:
    """A region's graph, what it costs as it is, and what each method chose, with the CPU seconds that took."""

    graph: packs.Graph
    scalar: int
    pairing: pairs.Pairing | None
    solutions: dict[str, choice.Solution] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Decisions:
    """Those of a module."""

    def __init__(self, table: Table, methods: Sequence[str], policy: Path | None) -> None:
        self.table, self.methods, self.policy = table, sorted(methods, key=ORDER.index), policy
        self.known: dict[Hashable, RegionDecision] = {}

    def has(self, region: Region) -> bool:
        return region.shape in self.known

    def of(self, region: Region, seconds: float) -> RegionDecision:
        """Choose by the policy, by pairs as published, and by the integer program ("ilp").

        The integer program has the packs of pairs among its vectors, and starts from the best known.
        """
        key = region.shape
        before = self.known.get(key)
        if before is not None and (same := self._again(region, before)) is not None:
            return same
        made = self._new(region, seconds)
        self.known.setdefault(key, made)
        return made

    def _again(self, region: Region, before: RegionDecision) -> RegionDecision | None:
        """The same for a region of the same shape, if all that can be made there is the same."""
        began = time.process_time()
        with _no_collector():
            graph = packs.build(region, self.table, before.pairing.packs if before.pairing is not None else ())
        if _problem(graph) != _problem(before.graph):
            return None
        taken = time.process_time() - began
        return RegionDecision(
            graph, before.scalar, before.pairing, before.solutions, dict.fromkeys(self.methods, taken)
        )

    def _new(self, region: Region, seconds: float) -> RegionDecision:
        began = time.process_time()
        pairing, given = None, seconds * (1.0 if "pairs" in self.methods else SEEDING)
        with _no_collector():
            if "pairs" in self.methods or ("ilp" in self.methods and len(region.statements) <= MOST_SEEDED):
                pairing = pairs.pack(region, self.table, given / 2)
            paired, began = time.process_time() - began, time.process_time()  # which the policy does without
            graph = packs.build(region, self.table, pairing.packs if pairing is not None else ())
        plain = choice.used(graph, choice.scalar_choice(graph))
        built = time.process_time() - began
        made = RegionDecision(graph, choice.cost_of(graph, plain), pairing)
        if not any(p.native or p.kind == "store" for p in graph.productions):
            made.seconds = dict.fromkeys(self.methods, built)
            return made
        known = plain
        for method in self.methods:
            began = time.process_time()
            with _no_collector():
                if method == "policy":
                    found = decide(graph, weights(self.policy))
                    known = sorted(found.packing.order)
                elif method == "pairs" and pairing is not None:
                    found = pairs.solve(graph, pairing, given / 2)
                else:
                    found = self._exact(graph, pairing, known, seconds, given)
            made.solutions[method] = found
            made.seconds[method] = built + time.process_time() - began + (0.0 if method == "policy" else paired)
        return made

    def _exact(
        self, graph: packs.Graph, pairing: pairs.Pairing | None, known: list[int], seconds: float, given: float
    ) -> choice.Solution:
        if pairing is not None:
            seconds -= given
            paired = sorted(pairs.solve(graph, pairing, given / 2).packing.order)
            known = min(known, paired, key=lambda chosen: choice.cost_of(graph, chosen))
        # The policy has been through the greedy choice.
        return ilp.solve(graph, seconds, known if "policy" in self.methods else start(graph, known))


def _problem(graph: packs.Graph) -> object:
    """All that a choice depends on."""
    every = [p[:-1] for p in graph.productions]  # but for names of scalars
    return every, graph.stores, graph.required, [len(item.lanes) for item in graph.items]


def start(graph: packs.Graph, known: Sequence[int]) -> list[int]:
    """What the integer program starts from: the greedy choice where it is better than `known` and can be ordered."""
    first = choice.greedy(graph)
    if choice.cost_of(graph, first) >= choice.cost_of(graph, list(known)):
        return list(known)
    try:
        arrange(graph, first)
    except Cycle:
        return list(known)
    return first


@contextmanager
def _no_collector() -> Iterator[None]:
    """Thousands of small objects, none of them in a cycle: to look for cycles would take a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
