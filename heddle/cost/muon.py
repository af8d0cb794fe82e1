"""What Muon takes beside AdamW's passes over memory: matrices are put together, made orthogonal, and given back."""

from __future__ import annotations

import numpy as np

from heddle.cost import compute, network
from heddle.cost.work import Work
from heddle.schedule.rule import Column
from heddle.spec.cluster import Cluster

ITERATIONS = 5  # of Newton and Schulz, each of three products
TURNS = 4  # messages of a round along an axis, at most: there and back


def layer_matrices(work: Work) -> list[tuple[Column, Column, Column]]:
    """Rows, columns and number of the matrices of a layer, as `heddle.spec.muon` has them."""
    queries, keys, h = work.heads * work.head_size, work.kv_heads * work.head_size, work.hidden
    expert = work.routed / work.top_k
    return [
        (queries, h, 2),
        (keys, h, 2),
        (np.maximum(work.ffn - work.routed, 1), h, (2 + work.gated) * (work.ffn > work.routed)),
        (np.maximum(expert, 1), h, 3 * work.experts / work.expert),
    ]


def one_seconds(cluster: Cluster, work: Work, rows: Column, columns: Column) -> Column:
    """Seconds of one matrix: X Xᵀ, its square, and the product with X, five times over."""
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    precision = "fp32" if work.precision == "fp32" else "bf16"
    gram = compute.matmul(cluster, precision, low, high, low)
    square = compute.matmul(cluster, precision, low, low, low)
    return ITERATIONS * (gram + square + compute.matmul(cluster, precision, low, low, high))


def seconds(cluster: Cluster, work: Work, layers: Column) -> Column:
    """Seconds of a step on a rank of so many layers.

    Ranks that hold parts of the same matrices share the work, matrix by matrix: nobody is done before the largest is.
    What a rank holds of all of them travels to their owners and back, along the replicas that shard the optimizer and
    along the tensor axis.
    """
    if not np.any(work.muon):
        return 0.0
    sharing = np.where(work.zero >= 1, work.sharers, 1)
    ranks = work.tensor * sharing
    kinds = layer_matrices(work)
    each = [one_seconds(cluster, work, rows, columns) for rows, columns, _ in kinds]
    all_of = layers * sum(count * own for (_, _, count), own in zip(kinds, each, strict=True))
    largest = np.max(
        np.broadcast_arrays(*(own * (np.asarray(count) > 0) for (_, _, count), own in zip(kinds, each, strict=True))),
        axis=0,
    )
    computing = np.maximum(all_of / ranks, largest)
    numbers = layers * sum(rows * columns * count for rows, columns, count in kinds)
    moved = 2 * numbers / ranks * (4 if work.precision == "fp32" else 2)
    rounds = np.ceil(layers * sum(count for _, _, count in kinds) / ranks)
    along = network.rings(cluster, moved, TURNS / 2 * rounds, sharing, work.tensor)
    across = network.rings(cluster, moved, TURNS / 2 * rounds, work.tensor)
    whole: Column = work.muon * (computing + along + across)
    return whole
