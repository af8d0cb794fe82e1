"""Seconds of schedules that take backwards in two, for many plans at once: an estimate, and what no replay is below."""

from __future__ import annotations

import numpy as np

from heddle.cost import step as stage
from heddle.cost.step import LayerCost
from heddle.cost.work import Column, Work
from heddle.schedule import NAMES, RULES
from heddle.simulate.even_ranks import Ranks, recomputed
from heddle.simulate.layer_range import Among


def split_seconds(work: Work, ranks: Ranks, layer: LayerCost, embedding: Column, head: Column, send: Column) -> Column:
    """A step, about: the slowest rank's work, and what a schedule leaves idle where all stages are alike.

    (p-1)(F+B-W) for ZB-H1 (arXiv 2401.10241 Table 2), the last rank's late start for the others.
    """
    p, v, m = work.pipeline, work.virtual, work.microbatches
    soon = layer.backward + stage.recompute_seconds(work, layer) - layer.weight
    one = layer.forward + soon + layer.weight
    first = ranks.first * one + embedding + np.where(work.folded, head, 0.0)
    last = ranks.last * one + np.where(work.folded, 0.0, head)
    slowest = np.maximum(np.maximum(first, last), ranks.most * one) + 2 * send * v
    h1 = work.schedule == NAMES.index("zb-h1")
    idle = work.layers / p / v * np.where(h1, layer.forward + soon - layer.weight, layer.forward) + send
    return m * slowest + (p - 1) * idle


def least_split_seconds(
    work: Work, ranks: Ranks, layers: Among[LayerCost], ends: tuple[Column, Column, Column], total: Column
) -> Column:
    """The longest of a few paths; `ends`: of the embedding, the head, and a message, `total`: of a microbatch in all.

    A rank has all its work to do, once the first microbatch has come down to it. The first rank has but as many
    forwards to do as it starts before its first backward, which then has come down all ranks and up again.
    """
    embedding, head, send = ends
    p, v, m, layer = work.pipeline, work.virtual, work.microbatches, layers.least
    alike = work.selective * layer.again_selective + work.per_op * layer.again_per_op
    both, count = layer.forward + layer.backward + alike, recomputed(work)

    def through(number: Column) -> Column:  # so many layers of one rank, both ways
        return number * both + np.minimum(number, count) * layer.again_full

    sends = 2 * send * (v - np.where(work.folded, 0.5, 0.0)) - send  # of a rank, at least
    first = through(ranks.first) + embedding + np.where(work.folded, head, 0.0) + sends
    last = through(ranks.last) + np.where(work.folded, 0.0, head) + sends
    down = ranks.small * layer.forward + send
    mean = m * total / p + (p - 1) / 2 * down
    late = (p - 1) * down + m * last
    most = m * (through(ranks.most) + sends)
    started: Column = np.inf
    for number, rule in enumerate(RULES.values()):
        if rule.started is not None:
            started = np.where(work.schedule == number, rule.started(p, m, v, 0), started)
    soon = layer.backward + alike - np.minimum(layers.most.weight, layer.backward)
    there_and_back = work.layers * layer.forward + (work.layers - ranks.first) * soon + head + 2 * send * (p - 1)
    own = ranks.first * layers.most.forward + embedding + send
    idle = there_and_back - np.where(np.isinf(started), 0.0, started) * own
    waits = m * first + np.where(np.isinf(started), 0.0, np.maximum(idle, 0.0))
    return np.maximum(np.maximum(mean, late), np.maximum(most, waits))
