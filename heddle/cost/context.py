"""Seconds that attention waits for keys and values where several ranks share the tokens of a sample.

Every rank has queries of its own tokens and needs the keys and values of all that came before them. How these reach it
differs between trainers, and so does what they hide behind: `CONTEXT_EXCHANGES` of `heddle.spec.software`.
"""

from __future__ import annotations

import numpy as np

from heddle.cost import compute, network
from heddle.cost.work import Work
from heddle.schedule.rule import Column
from heddle.spec.cluster import Cluster

# PyTorch's context_parallel adds up the parts of attention, each to another rank's keys, in fp32. Bytes per number of
# the output and per part: the forward reads the part and the sum so far, and writes the sum; the backward does so with
# the gradients of query, key and value (torch/distributed/tensor/experimental/_attention.py).
MERGE, MERGE_BACK = 2 + 4 + 4, 3 * (2 + 4 + 4)


def exchange(cluster: Cluster, work: Work, core: Column) -> tuple[Column, Column]:
    """Seconds that one layer waits in its forward and its backward, where attention takes `core` in its forward."""
    # in the order of CONTEXT_EXCHANGES
    ways = (
        _ring(cluster, work, core, work.context),
        _swap(cluster, work, work.context),
        _gather(cluster, work),
        _torch(cluster, work),
        _two_dims(cluster, work, core),
    )
    chosen = np.asarray(work.context_exchange, dtype=int)
    there, back = (np.choose(chosen, list(map(np.asarray, halves))) for halves in zip(*ways, strict=True))
    return there, back


def _ring(cluster: Cluster, work: Work, core: Column, ranks: Column) -> tuple[Column, Column]:
    """Each rank passes on the keys and values that it got, beside the attention to them; back, their gradients as well.

    Ring Attention, arXiv 2310.01889 §3.
    """
    # with a window only those whose blocks it reaches, in both directions from the rank's two blocks
    block = work.sequence / (2 * ranks)
    reached = np.where(work.window < work.sequence, 2 * np.ceil((work.window - 1) / block), ranks - 1)
    turns = np.minimum(reached, ranks - 1) * _message(cluster, work, work.kv_heads, work.element)
    back = 2 * turns
    return (
        turns - network.hidden(cluster, turns, core),
        back - network.hidden(cluster, back, compute.BACKWARD * core),
    )


def _swap(cluster: Cluster, work: Work, ranks: Column) -> tuple[Column, Column]:
    """Query, key, value and output change from slices of tokens to slices of heads, and nothing runs beside.

    DeepSpeed-Ulysses, arXiv 2309.14509 §3.
    """
    speed, latency = network.innermost(cluster, ranks * work.tensor)
    speed = speed * (1.0 if cluster.device.host else network.ALL_TO_ALL)
    swaps = 4 * latency * (ranks - 1) + (ranks - 1) / ranks * 2 * (work.heads + work.kv_heads) * _local(work) / speed
    return swaps, swaps


def _two_dims(cluster: Cluster, work: Work, core: Column) -> tuple[Column, Column]:
    """An all-to-all inside groups of neighbors; between the groups a ring of all their tokens of a rank's heads.

    USP, arXiv 2405.07719 §3; Megatron-core's `a2a+p2p`. A turn of the ring carries as many bytes as if there were no
    groups, and there are fewer turns.
    """
    swaps = _swap(cluster, work, work.context_inner)
    turns = _ring(cluster, work, core, work.context / work.context_inner)
    return swaps[0] + turns[0], swaps[1] + turns[1]


def _gather(cluster: Cluster, work: Work) -> tuple[Column, Column]:
    """All keys and values are gathered first, "exposed in the critical path"; back, their gradients are scattered.

    The Llama 3 Herd of Models, arXiv 2407.21783 §3.3.2.
    """
    gathered = _all(cluster, work, work.kv_heads)
    return gathered, 2 * gathered


def _torch(cluster: Cluster, work: Work) -> tuple[Column, Column]:
    """PyTorch's context_parallel, as torchtitan uses it.

    The model repeats keys and values for every head of the queries before attention sees them (`repeat_kv`). They are
    gathered, in the backward again; their gradients go all the way round in fp32, n messages one after the other. Its
    blocks are compiled, and a collective that is traced is waited for at once (`_maybe_wrap_tensor`).
    """
    n = work.context
    gathered = _all(cluster, work, work.heads)
    numbers = work.tokens * work.heads * work.head_size / work.tensor
    merges = (n - 1) * numbers / compute.memory_speed(cluster)
    return gathered + MERGE * merges, gathered + n * _message(cluster, work, work.heads, 4) + MERGE_BACK * merges


def _all(cluster: Cluster, work: Work, heads: Column) -> Column:
    """Seconds until every rank has the keys and values of all; layers wait for that."""
    count = work.context * 2 * heads * _local(work)
    return network.all_gather(cluster, count, work.context, work.tensor, in_pass=True)


def _message(cluster: Cluster, work: Work, heads: Column, element: Column) -> Column:
    """Seconds that the keys and values of one rank take to the next."""
    speed, latency = network.innermost(cluster, work.context * work.tensor)
    return latency + 2 * heads * _local(work) / work.element * element / speed


def _local(work: Work) -> Column:
    """Bytes of one head's keys on one rank."""
    return work.tokens * work.head_size / work.tensor * work.element
