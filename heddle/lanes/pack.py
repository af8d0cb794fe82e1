"""One region by one method: choose, emit, check."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heddle.lanes import choice, ir, packs, programme
from heddle.lanes.check import check
from heddle.lanes.cost import Table
from heddle.lanes.dependence import Region
from heddle.lanes.emit import emit
from heddle.lanes.policy.decide import decide, weights
from heddle.lanes.reports import Packed
from heddle.lanes.schedule import Cycle, arrange


@dataclass(frozen=True)
class Effort:
    """How long the programme may take, and how often both versions run."""

    seconds: float
    trials: int
    weights: Path | None = None  # of the policy


def pack_region(region: Region, module: ir.Module, table: Table, method: str, effort: Effort, prefix: str) -> Packed:
    """Pack one stretch of code by the programme ("ilp") or the policy."""
    began = time.process_time()
    graph = packs.build(region, table)
    plain = choice.used(graph, choice.scalar_choice(graph))
    scalar = choice.cost_of(graph, plain)
    if not any(p.native or p.kind == "store" for p in graph.productions):
        return Packed(region, None, scalar, scalar, 0.0, time.process_time() - began)
    if method == "policy":
        solution = decide(graph, weights(effort.weights))
    else:
        solution = programme.solve(graph, effort.seconds, start(graph, plain))
    packed = Packed(region, None, scalar, min(scalar, solution.cost), solution.gap, time.process_time() - began)
    if solution.cost >= scalar:
        return packed
    emitted = emit(graph, solution.packing, prefix)
    verdict = check(region, emitted, module, effort.trials)
    if not verdict.equal:
        packed.why, packed.cost = verdict.why, scalar
        return packed
    packed.emitted = emitted
    packed.packs = described(graph, solution.packing.order)
    return packed


def start(graph: packs.Graph, plain: Sequence[int]) -> list[int]:
    """What the programme starts from: the greedy choice where it is better than scalars and can be ordered."""
    first = choice.greedy(graph)
    if choice.cost_of(graph, first) >= choice.cost_of(graph, list(plain)):
        return list(plain)
    try:
        arrange(graph, first)
    except Cycle:
        return list(plain)
    return first


def described(graph: packs.Graph, order: Sequence[int]) -> list[str]:
    """The packs for people, in order."""
    lines = []
    for n in order:
        p = graph.productions[n]
        if p.kind in ("scalar", "constant"):
            continue
        if p.gives >= 0:
            item = graph.items[p.gives]
            what = ", ".join("·" if v.startswith("%!") else v for v in item.lanes)
            kind = f"{graph.region.statements[p.members[0]].op}" if p.kind == "pack" else p.kind
        else:
            kind = "store"
            what = ", ".join(graph.region.statements[m].lanes[0] for m in p.members)
        lines.append(f"{kind:10} cost {p.cost}  [{what}]")
    return lines
