"""Bytes at both ends of the model: the output layer and the loss, and the embedding on its way back."""

from __future__ import annotations

from typing import Generic, NamedTuple

import numpy as np

from heddle.cost.memory import NORM_ROW, end_parameters, norm_bytes
from heddle.cost.work import Work
from heddle.schedule.rule import C, Column, Mask


class Ends(NamedTuple, Generic[C]):
    """Bytes of one microbatch in the output layer and the loss."""

    left: C  # for the backward: the input of the final norm, and what the output layer and the loss keep
    briefly: C  # for a moment beside all that was left
    table: C  # the gradient of the output layer's weight, before it is added


def end_activations(work: Work) -> Ends[Column]:
    """The output layer and the loss.

    Apart, the loss keeps fp32 for each logit (arXiv 2205.05198 §4.3). Its fullest moment is its own, or the output
    layer's backward, whose weight may be the largest of all: then the gradient of the logits is there, and what was
    kept gone.
    """
    e, t = work.element, work.tensor
    outside = np.where(work.sequence_parallel, t, 1)
    normed = norm_bytes(work)
    norm = work.tokens * (work.hidden * normed + NORM_ROW) / outside
    table = (1 - work.adds_in_place) * work.padded_vocab * work.hidden * e * learns_table(work)
    together, apart = _head_with_loss(work, norm, table), _head_and_loss(work, norm, table)
    return Ends(*(np.where(work.logits_at_once, one, other) for one, other in zip(together, apart, strict=True)))


def _head_and_loss(work: Work, norm: Column, table: Column) -> Ends[Column]:
    e, t = work.element, work.tensor
    apart = np.where(work.sequence_parallel, np.where(work.keeps_gathered, 1, t), 1)
    logits, tokens = work.tokens * work.padded_vocab, work.tokens * work.hidden
    seen = logits * np.where(work.whole_loss, t, 1)  # by the loss
    kept = work.kept_logit * seen
    short = e if e < 4 else 0  # logits as they were multiplied, where the loss has them once more in fp32
    loss = np.where(t > 1, short + work.brief_split_logit, work.brief_logit) * seen
    product = table + e * (logits + tokens * np.where(work.sequence_parallel, 2 + work.gloo, 1))
    return Ends(norm + tokens * e / apart + kept, np.maximum(loss, product - kept), table)


def _head_with_loss(work: Work, norm: Column, table: Column) -> Ends[Column]:
    """Both as one (`heddle.models.loss`): so many logits at a time, of which their forward makes all gradients.

    It keeps the gradients of its input and of its weight. While it works there are beside these its input, gathered
    under sequence parallelism, whose gradient is then summed; and logits: as they were multiplied, in fp32, where the
    vocabulary is whole once more as logarithms, and their gradient as it is multiplied. From the second turn on those
    in fp32 and the gradient of the turn before are still there. In fp32 some of these are the same memory.
    """
    e, rows, sliced = work.element, work.padded_vocab, work.sequence_parallel
    short, whole = int(e < 4), np.where(work.tensor > 1, 0, 1)
    at_once = np.minimum(work.tokens, np.maximum(1, np.floor(work.logits_at_once / rows)))
    logits, several = at_once * rows, at_once < work.tokens
    inputs = work.tokens * work.hidden * e
    # gradients of the weight are summed in fp32 over the turns: the sum, that of a turn, and what that is made of
    summed = np.where(several & (e < 4), 4 / e * table, table)
    widened = 4 * (logits + at_once * work.hidden) + summed
    loss = (e + 4 * short + 4 * whole) * logits + np.where(several, (4 + e * short) * logits + summed, 0.0)
    multiplies = (e + 4 * np.maximum(short, whole) + e * short) * logits + summed
    multiplies = multiplies + np.where(several & (e < 4), widened, 0.0)
    part = inputs / np.where(sliced, work.tensor, 1)
    sums = np.where(sliced, part + work.gloo * inputs, 0.0)
    fullest = part + np.where(sliced, inputs, 0.0) + inputs + np.maximum(loss, multiplies + sums)
    return Ends(norm + part + table, fullest - part - table, table)


def learns_table(work: Work) -> Column:
    """Whether the output layer's weight learns: a tied one does with the embedding."""
    return np.where(work.tied, work.learns_embed, work.learns_head)


def final_norm_backward(work: Work) -> Column:
    """Bytes that the last norm holds for a moment on its way back, where it is many kernels in fp32."""
    outside = np.where(work.sequence_parallel, work.tensor, 1)
    return work.eager * work.tokens * work.hidden * (16 - work.element) / outside


def waiting_table(work: Work, ends: Ends[Column]) -> Column:
    """Bytes of the gradient of a tied embedding's one end that waits for the other on the same stage."""
    return np.where(work.pipeline == 1, work.tied, 0) * ends.table if np.any(work.tied) else 0.0


def made_gradients(work: Work, layers: Column, first: Mask, last: Mask) -> Column:
    """Bytes of gradients that the step's first backward makes where one replica trains in fp32; `layers`: parameters.

    Gradients that are summed with others' lie in buffers that are always there: so does that of a tied embedding whose
    two ends are on two stages.
    """
    shared = np.where((work.pipeline > 1) & (np.asarray(first) | np.asarray(last)), work.tied * work.learns_embed, 0)
    own = layers + end_parameters(work, first, last) - shared * work.padded_vocab * work.hidden
    return own * work.gradient_bytes


def last_layer(work: Work, layer: Column, parameters: Column, first: Mask) -> Column:
    """Bytes on top of what a first backward made and others left, in its last layer or at the embedding behind it.

    `layer`: what that layer, of so many parameters, holds meanwhile; its gradients, and the embedding's, are not there
    yet.
    """
    table = work.padded_vocab * work.hidden * work.learns_embed
    waits = np.where(work.pipeline == 1, work.tied, 0) * table
    apart = np.where(work.pipeline > 1, work.tied, 0) * table
    begins = np.where(first, table + work.position_parameters * work.learns_embed - apart, 0.0)
    here = layer + np.where(first, waits, 0.0) * work.element
    here = here - (parameters + begins) * work.gradient_bytes
    embedding = np.where(first, embedding_backward(work, 0.0) - (table - apart) * work.gradient_bytes, 0.0)
    return np.maximum(np.maximum(here, embedding), 0.0)


def embedding_backward(work: Work, one: Column) -> Column:
    """Bytes that the gradient of the embedding takes beyond what a microbatch left, which is gone by then."""
    table = work.padded_vocab * work.hidden * work.element
    both = table * (1 + np.where(work.pipeline == 1, work.tied, 0)) + work.tokens * work.hidden * work.element
    return both * work.learns_embed - one
