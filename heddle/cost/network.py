"""Seconds of communication: messages and collectives over a hierarchy of links, latency + bytes / bandwidth.

Ranks are laid out tensor first, then data, then pipeline, so a group is `size` ranks that lie `stride` apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from heddle.cost.work import Work
from heddle.schedule.rule import Column, Mask
from heddle.spec.cluster import Cluster, Link

# NCCL's protocol LL128 beside Simple: latency of a hop of a ring over a network (4 of 14 us), and of the bandwidth what
# is left with several ranks in a node (src/graph/tuning.cc)
QUICK_HOP, QUICK_SPEED = 4.0 / 14.0, 0.92
# What a rank passes on at once in a broadcast: an eighth of a channel's buffer of 4 MiB (NCCL_STEPS and
# BROADCAST_CHUNKSTEPS, src/include), over four channels, one for each network card of a node, or a pair of them
SLICE = 4 * (4 << 20) / 8


def point_to_point(cluster: Cluster, count: Column, span: Column) -> Column:
    """Seconds of a message of `count` bytes between two ranks of a group that spans that many devices."""
    speed, latency = innermost(cluster, span)
    return np.where(span > 1, latency + count / speed, 0.0)


def all_gather(cluster: Cluster, count: Column, size: Column, stride: Column = 1, in_pass: bool = False) -> Column:
    """Seconds until every rank has all `count` bytes, of which each began with its share.

    A ring moves (n-1)/n of the bytes past every rank (Patarasuk and Yuan 2009; PTD-P §3.2). The same holds, backwards,
    for a reduce-scatter. `in_pass`: one that layers wait for, which between nodes is no faster than
    the many small pieces that it is made of, however fast the link.
    """
    return rings(cluster, count, 1, size, stride, in_pass)


reduce_scatter = all_gather


def rings(
    cluster: Cluster, count: Column, turns: Column, size: Column, stride: Column = 1, in_pass: bool = False
) -> Column:
    """Seconds of several collectives over the same ring, which go round it so often and move `count` bytes together."""
    speed, hops = _ring(cluster, size, stride, in_pass)
    seconds = turns * (cluster.efficiency.collective_us * 1e-6 + hops) + (size - 1) / size * count / speed
    return np.where(size > 1, seconds, 0.0)


def replica_rings(cluster: Cluster, work: Work, count: Column, turns: Column, in_pass: bool = False) -> Column:
    """The same over the replicas of what a rank holds: of its experts there are fewer, and they sit further apart."""
    seconds = rings(cluster, count, turns, work.sharing, work.tensor, in_pass)
    if not np.any(work.expert > 1) and not np.any(work.whole_experts):
        return seconds
    of_experts = rings(cluster, count, turns, work.expert_replicas, work.expert_stride, in_pass)
    return (1 - work.expert_held) * seconds + work.expert_held * of_experts


# Of the speed of rings, what an all-to-all of NCCL reaches: 0.597 beside 0.742, 0.674 and 0.673 of the links of a B200
# (SimuMax, b200_bf16_ceperm). Gloo's is as fast as its rings.
ALL_TO_ALL = 0.86
AT_ONCE = 8  # messages of an all-to-all that a rank has under way: one over each of a node's ways out


def all_to_all(
    cluster: Cluster, count: Column, size: Column, stride: Column = 1, crossing: Column | None = None
) -> Column:
    """Seconds until every rank has given each its part of `count` bytes.

    What stays inside a node goes over its links, what leaves it over the rank's own network card, both at once.
    `crossing`: of what is for other nodes, the share that goes there, where equal parts for one node go once and its
    own links spread them; 0: all goes by itself. Such kernels are as fast as rings: on H800, 153 to 158 of NVLink's
    200 GB/s and 43 to 51 of InfiniBand's 50 (deepseek-ai/DeepEP, README).
    """
    by_node = np.greater(crossing, 0) if crossing is not None else False
    share = 1.0 if cluster.device.host else np.where(by_node, 1.0, ALL_TO_ALL)
    slowest: Column = 0.0
    waits: Column = 0.0
    near: Column = 1.0  # ranks of the group that the links so far join
    for link in cluster.links:
        reached = size
        if link.devices is not None:
            reached = np.minimum(np.maximum(np.floor(link.devices / stride), near), size)
        others = reached - near
        part = others / size
        if crossing is not None:
            between = link.devices is None or link.devices > cluster.devices
            part = np.where(by_node, part * crossing if between else others / reached, part)
        slowest = np.maximum(slowest, part * count / (_speed(link) * share))
        waits = waits + np.ceil(others / AT_ONCE) * link.latency_us * 1e-6
        near = reached
    return np.where(size > 1, cluster.efficiency.collective_us * 1e-6 + waits + slowest, 0.0)


def ring_of(cluster: Cluster, size: Column, stride: Column) -> tuple[Column, Column, Column]:
    """Bytes per second past each rank of a ring, and the seconds of one turn without any bytes: for long, for short.

    NCCL sends short pieces in lines of 128 bytes that carry their own flags: a hop is quicker, and the bandwidth less.
    """
    speed, hops = _ring(cluster, size, stride)
    start = cluster.efficiency.collective_us * 1e-6
    return speed, start + hops, start + hops * (1.0 if cluster.device.host else QUICK_HOP)


def all_reduce(cluster: Cluster, count: Column, size: Column, stride: Column = 1) -> Column:
    """Seconds until every rank has the sum: a reduce-scatter and an all-gather, in one start.

    Latency is a ring's or a tree's, whichever is less: NCCL chooses, too.
    """
    speed, hops = _ring(cluster, size, stride)
    _, latency = innermost(cluster, size * stride)
    tree = 2 * np.ceil(np.log2(np.maximum(size, 1))) * latency
    seconds = cluster.efficiency.collective_us * 1e-6 + np.minimum(2 * hops, tree)
    return np.where(size > 1, seconds + 2 * (size - 1) / size * count / speed, 0.0)


def between_stages(cluster: Cluster, work: Work) -> Column:
    """Seconds that a rank gives to sending one microbatch's activations, or their gradients, to its neighbor.

    With scatter/gather each tensor rank sends its own slice, and the receivers gather the slices over their faster
    links (PTD-P §4.1). Under sequence parallelism activations are slices already. The sender waits for the message to
    leave, as Megatron-LM's does; so a message costs both ends its time. Where only one of two stages sends at a time,
    one going the other way costs as much again.
    """
    whole = work.tokens * work.hidden * work.element
    sent = work.tokens * work.hidden * work.message_bytes
    span = work.world
    slices = np.where(work.scatter, work.tensor, 1)
    gathers = (slices > 1) & np.equal(work.sequence_parallel, 0)
    gather = np.where(gathers, all_gather(cluster, whole, work.tensor, in_pass=True), 0.0)
    wakes = cluster.efficiency.message_us * 1e-6
    turns = 2 - work.both_ways
    return np.where(work.pipeline > 1, wakes + turns * point_to_point(cluster, sent / slices, span) + gather, 0.0)


def hidden(cluster: Cluster, communication: Column, beside: Column) -> Column:
    """Seconds of communication that disappear beside that much compute.

    What runs side by side slows each other down, over memory bandwidth and processors; `overlap` is the share of the
    shorter of the two that is truly gained (as the overlap coefficients of Galvatron, arXiv 2211.13878 §4).
    """
    return cluster.efficiency.overlap * np.minimum(communication, beside)


def nodes(cluster: Cluster, work: Work) -> Column:
    """Nodes that a plan reaches over."""
    return np.ceil(work.world / cluster.devices)


def _speed(link: Link) -> float:
    return link.gbs * 1e9 * link.efficiency


def innermost(cluster: Cluster, span: Column) -> tuple[Column, Column]:
    """Bytes per second and seconds of latency of the innermost link that joins `span` neighboring devices."""
    if not cluster.links:
        return np.inf, 0.0
    outermost = cluster.links[-1]
    speed: Column = _speed(outermost)
    latency: Column = outermost.latency_us * 1e-6
    for link in reversed(cluster.links[:-1]):
        inside = span <= (link.devices or np.inf)
        speed = np.where(inside, _speed(link), speed)
        latency = np.where(inside, link.latency_us * 1e-6, latency)
    return speed, latency


class _Hops(NamedTuple):
    """Of a ring's hops, those over one link."""

    link: Link
    leaves: Mask  # whether any are
    number: Column
    together: Column  # rings that run side by side over it, one over each rank's own network card
    between: bool  # nodes


