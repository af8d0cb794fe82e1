"""A smaller graph with the same best pipelines: layers that cost nothing, wherever they are, need no place in it.

Such layers (inputs, reshapes) are common in traced graphs, and every one that may come early or late doubles the number
of up-sets.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heddle.graph.dag import Dag
from heddle.graph.ideals import Bools
from heddle.planning.piper.workload import LayerOptions, Workload

if TYPE_CHECKING:
    from heddle.planning.piper.result import PiperPlan


@dataclass(frozen=True, eq=False)
class Reduced:
    """A workload without its free layers."""

    whole: Workload
    workload: Workload
    free: Bools

    def restore(self, answer: PiperPlan | None) -> PiperPlan | None:
        """The same pipeline with the free layers, each in the stage of its latest predecessor."""
        if answer is None or not self.free.any():
            return answer
        whole = self.whole
        place = {identity: number for number, stage in enumerate(answer.stages) for identity in stage.layers}
        for v in whole.graph.order:
            if self.free[v]:
                before = [place[whole.layers[u]] for u in whole.graph.predecessors[v]]
                place[whole.layers[v]] = max(before, default=0)
        stages = []
        for number, stage in enumerate(answer.stages):
            options = next(o for o in whole.degrees if o.tensor == stage.tensor)
            chosen = dict(zip(stage.layers, stage.options, strict=True))
            layers = [v for v in range(whole.graph.nodes) if place[whole.layers[v]] == number]
            names = [
                options.names[v][int(_costless(options)[v].argmax())] if self.free[v] else chosen[whole.layers[v]]
                for v in layers
            ]
            identities = [whole.layers[v] for v in layers]
            stages.append(dataclasses.replace(stage, layers=identities, options=names))
        return dataclasses.replace(answer, stages=stages, unrestricted=self.restore(answer.unrestricted))


def without_free_layers(workload: Workload) -> Reduced:
    """Leave out layers that take no time, hold nothing and move nothing, at every degree; their order stays."""
    graph = workload.graph
    free = np.ones(graph.nodes, dtype=np.bool_)
    for options in workload.degrees:
        free &= _costless(options).any(axis=1)
        moves = (options.receive > 0) | (options.send > 0)
        free[graph.tails[moves]] = False
        free[graph.heads[moves]] = False
        if options.peaks is not None:
            free &= options.peaks == 0
    if not free.any() or free.all():
        return Reduced(workload, workload, np.zeros(graph.nodes, dtype=np.bool_))
    # Who came before a free layer still comes before who came after it.
    stays = np.flatnonzero(~free)
    number = {int(v): n for n, v in enumerate(stays)}
    before: list[set[int]] = [set() for _ in range(graph.nodes)]  # through free layers only
    for v in graph.order:
        for u in graph.predecessors[v]:
            before[v] |= before[u] if free[u] else {u}
    kept = ~(free[graph.tails] | free[graph.heads])
    ends = [(number[int(u)], number[int(v)]) for u, v in zip(graph.tails[kept], graph.heads[kept], strict=True)]
    direct = set(ends)
    order = sorted({(number[u], number[int(v)]) for v in stays for u in before[v]} - direct)
    fewer = dataclasses.replace(
        workload,
        graph=Dag.from_edges(len(stays), ends + order),
        layers=[workload.layers[v] for v in stays],
        names=[workload.names[v] for v in stays],
        degrees=[_taken(options, stays, kept, len(order)) for options in workload.degrees],
        core=None if workload.core is None else workload.core[stays],
    )
    return Reduced(workload, fewer, free)


def _costless(options: LayerOptions) -> Bools:
    """(layers, options): which cost nothing."""
    return np.asarray(options.seconds + options.parameters + options.stashed + options.fixed == 0)


def _taken(options: LayerOptions, stays: np.ndarray, kept: Bools, added: int) -> LayerOptions:
    assert options.tie is None  # tied weights are in models, whose layers all cost something
    return dataclasses.replace(
        options,
        names=[options.names[v] for v in stays],
        seconds=options.seconds[stays],
        parameters=options.parameters[stays],
        stashed=options.stashed[stays],
        fixed=options.fixed[stays],
        receive=np.concatenate([options.receive[kept], np.zeros(added)]),
        send=np.concatenate([options.send[kept], np.zeros(added)]),
        peaks=None if options.peaks is None else options.peaks[stays],
    )
