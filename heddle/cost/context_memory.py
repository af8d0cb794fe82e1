"""Bytes of attention where ranks share the tokens of samples, as `heddle.parallel.context` keeps and takes them."""

from __future__ import annotations

import numpy as np

from heddle.cost.work import Work
from heddle.schedule.rule import Column, Mask
from heddle.spec.software import CONTEXT_EXCHANGES

GATHER, SWAP, TWO_DIMS = (CONTEXT_EXCHANGES.index(name) for name in ("gather", "all-to-all", "2d"))


def swaps(work: Work) -> Mask:
    """Whether ranks exchange tokens for heads, all of them or groups."""
    return (work.context_exchange == SWAP) | (work.context_exchange == TWO_DIMS)


def core(work: Work, query: Column, key: Column) -> Column:
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


def backward(work: Work, query: Column, key: Column) -> Column:
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
