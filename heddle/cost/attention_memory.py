"""Bytes of attention where the fused kernel is not all there is.

It may change its scores (`heddle.models.scored_attention`), see a window, whose blocks `heddle.models.attention` copies
and masks, or see the tokens of other ranks (`heddle.parallel.context`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost.work import Work
from heddle.schedule.rule import Column, Mask
from heddle.spec.software import CONTEXT_EXCHANGES

SCORES = 64  # queries whose scores exist at a time (`heddle.models.scored_attention`)
GATHER, SWAP, TWO_DIMS = (CONTEXT_EXCHANGES.index(name) for name in ("gather", "all-to-all", "2d"))


def score_sums(work: Work) -> Column:
    """Bytes that attention keeps which changes its scores, beside what it is given: a number for each query."""
    return work.tokens * work.heads / work.tensor * 4


def block_of_scores(work: Work) -> Column:
    """Bytes of a block's scores on their way back: capped, as shares, and their gradient, all in fp32 and one not."""
    block = np.minimum(SCORES, work.sequence)
    keys = np.minimum(work.sequence, work.window + block)
    rounded = np.where(work.element < 4, work.element, 0)
    own: Column = work.microbatch * work.heads / work.tensor * block * keys * (3 * 4 + rounded)
    return own


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


def window_inside(work: Work, query: Column, key: Column) -> Column:
    """Of that, what it makes itself: copies, masks, and a number for each query; its output apart."""
    return window_core(work, Queries(query, key, False, 0.0, 0.0), alone=True)


def window_backward(work: Work, query: Column) -> Column:
    """Bytes of gradients where attention with a window goes back: of output, queries, and copied keys and values."""
    block = np.maximum(work.window, work.window_block)
    blocks = np.ceil(work.sequence / block)
    banded = 6 * (blocks - 1) * block / work.sequence
    return work.tokens / work.tensor * work.element * query * np.where(2 * block <= work.sequence, banded, 4)


def context_swaps(work: Work) -> Mask:
    """Whether ranks exchange tokens for heads, all of them or groups."""
    return (work.context_exchange == SWAP) | (work.context_exchange == TWO_DIMS)


def context_core(work: Work, query: Column, key: Column) -> Column:
    """What attention makes and keeps, given queries, keys and values; `query`, `key`: numbers per token.

    Ring and gather copy keys and values, and keep nothing of other ranks; their output is what the next product reads.
    The all-to-all keeps all tokens of its heads, once more the queries of several groups, and the output of attention.
    In two dims, the ring's copies of keys and values come on top; but the queries of several groups are copies, too,
    and then nothing keeps what was swapped. All keep one number in fp32 for each query.
    """
    swapped = np.where(work.context_exchange == TWO_DIMS, work.context_inner, work.context)
    groups = (work.kv_heads < work.heads) & (work.kv_heads > work.tensor * swapped)
    swap = query + 2 * key + np.where(groups, query, 0.0) + query
    both = query + 2 * key + np.where(groups, 0.0, 2 * key) + query
    which = [work.context_exchange == SWAP, work.context_exchange == TWO_DIMS]
    kept = np.select(which, [swap, both], 2 * key)
    return work.tokens / work.tensor * (work.element * kept + 4 * work.heads)


def context_backward(work: Work, query: Column, key: Column) -> Column:
    """What attention takes on its way back: gradients, and keys and values of others.

    Gradients of queries, and of keys and values here and at another rank, are added up in fp32; the keys and values of
    two ranks are here, and the gradients of one on their way. A gather has those of all, and a piece has most of them
    once more. An all-to-all has the gradients of what it swaps, before and after; in two dims the ring has its own.
    """
    e, pair = work.element, 2 * key
    piece = query + pair
    ring = 4 * (query + 2 * pair) + e * (3 * pair + piece + query)
    gather = 4 * (query + work.context * pair) + e * (2 * work.context * pair + 2 * query)
    swap = e * (2 * piece + query)
    which = [work.context_exchange == number for number in (SWAP, GATHER, TWO_DIMS)]
    each = np.select(which, [swap, gather, np.maximum(ring, swap)], ring)
    return work.tokens / work.tensor * each
