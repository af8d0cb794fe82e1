"""Seconds and bytes of fine-tuning: frozen weights, perhaps in four bits, and adapters that learn beside them.

Whatever is said elsewhere of a rank's parameters – gradients, optimizer, exchanges – is of those that learn: with
adapters these alone. Frozen weights are counted here. They are held, sharded by ZeRO-3 and gathered by it, and nothing
else; of a product with one there is no weight gradient, and its input is kept only where an adapter reads it.
"""

from __future__ import annotations

import numpy as np

from heddle.cost.work import Work
from heddle.schedule.rule import Column, Mask

NF4 = 0.5 + 4 / 64  # bytes of a number in four bits, with its share of a scale
AT_ONCE = 1 << 23  # of these that are in full precision at a time (heddle.models.nf4)
KERNELS = 3  # that an adapter starts, forward
UNPACKING = 4  # that so many numbers in four bits start
# Bytes that move for each number made of four bits: the code, read and widened, looked up in full precision, scaled.
UNPACKED = NF4 + 2 * 2 + 2 * 4


def learned(work: Work, every: Column) -> Column:
    """Parameters of one layer on one tensor rank that learn, of `every` one."""
    if not np.any(work.frozen):
        return every
    beside = work.adapters_split / work.tensor + work.adapters_whole + work.learns_norm * work.replicated_parameters
    return np.where(work.frozen, beside, every)


def frozen_layer(work: Work) -> Column:
    """Bytes of one layer's frozen weights on one tensor rank."""
    if not np.any(work.frozen):
        return 0.0
    each = np.where(work.quantized, NF4, work.element)
    matrices = (work.held_parameters - work.replicated_parameters) / work.tensor * each
    return work.frozen * (matrices + work.replicated_parameters * work.element * (1 - work.learns_norm))


def frozen_end(work: Work, first: Mask, last: Mask) -> Column:
    """The same of the embedding and of the output layer, where a stage has them."""
    if not np.any(work.frozen):
        return 0.0
    table = work.padded_vocab * work.hidden
    begins = np.where(first, (table + work.position_parameters) * (1 - work.learns_embed), 0.0)
    own = np.where(first, (1 - work.tied) * table, table) * (1 - work.learns_head)
    finishes = np.where(last, own + work.norm_parameters * (1 - work.learns_norm), 0.0)
    return work.frozen * work.element * (begins + finishes)


def held(work: Work, frozen: Column) -> Column:
    """What a rank holds of so many bytes all the time: ZeRO-3 shares them."""
    return np.where(np.greater_equal(work.zero, 3), frozen / work.sharers, frozen) if np.any(work.zero >= 3) else frozen


def targets(work: Work) -> Column:
    """Adapters of a layer."""
    return work.adapters_qkv + work.adapters_out + work.adapters_up + work.adapters_down


def kept(work: Work) -> Column:
    """Bytes that a microbatch leaves in a layer on top of what one that learns does.

    What A makes, for B; A and B of queries, keys and values put together. Inputs that no adapter reads are not kept.
    """
    if not np.any(work.frozen):
        return 0.0
    e, tokens, t = work.element, work.tokens, work.tensor
    inside = np.where(work.sequence_parallel, t, 1)
    unread = tokens * work.hidden / inside * ((work.adapters_qkv == 0) + (work.adapters_up == 0) * 1.0)
    unread = unread + tokens * work.ffn / t * (work.adapters_down == 0)
    return made(work) - work.frozen * e * unread


def made(work: Work) -> Column:
    """Of that, what A makes, and the matrices that are put together."""
    wide = work.adapters_qkv * work.rank
    joined = np.where(work.adapters_qkv > 1, wide * work.hidden, 0.0)
    joined = joined + wide * (work.heads + 2 * work.kv_heads) * work.head_size / work.tensor
    return work.frozen * work.element * (work.tokens * work.rank * targets(work) + joined)


def unpacked(work: Work) -> tuple[Column, Column]:
    """Bytes of the largest matrix to multiply with, where it is kept in four bits, and for a moment while it is made:
    codes as whole numbers, and what they stand for in full precision.
    """
    if not np.any(work.quantized):
        return 0.0, 0.0
    largest = work.quantized * work.hidden * work.ffn / work.tensor
    return largest * work.element, np.minimum(largest, AT_ONCE) * (2 + 4)


def moment(work: Work) -> Column:
    """Bytes that a layer's backward holds for a moment at its last product, on top of a frozen layer's.

    The weight, if it was made anew for it. Where tensor ranks share the layer, the gradient of an adapter's input is
    beside that of the weight's.
    """
    if not np.any(work.frozen):
        return 0.0
    wide = work.tokens * work.ffn / work.tensor * work.element
    matrix, making = unpacked(work)
    beside = wide * (work.adapters_down > 0) * (work.tensor > 1)
    return work.frozen * (matrix + np.maximum(beside, making - wide))


def seconds(work: Work, speed: float) -> tuple[Column, Column]:
    """Forward and backward of a layer's adapters, and of numbers made of four bits; `speed`: bytes per second.

    Products with a narrow matrix take as long as their wide operand takes to read or write. Forward: the input is read,
    the output written, and added to the layer's. Backward: the output's gradient is read for B's gradient and for A's
    side; the input is read for A's gradient; its own gradient is written, and added to the other. Where adapters are
    fused, they add to what the layer's own product made, in place.
    """
    if not np.any(work.frozen):
        return 0.0, 0.0
    t, e, h = work.tensor, work.element, work.hidden
    query, key = work.heads * work.head_size / t, work.kv_heads * work.head_size / t
    ffn = work.ffn / t
    spared = 2 * work.fused_adapters
    forward: Column = 0.0
    backward: Column = 0.0
    for number, inputs, outputs in (
        (work.adapters_qkv, h, (query + 2 * key) / 3),
        (work.adapters_out, query, h),
        (work.adapters_up, h, ffn),
        (work.adapters_down, ffn, h),
    ):
        forward = forward + number * (inputs + (4 - spared) * outputs)
        backward = backward + number * (2 * outputs + (5 - spared) * inputs)
    passes = work.frozen * work.tokens * e / speed
    matrices = (work.held_parameters - work.replicated_parameters) / t
    unpacking = work.quantized * matrices * (UNPACKED + e) / speed
    return passes * forward + unpacking, passes * backward + unpacking


def kernels(work: Work) -> Column:
    """That a layer starts more, forward."""
    turns = 4 + work.gated + (work.held_parameters - work.replicated_parameters) / work.tensor / AT_ONCE
    return work.frozen * (KERNELS * targets(work) + work.quantized * UNPACKING * turns)
