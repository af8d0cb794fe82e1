"""Bytes of attention with a window, as `heddle.models.attention` copies and masks what each block of queries sees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost.work import Work
from heddle.schedule.rule import Column


class Queries(NamedTuple):
    """Numbers per token of what attention with a window is given, beside keys and values."""

    query: Column
    key: Column
    views: Column  # whether queries are part of the product that made keys and values, which lives as long
    normed: Column  # what the norms of queries and keys read
    copied_output: Column  # of attention, laid out head by head


def window_core(work: Work, given: Queries, alone: bool = False) -> Column:
    """Bytes that attention with a window keeps, from the joint product on (`heddle.models.attention`).

    With a short window all is copied: padded to blocks, queries of all blocks but the first once more, keys and values
    once for every block that sees them. With a long one keys and values are repeated for their groups. Both have masks.
    `alone`: what comes back where the core alone is recomputed.
    """
    e, t, tokens = work.element, work.tensor, work.tokens
    query, key = given.query, given.key
    block = np.maximum(work.window, work.window_block)
    short = 2 * block <= work.sequence
    blocks = np.ceil(work.sequence / block)
    padded = np.where(short, blocks * block / work.sequence, 1.0)
    repeated = (work.kv_heads < work.heads) & (work.kv_heads > t)  # a single one is seen by all without a copy
    seen = np.where(repeated, 2 * query / blocks, 2 * key)  # keys and values of the first block
    banded = padded * (query * (2 + (1 - 1 / blocks) * (4 + (work.microbatch > 1))) + seen)
    masked = 2 * query + (0.0 if alone else np.where(given.views, query + 2 * key, query) + given.copied_output)
    kept = np.where(short, banded, masked) + (0.0 if alone else given.normed)
    masks = np.where(short, 3 * block**2, work.sequence**2) * e
    return masks + padded * tokens * work.heads / t * 4 + tokens / t * e * kept


def window_backward(work: Work, query: Column) -> Column:
    """Bytes of gradients where attention with a window goes back: of output, queries, and copied keys and values."""
    block = np.maximum(work.window, work.window_block)
    blocks = np.ceil(work.sequence / block)
    banded = 6 * (blocks - 1) * block / work.sequence
    return work.tokens / work.tensor * work.element * query * np.where(2 * block <= work.sequence, banded, 4)
