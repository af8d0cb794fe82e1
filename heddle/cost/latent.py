"""What latent attention multiplies, copies and keeps (`heddle.models.self_attention.LatentAttention`)."""

from __future__ import annotations

import numpy as np

from heddle.cost.work import Work
from heddle.schedule.rule import Column

PASSES = 5  # kernels that only move bytes: two norms, and queries, keys and values put together


def latents(work: Work) -> Column:
    """Numbers of a token that the first product makes."""
    return work.q_latent + work.kv_latent + work.turning


def products(work: Work) -> list[tuple[Column, Column, Column]]:
    """Rows, inputs and outputs: the latents, for which tensor ranks take their own tokens or all; queries; the rest."""
    rows, t = work.tokens, work.tensor
    own = rows / np.where(work.sequence_parallel, t, 1)
    queries = np.where(work.q_latent, work.q_latent, work.hidden)
    both = work.heads * (work.head_size - work.turning + work.values) / t
    return [
        (own, work.hidden, np.maximum(latents(work), 1)),
        (rows, queries, work.heads * work.head_size / t),
        (rows, np.maximum(work.kv_latent, 1), both),
    ]


def copied(work: Work) -> Column:
    """Numbers that are read and written to put queries and keys together, to fill values up, and to cut the output."""
    heads = work.tokens * work.heads / work.tensor
    return 2 * heads * ((2 + work.pads_values) * work.head_size + work.values)


def entering(work: Work) -> Column:
    """Of the numbers that sequence parallelism gathers before attention, the share that does so of latents."""
    tokens = np.where(work.q_latent, 0, work.hidden)
    return np.where(work.kv_latent, (latents(work) + tokens) / work.hidden, 1.0)


def kept(work: Work) -> Column:
    """Bytes that one microbatch leaves from the first product to the last.

    The latents as they were made, and normalized, gathered where tensor ranks share tokens; queries, keys, values and
    output as long as keys, and the output once more as the last product reads it.
    """
    e, tokens, t = work.element, work.tokens, work.tensor
    outside = np.where(work.sequence_parallel, t, 1)
    normed = work.q_latent + work.kv_latent
    scaled = np.where(work.eager, 8 if e < 4 else 4, 0)  # each over its size, in fp32, and what was read
    made = tokens / outside * (latents(work) * e + normed * scaled + 2 * 4)
    read = tokens * np.where(t > 1, latents(work), normed) * e
    cut = np.where(work.value_size, work.heads * work.values, 0)
    longer = np.where(work.pads_values, 4 * work.head_size, 2 * (work.head_size + work.values))
    return made + read + tokens / t * e * (work.heads * longer + work.pads_values * cut)
