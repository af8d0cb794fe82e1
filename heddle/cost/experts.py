"""Seconds and bytes of experts in place of an MLP, as `heddle.models.experts` computes them.

A layer's `ffn` is the width that a token is computed with, so that whatever is said of an MLP's inside holds of the
chosen and the shared experts, too. What is said here comes on top of it.
"""

from __future__ import annotations

import numpy as np

from heddle.cost import network
from heddle.cost.work import Work
from heddle.schedule.rule import Column
from heddle.spec.cluster import Cluster

KERNELS = 26  # that a layer starts more, forward: scores, choice, sorting, two permutations, three grouped products
# Grouped products beside batched ones: at most so much longer, and rows that make up for it, for products with weights
# and for their gradients; medians of 108 products of 128 to 8,192 rows measured on a B200 (SimuMax, b200_bf16_ceperm).
GROUPED, GROUPED_WEIGHT = (0.5, 150.0), (1.7, 500.0)
# of the speed of other passes over a GPU's memory: 0.501 and 0.511 beside 0.666 of the bandwidth, same table
PERMUTED = 0.76
PASSES = 7  # kernels that only move bytes: scores and choice, two permutations each way, and the sums
ALIGNED = 16  # rows: a part of a tile of the grouped products
NUMBER = 8  # bytes of an expert's or a row's number
SCALED = 1 + 4 / 128  # bytes of a number in 8 bits, with a scale for each 128 (DeepSeek-V3, arXiv 2412.19437 §3.3.2)


def rows_of_an_expert(work: Work) -> tuple[Column, Column]:
    """How many experts of the fullest rank have tokens, and how many rows each of them has."""
    rows = work.routed_tokens * work.top_k * work.imbalance
    used = np.maximum(np.minimum(work.experts / work.expert, rows), 1)
    return used, np.ceil(rows / used / ALIGNED) * ALIGNED  # blocks of any height load as well as aligned ones


def grouped(rows: Column, most: float, half: float) -> Column:
    """How much longer a product takes in groups of so many rows than a batch of equal ones."""
    return 1 + np.minimum(most, half / rows)


def exchange(cluster: Cluster, work: Work) -> tuple[Column, Column]:
    """Seconds of rows on their way to the experts of other ranks and back, in a forward and in a backward.

    The fullest rank is waited for. Before, all tell each other how many rows will come.
    """
    rows = work.routed_tokens * work.top_k * work.imbalance * work.hidden
    stride = work.tensor / work.expert_copies
    crossing = None
    if np.any(work.expert_by_node):
        crossing = np.where(work.expert_by_node, nodes_of_a_token(cluster, work, stride) / work.top_k, 0.0)

    def journey(element: Column) -> Column:
        return network.all_to_all(cluster, rows * element, work.expert, stride, crossing)

    there_and_back = 2 * journey(work.element)
    if np.any(work.dispatch_fp8 * work.fp8):
        short = journey(SCALED) + journey(work.element)
        there_and_back = np.where(work.dispatch_fp8 * work.fp8, short, there_and_back)
    counts = network.all_to_all(cluster, work.experts * NUMBER, work.expert, stride)
    on = np.greater(work.experts, 0) & np.greater(work.expert, 1)
    return np.where(on, there_and_back + counts, 0.0), np.where(on, there_and_back, 0.0)


def nodes_of_a_token(cluster: Cluster, work: Work, stride: Column) -> Column:
    """Nodes that have experts of one token, as a mean: those of its groups, where the router limits it to some.

    Of c equally probable nodes, k choices reach c (1 - (1 - 1/c)^k).
    """
    nodes = np.maximum(np.ceil(work.expert * stride / cluster.devices), 1)
    groups = np.maximum(work.router_groups, 1)
    limited = np.ceil(nodes * np.where(work.router_groups, work.router_top_groups / groups, 1.0))
    reached: Column = limited * (1 - np.power(1 - 1 / limited, work.top_k))
    return reached


