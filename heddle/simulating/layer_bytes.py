"""What one layer leaves and holds for a moment, as plain numbers: the same for all plans whose layers cost the same."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from heddle.cost import adapters, end_memory, memory
from heddle.cost.layers import LayerKind, recomputing
from heddle.cost.work import Work
from heddle.spec.layer_memory import Recompute
from heddle.spec.plan import Plan


def of_a_layer(work: Work) -> Work:
    """The same for all works whose layers cost the same: a search looks at many of them."""
    batch = work.microbatch * np.minimum(2, work.microbatches)  # gradients are added up from the second microbatch on
    return replace(
        work,
        batch=batch,
        pipeline=1,
        virtual=1,
        data=1,
        zero=0,
        shard_ranks=np.inf,
        schedule=0,
        full=1.0,
        selective=0.0,
        elementwise=0.0,
    )


WHOLE: tuple[Recompute, ...] = ("elementwise", "full")  # what has a layer run once more from its beginning to its end


class LayerBytes(NamedTuple):
    """Of the layers of one shape, by what they recompute."""

    saved: dict[Recompute, float]  # that a microbatch leaves behind
    moment: dict[Recompute, float]  # that one on its way back holds for a moment
    shared: dict[Recompute, float]  # the same where gradients of weights are copied away as they are made
    halved: dict[Recompute, float]  # the same where weight gradients are put off
    parameters: float  # that learn
    frozen: float  # bytes of those that do not
    owed: float  # that a microbatch's weight gradients hold where they are put off
    products: float  # that these hold for a moment when they are made
    dropping: float  # that dropout takes for a moment on its way on

    def left(self, kind: LayerKind) -> float:
        """What a microbatch leaves on the device."""
        return 0.0 if kind.leaves else self.saved[kind.recompute]

    def early(self, kind: LayerKind) -> float:
        """The same before any gradient is made: where dropout draws once more."""
        if kind.recompute not in WHOLE or not self.dropping:
            return 0.0
        again = self.saved["none"] - self.saved[kind.recompute] + self.dropping + self.saved["full"]
        return again + (self.saved[kind.recompute] + self.saved["full"] if kind.leaves else 0.0)

    def back(self, kind: LayerKind, halved: bool = False, shared: bool = False, ahead: float = 0.0) -> float:
        """What the way back holds for a moment; what had left is there again.

        All of it at once, since all is fetched when the layer's backward begins, and `ahead`: the bytes of layers
        before it. The input of a layer that runs once more stays until that is over, beside the one that it runs with.
        """
        moment = (self.halved if halved else self.shared if shared else self.moment)[kind.recompute]
        if not kind.leaves:
            return moment
        beside = self.saved["full"] if kind.recompute in WHOLE else 0.0
        return moment + self.saved[kind.recompute] + beside + ahead


def fetched_ahead(work: Work, plan: Plan, kind: LayerKind) -> int:
    """How many layers before one come back beside its backward: from the host of a GPU, which copies beside it."""
    tier = kind.memory.tier("input") or kind.memory.tier("activations")
    return plan.prefetch if tier == "host" and not work.gloo else 0


@lru_cache(maxsize=1024)
def bytes_of(work: Work) -> LayerBytes:
    """Plain numbers; `work` is that `of_a_layer`."""
    kept = memory.layer_activations(work)
    halved = kept._replace(backward=memory.split_backward(work))
    if np.any(kept.late):
        owed = memory.owed_by_the_mlp(work)
        halved = halved._replace(backward=np.maximum(halved.backward, kept.late + owed), core=kept.core + owed)
    shared = kept._replace(backward=memory.layer_backward(work, shared=True), again=0.0)
    saved = {word: float(bytes_left) for word, bytes_left in kept.by_word.items()}
    return LayerBytes(
        saved=saved,
        moment={word: float(kept.moment(recomputing(work, word))) for word in saved},
        shared={word: float(shared.moment(recomputing(work, word))) for word in saved},
        halved={word: float(halved.moment(recomputing(work, word))) for word in saved},
        parameters=float(memory.layer_parameters(work)),
        frozen=float(adapters.frozen_layer(work)),
        owed=float(memory.owed_products(work)),
        products=float(memory.weight_products(work)),
        dropping=float(memory.dropping(work)),
    )


@lru_cache(maxsize=1024)
def ends_of(work: Work) -> end_memory.Ends[float]:
    """Of the output layer and the loss."""
    return end_memory.Ends(*map(float, end_memory.end_activations(work)))
