"""Bytes of messages: between stages, as both sides hold them, between replicas, and of what a step reads."""

from __future__ import annotations

import numpy as np

from heddle.cost.work import Work
from heddle.schedule import NAMES, RULES
from heddle.schedule.rule import Column, Mask


def exchange_buffers(work: Work, neighbors: Column, end: Mask = False) -> Column:
    """Bytes of a step's tokens and targets, of messages awaited from so many stages, and what an `end` awaits."""
    messages = step_samples(work) + awaited_messages(work, neighbors) * awaited_message(work)
    return messages + np.where(end, awaited_table(work), 0.0)


def step_samples(work: Work) -> Column:
    """Bytes of a step's tokens and targets."""
    return 16 * work.microbatches * work.tokens


def awaited_messages(work: Work, neighbors: Column) -> Column:
    """Messages that a stage with so many neighbors awaits at once, as heddle.parallel.pipeline.inbox expects them: all
    of GPipe's, which sends on before it waits, but for very many.
    """
    deep = work.gpipe & (work.virtual == 1) & (work.microbatches > work.pipeline)
    each = np.where(deep & (np.asarray(work.gloo) > 0), 64, work.posted)
    return neighbors * np.minimum(each, work.microbatches)


def received_ahead(work: Work, source: int, target: int) -> float:
    """The same for one plan and one neighbor: what that one can send before it has to wait, where it is much."""
    if not work.gloo or work.virtual > 1:
        return float(work.posted)
    p, m = float(work.pipeline), float(work.microbatches)
    rule = RULES[NAMES[int(work.schedule)]]
    most = m if work.gpipe else float(rule.in_flight(p, m, 1, source)) if source < target else 0.0
    return min(64.0, most) if most > p - min(source, target) else float(work.posted)


def awaited_message(work: Work) -> Column:
    """Bytes of one of them: every tensor rank awaits its own slice."""
    return work.tokens * work.hidden * work.message_bytes / work.tensor


def awaited_table(work: Work) -> Column:
    """Bytes of the other end's gradient of a tied embedding: four pieces at most (`parallel.replicas.pair_sum`)."""
    return work.gloo * work.tied * (work.zero < 2) * np.minimum(4 * work.padded_vocab * work.hidden, 16 << 20)


def sent_message(work: Work) -> Column:
    """Bytes of the activations that a stage sends on, which live until the next stage shows that it has used them."""
    # a code is of a slice alone
    slices = np.where(np.logical_or(work.sequence_parallel, work.code_bytes), work.tensor, 1)
    return work.sent * work.tokens * work.hidden * work.message_bytes / slices


def answered_messages(neighbors: Column, several: Mask, microbatches: Column) -> Column:
    """Messages that a stage has sent and nobody has shown to have used, once answers come: about one to each neighbor.

    Where two stages have several chunks each, what goes both ways goes to the same one, whose answers are a turn late.
    """
    return np.minimum(np.where(several & (neighbors == 1), 3, neighbors), microbatches - 1)


def update_buffers(work: Work, gradients: Column) -> Column:
    """Bytes that summing gradients takes beside them: over gloo the shares of all others, once they are sent."""
    return work.gloo * np.where(work.zero == 1, (work.sharing - 1) / work.sharing, 0.0) * gradients
