"""Which layers a chunk holds, by kind: the one door to everything that differs from layer to layer.

A kind is the shape that the model gives a layer and what the plan does with it. Layers of one kind cost the same, so a
chunk costs, for each kind, so many times the price of one; who prices layers asks here, and never for their number.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from heddle.cost.work import Work
from heddle.spec.layer_memory import LayerMemory, Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan


class LayerKind(NamedTuple):
    """Layers that cost the same."""

    shape: int  # its place among the model's shapes
    memory: LayerMemory

    @property
    def recompute(self) -> Recompute:
        """What its backward computes again."""
        return self.memory.recompute

    @property
    def leaves(self) -> bool:
        """Whether what its forward leaves goes to another tier."""
        return self.memory.tier("input") is not None or self.memory.tier("activations") is not None


Chunk = tuple[tuple[LayerKind, int], ...]  # its runs of layers of one kind, in the order of the model


@lru_cache(maxsize=16)  # seconds and bytes of one plan are asked for one after the other
def chunk_layers(model: ModelSpec, plan: Plan) -> tuple[Chunk, ...]:
    """The layers of each chunk of a plan whose stages are written out."""
    if len(model.shapes) == 1 and isinstance(plan.recompute, str) and not plan.layers:
        return tuple(((LayerKind(0, plan.memory_of(0)), count),) for count in plan.stages)
    if plan.layers:
        memory = [plan.memory_of(layer) for layer in range(model.layers)]
    else:  # a search looks at many
        words = plan.recompute_words(model.layers)
        each = {word: LayerMemory(word, plan.zero, plan.offload) for word in set(words)}
        memory = [each[word] for word in words]
    kinds = list(map(LayerKind, model.shape_of, memory))
    chunks, start = [], 0
    for count in plan.stages:
        runs = groupby(kinds[start : start + count])
        chunks.append(tuple((kind, len(list(run))) for kind, run in runs))
        start += count
    return tuple(chunks)


def recomputing(work: Work, word: Recompute) -> Work:
    """The same work with all layers recomputing alike."""
    full, selective, elementwise = (float(word == each) for each in ("full", "selective", "elementwise"))
    return replace(work, full=full, selective=selective, elementwise=elementwise)
