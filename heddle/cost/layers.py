"""Which layers a chunk holds, by kind: the one door to everything that differs from layer to layer.

A kind is the shape that the model gives a layer and what the plan does with it. Layers of one kind cost the same, so a
chunk costs, for each kind, so many times the price of one; who prices layers asks here, and never for their number.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan, Recompute


class LayerKind(NamedTuple):
    """Layers that cost the same."""

    shape: int  # its place among the model's shapes
    recompute: Recompute


Chunk = tuple[tuple[LayerKind, int], ...]  # how many layers of each kind; the kind of its first layer is the first


@lru_cache(maxsize=16)  # seconds and bytes of one plan are asked for one after the other
def chunk_layers(model: ModelSpec, plan: Plan) -> tuple[Chunk, ...]:
    """The layers of each chunk of a plan whose stages are written out."""
    if len(model.shapes) == 1 and isinstance(plan.recompute, str):
        return tuple(((LayerKind(0, plan.recompute), count),) for count in plan.stages)
    words = (plan.recompute,) * model.layers if isinstance(plan.recompute, str) else plan.recompute
    kinds = list(map(LayerKind, model.shape_of, words))
    chunks, start = [], 0
    for count in plan.stages:
        chunks.append(tuple(Counter(kinds[start : start + count]).items()))
        start += count
    return tuple(chunks)
