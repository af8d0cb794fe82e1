"""What many plans take and hold at the very least, in a moment: the mean over their ranks.

A search asks this first. What is too large, or too slow, by the mean is so for certain, and is not priced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from heddle.cost import memory
from heddle.cost import step as stage
from heddle.cost.work import Work
from heddle.schedule.rule import Column
from heddle.simulating.among import among
from heddle.simulating.distinct import Once, once
from heddle.simulating.memory_bounds import made_by_backwards
from heddle.simulating.prices import layer_fields
from heddle.simulating.rank_bytes import mean_flights
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import Recompute


def least_seconds(work: Work, cluster: Cluster) -> np.ndarray:
    """Seconds that each plan's ranks compute, as a mean: no step is shorter, wherever its layers are.

    What only some layers recompute is not counted.
    """
    if not len(work):
        return np.zeros(0)

    def of_a_layer(some: Work) -> tuple[Column, ...]:
        counts = [count for count, _ in some.each_shape]
        layer = among([stage.layer_cost(cluster, one) for _, one in some.each_shape], counts).mean
        return layer.forward + layer.backward, layer.again_full, layer.again_selective, layer.again_elementwise

    both, full, selective, elementwise = once(work, layer_fields(work), of_a_layer).of(slice(None))
    degrees = work.tensor, work.context, work.pipeline, work.data
    slowdown = once(work, degrees, lambda some: (stage.slowdown(cluster, some),)).of(slice(None))[0]
    again = np.where(work.full >= 1, full, 0.0) + work.selective * selective + work.elementwise * elementwise
    return np.broadcast_to(slowdown * work.microbatches / work.pipeline * work.layers * (both + again), len(work))


class MeanBytes:
    """Bytes that ranks of some splits hold at their first backwards, as a mean: the fullest holds no less."""

    def __init__(self, work: Work, shape_of: Sequence[int], words: Sequence[Recompute]) -> None:
        self.shape_of = tuple(shape_of)
        degrees = (work.tensor, work.context, work.pipeline, work.data, work.expert, work.whole_experts)
        self.states = _of_each(once(work, (*degrees, work.zero, work.sharing), _states), len(work))[0]
        self.work, self.words = work, words

    @cached_property
    def saved(self) -> np.ndarray:
        """What a microbatch leaves in a layer, by shape, word and split."""

        def of_a_layer(some: Work) -> tuple[np.ndarray, ...]:
            every = [memory.layer_activations(one).by_word for _, one in some.each_shape]
            return tuple(np.broadcast_to(each[word], len(some)) for each in every for word in self.words)

        kept = np.stack(_of_each(once(self.work, layer_fields(self.work), of_a_layer), len(self.work)))
        return kept.reshape(-1, len(self.words), len(self.work))

    def states_of(self, rows: np.ndarray) -> np.ndarray:
        """Without activations, for each split."""
        return np.asarray(self.states[rows][:, None, None])

    def of(self, rows: np.ndarray, words: Sequence[int], orders: Sequence[tuple[int, int, int, int]]) -> np.ndarray:
        """For each split, order of work and word; orders: stages, chunks per rank, microbatches, schedule."""
        if not orders:
            return np.zeros((len(rows), 0, len(words)))
        flights = np.stack([mean_flights(self.shape_of, *order) for order in orders])
        left = np.tensordot(flights, self.saved[:, list(words)][:, :, rows], axes=1)  # by order, word and split
        return np.asarray(self.states_of(rows) + left.transpose(2, 0, 1))


def _states(work: Work) -> tuple[np.ndarray]:
    """Weights, gradients and optimizer; those that are sharded are gathered and let go in the course of a step."""
    states = memory.state_bytes(work)
    gradients = np.where(made_by_backwards(work), 0.0, states.gradients)
    each = np.where((work.zero < 2) | (work.replicas == 1), states.kept + gradients, 0.0)
    parameters = memory.layer_parameters(work) * work.layers / work.pipeline
    return (np.broadcast_to(parameters * each, len(work)),)


def _of_each(found: Once[tuple[np.ndarray, ...]], plans: int) -> list[np.ndarray]:
    return [np.broadcast_to(column, plans) for column in found.of(slice(None))]
