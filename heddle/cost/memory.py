"""Bytes on one device: weights, gradients, optimizer, activations in flight, the loss's buffers.

Exact where it can be. A rank that holds several chunks holds the sum of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost.work import Column, Work
from heddle.spec.cluster import Cluster

MASTER, MOMENTS = 4, 8  # bytes a parameter: full-precision copy of 16-bit weights, Adam's two moments


class Bill(NamedTuple):
    """Bytes that one rank holds at its peak."""

    weights: Column
    gradients: Column
    optimizer: Column  # moments, and full-precision masters where weights have less
    activations: Column
    buffers: Column  # of one operation or one message: logits, gathered parameters
    slack: Column  # what the allocator cannot use

    @property
    def total(self) -> Column:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers + self.slack


def layer_parameters(work: Work) -> Column:
    """Parameters of one layer on one tensor rank."""
    return (work.layer_parameters - work.replicated_parameters) / work.tensor + work.replicated_parameters


def end_parameters(work: Work, first: Column, last: Column) -> Column:
    """Parameters that the first and the last stage hold beside their layers.

    A tied embedding lives on both; where one stage is first and last, once.
    """
    table = work.padded_vocab * work.hidden
    begins = np.where(first, table + work.position_parameters, 0.0)
    own = np.where(first, (1 - work.tied) * table, table) if np.any(work.tied) else table
    return begins + np.where(last, own + work.norm_parameters, 0.0)


def states(work: Work, parameters: Column, largest: Column) -> tuple[Column, Column, Column, Column]:
    """Weights, gradients, optimizer and gathered parameters, for the parameters of one rank.

    Mixed precision keeps 2 + 4 + 4 + 8 = 18 bytes a parameter, fp32 4 + 4 + 8 = 16 (arXiv 1910.02054 §3.1, with
    gradients in fp32). Replicas share the optimizer's part from ZeRO-1 on; from ZeRO-2 on they share all three, and a
    shard of weights is its own fp32 master. What is used is gathered: by ZeRO-3 one layer and the next, by ZeRO-2 all.
    `largest`: parameters of the largest layer.
    """
    shard = parameters / work.data
    weights = parameters * work.element
    gradients = (parameters + np.where(work.zero == 1, work.summed_apart * shard, 0.0)) * work.gradient_bytes
    optimizer = np.where(work.zero >= 1, shard, parameters) * (MOMENTS + (MASTER if work.element < 4 else 0))
    if not np.any(work.zero >= 2):
        return weights, gradients, optimizer, 0.0
    sharded = work.zero >= 2
    in_use = np.where(work.zero == 3, 2 * largest, parameters) * work.element + largest * work.reduce_bytes
    return (
        np.where(sharded, shard * MASTER, weights),
        np.where(sharded, shard * work.gradient_bytes, gradients),
        np.where(sharded, shard * MOMENTS, optimizer),
        np.where(sharded, in_use, 0.0),
    )


class Saved(NamedTuple):
    """Bytes that one microbatch leaves in one layer for its backward, by what is recomputed."""

    none: Column
    selective: Column
    per_op: Column
    full: Column

    def mean(self, work: Work) -> Column:
        """Over all layers of a work."""
        rest = 1 - work.full - work.selective - work.per_op
        mixed = work.full * self.full + work.selective * self.selective + work.per_op * self.per_op
        return rest * self.none + mixed

    def moment(self, work: Work) -> Column:
        """What a layer that recomputes holds beside that while it goes backward."""
        kept = np.where(work.full > 0, self.full, np.where(work.selective > 0, self.selective, self.per_op))
        return np.where(work.full + work.selective + work.per_op > 0, self.none - kept, 0.0)


def layer_activations(work: Work) -> Saved:
    """What one microbatch leaves in one layer for its backward.

    The items of arXiv 2205.05198 §4.1, generalised to other widths, gated MLPs, fused attention and no dropout: for
    GPT with dropout and unfused attention, s·b·h·(10 + 24/t + 5·a·s/(h·t)) and under sequence parallelism all of it
    over t (its Table 2).
    """
    e, tokens, t = work.element, work.tokens, work.tensor
    outside = np.where(work.sequence_parallel, t, 1)
    query, pair = work.heads * work.head_size, 2 * work.kv_heads * work.head_size
    # inputs of both norms and of both blocks; a mask of each dropout
    split_by_sequence = tokens * work.hidden * (4 * e + 2 * work.dropout) / outside
    # query, key, value; the output of attention; what the activation reads and what it makes
    ffn = work.ffn * (2 + 2 * work.gated)
    split_by_tensor = tokens * (2 * query + pair + ffn) * e / t
    # softmax, its dropout's mask and output; fused attention keeps one number a row instead
    pairs = work.microbatch * work.heads * work.sequence / t * work.sequence
    core = np.where(work.fused, tokens * work.heads / t * 4, pairs * (e + work.dropout * (e + 1)))
    none = split_by_sequence + split_by_tensor + core
    # torchtitan keeps the input, attention's output and every second product: query, value, gate, down
    per_op = tokens * e * (work.hidden * 2 / outside + (2 * query + pair / 2 + work.ffn) / t)
    return Saved(none, none - core, per_op, tokens * work.hidden * e / outside)


def in_flight(work: Work) -> Column:
    """Chunks' worth of activations that the first rank holds at once: those it starts before the first one ends.

    1F1B: p microbatches of one chunk (PTD-P §2.2.1). Interleaved: (v-1)·p + 2(p-1) + 1 chunks, each 1/v of the rank's
    layers; that is 1 + (p-1)/(p·v) times 1F1B's (arXiv 2205.05198 §4.2.3). GPipe: all.
    """
    m, p, v = work.microbatches, work.pipeline, work.virtual
    group = np.where(m >= p, np.ceil(m / np.maximum(1, np.floor(m / p))), m)  # heddle.schedule.interleaved
    interleaved = (v - 1) * group + 2 * (p - 1) + 1
    return np.where(work.gpipe, m * v, np.minimum(np.where(v > 1, interleaved, p), m * v))


def end_activations(work: Work) -> tuple[Column, Column]:
    """Bytes that a microbatch leaves in the output layer and the loss, and bytes that the loss holds for a moment.

    Left: the input of the final norm and of the output layer, the logits in fp32 (arXiv 2205.05198 §4.3). For a moment:
    the logits as they were multiplied, and their gradient; a loss over a split vocabulary is several kernels, and holds
    their exponentials as well.
    """
    outside = np.where(work.sequence_parallel, work.tensor, 1)
    logits = work.tokens * work.padded_vocab
    inputs = 2 * work.tokens * work.hidden * work.element / outside
    return inputs + 4 * logits, (4 + work.element + np.where(work.tensor > 1, 4, 0)) * logits


def exchange_buffers(work: Work) -> Column:
    """Bytes of messages on their way: under sequence parallelism a layer's gathered input and its gradient."""
    return np.where(work.sequence_parallel, 2 * work.tokens * work.hidden * work.element, 0.0)


def slack(cluster: Cluster, held: Column) -> Column:
    """What the allocator cannot use of what it holds, a stated constant of the cluster."""
    return cluster.efficiency.slack * held
