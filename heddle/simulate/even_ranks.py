"""How many layers each rank and chunk has when stages are as even as can be, for many plans at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost.work import Column, Work
from heddle.schedule import NAMES, RULES


class Ranks(NamedTuple):
    """Layers of some ranks, and of chunks, when stages are as even as can be (`even_stages`)."""

    first: Column
    most: Column
    last: Column
    small: Column  # of a chunk that got no layer more
    extra: Column  # chunks that did
    start: Column  # the first of these

    @property
    def large(self) -> Column:
        """Layers of the largest chunk."""
        return self.small + (self.extra > 0)


def even_ranks(layers: Column, pipeline: Column, virtual: Column, folded: Column = False) -> Ranks:
    """`even_stages` gives the extra layers to the chunks in the middle: to as many ranks as there are, then again.

    In a V (`folded`) the first rank has the first and the last chunk, and the last one the two in the middle.
    """
    chunks = pipeline * virtual
    small = np.floor(layers / chunks)
    extra = layers - small * chunks
    start = np.floor((chunks - extra) / 2)
    most = small * virtual + np.ceil(extra / pipeline)
    # the first rank's chunks are those at 0, p, 2p, …, the last one's those at p-1, 2p-1, …
    on_first = np.ceil((start + extra) / pipeline) - np.ceil(start / pipeline)
    on_last = np.floor((start + extra) / pipeline) - np.floor(start / pipeline)
    if np.any(folded):

        def more(chunk: Column) -> Column:
            return (start <= chunk) & (chunk < start + extra) & np.asarray(folded)

        on_first = np.where(folded, 1.0 * more(0) + more(chunks - 1), on_first)
        on_last = np.where(folded, 1.0 * more(pipeline - 1) + more(pipeline), on_last)
        most = np.where(folded, small * virtual + on_last, most)
    return Ranks(small * virtual + on_first, most, small * virtual + on_last, small, extra, start)


def recomputed(work: Work) -> Column:
    """Layers of each rank that recompute everything, where a share of all does: each rank its first ones."""
    return np.where(work.full >= 1, np.inf, np.floor(work.full * work.layers / work.pipeline + 1e-9))


def in_flight(work: Work, rank: Column, usual: Column) -> Column:
    """Chunks × microbatches that a rank starts before its first backward ends; `usual`: 1F1B's, interleaved or not."""
    p, m, v = work.pipeline, work.microbatches, work.virtual
    started = usual
    for number in work.schedules:
        rule = RULES[NAMES[number]]
        if rule.name not in ("1f1b", "interleaved"):
            started = np.where(work.schedule == number, (rule.started or rule.in_flight)(p, m, v, rank), started)
    return started
