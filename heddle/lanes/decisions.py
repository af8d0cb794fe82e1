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

from heddle.lanes import packs, published, search
from heddle.lanes.choose import choice, ilp
from heddle.lanes.choose.schedule import Cycle, arrange
from heddle.lanes.cost import Table
from heddle.lanes.dependence import Region
from heddle.lanes.packs import nearest
from heddle.lanes.policy import scores
from heddle.lanes.policy.decide import decide, weights

ORDER = ("policy", "pairs", "ilp")


@dataclass
class RegionDecision:
    """A region's graph, what it costs as it is, and what each method chose, with the CPU seconds that took."""

    graph: packs.Graph
    scalar: int
    pairing: published.Pairing | None
    solutions: dict[str, choice.Solution] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Decisions:
    """Those of a module."""

    def __init__(self, table: Table, methods: Sequence[str], policy: Path | None) -> None:
        self.table, self.methods, self.policy = table, sorted(methods, key=ORDER.index), policy
        self.known: dict[Hashable, RegionDecision] = {}
        if self.methods:
            for code in (nearest.code, scores.code, search.code):
                code()  # compiled here, since it is not the first region's time
        if "policy" in self.methods:
            weights(policy)  # nor is that to read them

    def has(self, region: Region) -> bool:
        return region.shape in self.known

    def of(self, region: Region, seconds: float) -> RegionDecision:
        """Choose by the policy, by the integer program ("ilp"), which starts from that, or by pairs as published."""
        key = region.shape
        before = self.known.get(key)
        with _no_collector():
            if before is not None and (same := self._again(region, before)) is not None:
                return same
            made = self._new(region, seconds)
        self.known.setdefault(key, made)
        return made

    def _again(self, region: Region, before: RegionDecision) -> RegionDecision | None:
        """The same for a region of the same shape, if all that can be made there is the same."""
        began = time.process_time()
        graph = packs.build(region, self.table, before.pairing.packs if before.pairing is not None else ())
        if _problem(graph) != _problem(before.graph):
            return None
        taken = time.process_time() - began
        return RegionDecision(
            graph, before.scalar, before.pairing, before.solutions, dict.fromkeys(self.methods, taken)
        )

    def _new(self, region: Region, seconds: float) -> RegionDecision:
        pairing = None
        began = time.process_time()
        if "pairs" in self.methods:
            pairing = published.pack(region, self.table, seconds / 2)
        graph = packs.build(region, self.table, pairing.packs if pairing is not None else ())
        plain = choice.used(graph, choice.scalar_choice(graph))
        built = time.process_time() - began
        made = RegionDecision(graph, choice.cost_of(graph, plain), pairing)
        if not any(graph.natives) and not any(p.kind == "store" for p in graph.productions):
            made.seconds = dict.fromkeys(self.methods, built)
            return made
        known = plain
        for method in self.methods:
            began = time.process_time()
            if method == "policy":
                found = decide(graph, weights(self.policy))
                known = sorted(found.packing.order)
            elif pairing is not None:
                found = published.solve(graph, pairing, seconds / 2)
            else:  # the policy has been through the greedy choice
                found = ilp.solve(graph, seconds, known if "policy" in self.methods else start(graph, known))
            made.solutions[method] = found
            made.seconds[method] = built + time.process_time() - began
        return made


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
    """Thousands of small objects, none of them in a cycle: to look for cycles would take a fifth of the time.

    All that a region takes is in one such stretch: between two, the collector would go through the whole module's.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