def beside_another(cluster: Cluster, work: Work, exchange: Column, compute: Column) -> Column:
    """Of the exchange of both passes, the share that is left where another microbatch computes beside it.

    DualPipe: a forward and a backward run as one, and each hides the other's exchange (arXiv 2412.19437 §3.2.1). What
    the first and the last microbatches of a pipeline have nobody to hide behind is not counted.
    """
    hidden = work.expert_overlap * np.greater(work.microbatches, 1) * network.hidden(cluster, exchange, compute)
    return 1 - hidden / np.maximum(exchange, 1e-12)


def moved(work: Work) -> tuple[Column, Column]:
    """Bytes that scoring, choosing and permuting read and write, forward and backward.

    Forward: scores are made, normalized and looked through; rows are copied to their experts, what these make is copied
    back, and added up. Backward each copy is a sum, whose memory is cleared first.
    """
    tokens, h, e = work.routed_tokens, work.hidden, work.element
    scores = tokens * work.experts * 4
    rows = tokens * work.top_k * h * e
    widened = tokens * h * (e + 4) if e < 4 else 0.0  # the router's input in full precision
    gate = work.shared_gate * tokens * h * e
    sorted_anew = np.where(np.greater(work.expert, 1), work.imbalance * rows, 0.0)  # what came from other ranks
    forward = 4 * scores + 5 * rows + tokens * h * e + widened + 4 * gate + 4 * sorted_anew
    backward = 4 * scores + 9 * rows + 2 * tokens * h * e + widened + 5 * gate + 8 * sorted_anew
    if np.any(work.fused_permute):  # rows are read and written once each way, and once more where they are sorted anew
        once = 4 * scores + 3 * rows + 2 * tokens * h * e + 4 * gate + 4 * sorted_anew
        forward, backward = (np.where(work.fused_permute, once, each) for each in (forward, backward))
    on = work.experts > 0
    return np.where(on, forward, 0.0), np.where(on, backward, 0.0)


def kept(work: Work) -> Column:
    """Bytes that one microbatch leaves in a layer on top of an MLP's.

    The rows that experts read, and what they make of them in the order of the tokens; the router's input in full
    precision, its probabilities, its scores where their loss is wanted; numbers and weights of the chosen.
    """
    tokens, h, e, k = work.routed_tokens, work.hidden, work.element, work.top_k
    widened = h * 4 if e < 4 else 0.0
    scores = (1 + work.z_loss) * work.experts * 4
    chosen = k * (3 * NUMBER + 2 * 4 + (e if e < 4 else 0))
    chosen = chosen + np.where(np.greater(work.expert, 1), 2 * NUMBER * k * work.imbalance, 0.0)
    gate = work.shared_gate * (h * e + e)
    # an MLP keeps a slice of its input under sequence parallelism; the router and shared experts keep it whole
    whole = np.where(work.sequence_parallel * (1 - work.whole_experts), h * e * (1 - 1 / work.tensor), 0.0)
    if e < 4 and not np.any(work.fused_permute):  # a router that reads a copy keeps no other; an MLP's is then nobody's
        whole = np.where(work.deferrable > 0, whole, -h * e / np.where(work.sequence_parallel, work.tensor, 1))
    made = np.where(work.fused_permute, 0.0, k * h * e + widened)  # rows as experts made them, and the router's copy
    read = work.imbalance * k * h * e
    return np.where(work.experts > 0, tokens * (read + made + scores + chosen + gate + whole), 0.0)


def moment(work: Work) -> Column:
    """Numbers that a layer's backward holds for a moment on top of an MLP's.

    At the experts' last product: the gradient of what they made, in the order of experts, and of all their matrices
    rather than of one.
    """
    rows = work.routed_tokens * work.top_k * work.hidden * work.imbalance
    of_experts = work.all_experts / work.expert * work.expert_copies
    weights = (1 - work.adds_in_place) * work.hidden * (of_experts - work.ffn) / work.tensor
    return np.where(work.experts > 0, rows + np.maximum(weights, 0.0), 0.0)
