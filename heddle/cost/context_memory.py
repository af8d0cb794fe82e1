"""Bytes of attention where ranks share the tokens of samples, as `heddle.parallel.context` keeps and takes them."""

from __future__ import annotations

import numpy as np

from heddle.cost.work import Work
from heddle.schedule.rule import Column, Mask
from heddle.spec.software import CONTEXT_EXCHANGES

GATHER, SWAP = (CONTEXT_EXCHANGES.index(name) for name in ("gather", "all-to-all"))


def swaps(work: Work) -> Mask:
    """Whether ranks exchange tokens for heads."""
    return work.context_exchange == SWAP


def core(work: Work, query: Column, key: Column) -> Column:
    """What attention makes and keeps, given queries, keys and values; `query`, `key`: numbers per token.

    Ring and gather copy keys and values, and keep nothing of other ranks; their output is what the next product reads.
    The all-to-all keeps all tokens of its heads, once more the queries of several groups, and the output of attention.
    Both keep one number in fp32 for each query.
    """
    groups = (work.kv_heads < work.heads) & (work.kv_heads > work.tensor * work.context)
    swap = query + 2 * key + np.where(groups, query, 0.0) + query
    kept = np.where(swaps(work), swap, 2 * key)
    return work.tokens / work.tensor * (work.element * kept + 4 * work.heads)


def backward(work: Work, query: Column, key: Column) -> Column:
    """What attention takes on its way back: gradients, and keys and values of others.

    Gradients of queries, and of keys and values here and at another rank, are added up in fp32; the keys and values of
    two ranks are here, and the gradients of one on their way. A gather has those of all, and a piece has most of them
    once more. An all-to-all has the gradients of what it swaps, before and after.
    """
    e, pair = work.element, 2 * key
    piece = query + pair
    ring = 4 * (query + 2 * pair) + e * (3 * pair + piece + query)
    gather = 4 * (query + work.context * pair) + e * (2 * work.context * pair + 2 * query)
    swap = e * (2 * piece + query)
    each = np.select([swaps(work), work.context_exchange == GATHER], [swap, gather], ring)
    return work.tokens / work.tensor * each