def _over_links(cluster: Cluster, size: Column, stride: Column) -> Iterator[_Hops]:
    """All hops of a ring, link by link, from the innermost on.

    Of a group's ranks, those inside one node share its links to other nodes.
    """
    # devices that the links so far join, and of the ring's ranks how many such groups there are
    inner, groups = 1, size
    span = size * stride
    for link in cluster.links:
        together = 1.0 if inner == 1 else np.minimum(np.maximum(np.floor(inner / stride), 1), size)
        leaves = span > np.maximum(inner, stride)
        reached = size
        if link.devices is not None:
            reached = np.minimum(np.maximum(np.floor(link.devices / stride), together), size)
        # a ring visits every rank: of its n - 1 hops those between groups that this link joins go over it
        after = np.ceil(size / reached)
        between = link.devices is None or link.devices > cluster.devices
        yield _Hops(link, leaves, np.where(leaves, groups - np.maximum(after, 1), 0.0), together, between)
        groups = np.where(leaves, after, groups)
        inner = link.devices or inner


def _ring(cluster: Cluster, size: Column, stride: Column, in_pass: bool = False) -> tuple[Column, Column]:
    """Bytes per second that pass every rank of a ring, and the latency of one turn."""
    speed: Column = np.inf
    turn: Column = 0.0
    for link, leaves, number, together, between in _over_links(cluster, size, stride):
        most = cluster.efficiency.gather_gbs * 1e9 if in_pass and between else np.inf
        speed = np.where(leaves, np.minimum(speed, min(_speed(link), most) * together), speed)
        turn = turn + number * link.latency_us * 1e-6
    return speed, turn


def first_slice(cluster: Cluster, size: Column, stride: Column) -> Column:
    """Seconds until the first slice of a broadcast has gone from rank to rank: each passes whole slices on.

    Where everybody has something to send, as in gathers and sums, nobody waits for that.
    """
    seconds: Column = 0.0
    for link, _, number, _, between in _over_links(cluster, size, stride):
        seconds = seconds + number * SLICE / (_speed(link) * (cluster.devices if between else 1))
    return seconds
