"""What the fullest rank holds at least where layers differ: rank by rank, with the layers that are really there.

Elsewhere a rank's layers are taken to be as small as any that follow each other. A few dense layers before many with
experts would make that far too little.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from heddle.cost import memory
from heddle.cost.step import Split
from heddle.cost.work import Work
from heddle.schedule import NAMES, RULES
from heddle.schedule.registry import usual
from heddle.schedule.rule import Column
from heddle.schedule.rules.interleaved import first_group
from heddle.simulating.distinct import by_group, distinct
from heddle.simulating.memory_bounds import made_by_backwards
from heddle.simulating.orders import recomputed
from heddle.spec.rules.even import even_stages

ShapeCounts = tuple[np.ndarray, np.ndarray, np.ndarray]


def fullest_rank(work: Work, split: Split, saved: Sequence[memory.Saved], loss: Column) -> Column:
    """Bytes of weights, gradients and optimizer, and of activations at the first backward.

    `saved`: of each shape; `loss`: what the output layer and the loss hold.
    """
    plans = max(1, len(work))  # one where every column is a number

    def spread(values: Sequence[Column]) -> np.ndarray:
        return np.stack([np.broadcast_to(value, plans) for value in values])

    shapes = [one for _, one in work.each_shape]
    parameters = spread([memory.layer_parameters(one) for one in shapes])
    kept = spread([np.where(work.full >= 1, each.full, each.kept(work)) for each in saved])
    partly = (work.full > 0) & (work.full < 1)
    gain = spread([each.none - each.full for each in saved]).max(axis=0) * partly
    count = np.broadcast_to(np.where(partly, np.minimum(recomputed(work), work.layers), 0.0), plans)
    here = (work.zero < 2) | (work.replicas == 1)  # what is sharded is gathered and let go in the course of a step
    gradients = np.where(made_by_backwards(work), 0.0, split.states.gradients)
    states = np.broadcast_to(np.where(here, split.states.kept + gradients, 0.0), plans)
    moment = spread([each.moment(work, work.full >= 1) for each in saved]).min(axis=0)
    ends = spread([np.where(work.folded, 0.0, end) for end in (split.first_end, split.last_end)]) * states
    last = np.broadcast_to(np.where(work.folded, 0.0, loss), plans)
    columns = spread((work.pipeline, work.virtual, work.microbatches, work.schedule)).astype(np.int64)
    one_of_each, group = distinct(list(columns))
    found = np.zeros(plans)
    kinds = columns[:, one_of_each].T.tolist()
    for rows, kind in zip(by_group(group), kinds, strict=True):
        layers, flights, each = _ranks(work.shape_of, *kind)
        held = flights @ kept[:, rows]
        again = np.minimum(np.outer(each, count[rows]), flights.sum(axis=1)[:, None])
        held = np.maximum(held - again * gain[rows], 0.0)
        held = held + layers @ parameters[:, rows] * states[rows] + (flights.sum(axis=1) > 0)[:, None] * moment[rows]
        held[0] += ends[0, rows]
        if kind[0] > 1:
            held[-1] += ends[1, rows]
        held[-1] += np.maximum(last[rows] - moment[rows], 0.0) * (flights[-1].sum() > 0)
        found[rows] = held.max(axis=0)
    return found if len(work) else found[0]


def mean_flights(
    shape_of: tuple[int, ...], pipeline: int, virtual: int, microbatches: int, schedule: int
) -> np.ndarray:
    """Layers of each shape that a rank has times the microbatches in flight at its first backward, as a mean."""
    return np.asarray(_ranks(shape_of, pipeline, virtual, microbatches, schedule)[1].sum(axis=0) / pipeline)


@lru_cache(maxsize=8192)
def _ranks(shape_of: tuple[int, ...], pipeline: int, virtual: int, microbatches: int, schedule: int) -> ShapeCounts:
    """For each rank: layers of each shape, these times the microbatches in flight, and microbatches of one layer."""
    rule = RULES[NAMES[schedule]]
    sizes, shapes = even_stages(len(shape_of), pipeline * virtual), np.eye(max(shape_of) + 1)
    ends = np.cumsum((0, *sizes))
    chunks = np.stack([shapes[list(shape_of[a:b])].sum(axis=0) for a, b in pairwise(ends)])
    own = np.array([[rule.placement.rank_of(chunk, pipeline) for chunk in range(pipeline * virtual)]])
    mine = (own == np.arange(pipeline)[:, None]).astype(float)  # whether each rank has each chunk
    flights = np.zeros_like(mine)
    if rule.starts_like_1f1b and not rule.forwards_first:
        one_by_one = first_group(pipeline, microbatches) if virtual > 1 else microbatches
        lap = np.arange(pipeline * virtual) // pipeline
        for rank in range(pipeline):
            started = float(RULES[usual(virtual)].in_flight(pipeline, microbatches, virtual, rank))
            flights[rank] = np.clip(started - lap * float(one_by_one), 0, float(one_by_one))
    flights = flights * mine
    return mine @ chunks, flights @ chunks, flights.max(axis=1)
