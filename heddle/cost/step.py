"""What one microbatch takes in a layer and at the two ends of the model, and what a step takes once: closed form and
event replay both add up these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, NamedTuple

import numpy as np

from heddle.cost import compute, context, experts, latent, memory, network
from heddle.cost.network import hidden
from heddle.cost.work import Work
from heddle.schedule.rule import C, Column
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import Recompute


class LayerCost(NamedTuple, Generic[C]):
    """Seconds of one microbatch in one layer of one rank; all but `weight` include `tensor` and `context`."""

    forward: C
    backward: C
    again_full: C  # doing the forward once more
    again_selective: C  # doing its attention core once more
    again_elementwise: C  # doing what lies between its products once more
    again_per_op: C  # doing every second matrix product once more
    tensor_forward: C  # of these, collectives along the tensor axis that nothing hides
    tensor_backward: C
    tensor_again: C  # of `again_full`
    context_forward: C  # and what attention waits for where ranks share tokens; the same in every repetition
    context_backward: C
    expert_forward: C  # and tokens on their way to the experts of other ranks and back; the same in every repetition
    expert_backward: C
    weight: C  # of the backward, what makes weight gradients

    def again(self, word: Recompute) -> C | float:
        """What a layer's backward repeats that recomputes so."""
        if word == "none":
            return 0.0
        if word == "full":
            return self.again_full
        return self.again_selective if word == "selective" else self.again_elementwise


def recompute_seconds(work: Work, cost: LayerCost[Column]) -> Column:
    """What a backward repeats of its forward, as a mean over layers."""
    return work.full * cost.again_full + partly_recomputed(work, cost)


def partly_recomputed(work: Work, cost: LayerCost[Column]) -> Column:
    """Of that what layers repeat that do not recompute everything."""
    seconds: Column = 0.0
    for share, again in (
        (work.selective, cost.again_selective),
        (work.elementwise, cost.again_elementwise),
        (work.per_op, cost.again_per_op),
    ):
        if np.any(share):
            seconds = seconds + share * again
    return seconds


def layer_cost(cluster: Cluster, work: Work) -> LayerCost[Column]:
    """One layer, tensor-parallel collectives included."""
    cost = compute.layer(cluster, work)
    tensor = tensor_exchange(cluster, work)
    # The sum of a linear layer's input gradients runs beside the product for its weight gradient, which is half of the
    # backward; of a forward nothing can, unless products are cut into pieces that are sent while others are made.
    # Under sequence parallelism a backward also begins by gathering the output's gradient, which nothing can hide.
    # Gathers and scatters go in pieces, all-reduces do not.
    in_pieces = work.tensor_overlap * work.sequence_parallel
    forward_tensor = tensor - in_pieces * hidden(cluster, tensor, cost.forward)
    if np.any(np.greater(work.tensor_chunks, 1)):
        chunked, exposed = _in_chunks(cluster, work, tensor)
        forward_tensor = np.where(np.greater(work.tensor_chunks, 1), exposed, forward_tensor)
        cost = cost._replace(forward=np.where(np.greater(work.tensor_chunks, 1), chunked, cost.forward))
    movable = tensor * np.where(work.sequence_parallel, 0.5, 1.0)
    whole: Column = tensor
    if np.any(work.own_sums):  # two gathers, and a sum for each product that reads the input of attention or MLP
        whole = tensor * np.where(work.own_sums * work.sequence_parallel, (2 + 3 + 1 + work.gated) / 4, 1.0)
    backward_tensor = whole - (1 - work.waits_backward) * hidden(cluster, movable, cost.backward / 2)
    if np.any(work.tensor_overlap):  # in pieces, the rest runs beside the products that make the inputs' gradients
        in_pieces = np.where(work.waits_backward > 0, 0.0, in_pieces)
        backward_tensor = backward_tensor - in_pieces * hidden(cluster, backward_tensor, cost.backward / 2)
    tensor_again = forward_tensor * (1 - work.stops_early / 2)
    there: Column = 0.0
    back: Column = 0.0
    if np.any(work.context > 1):
        there, back = context.exchange(cluster, work, cost.core)
        cost = cost._replace(forward=cost.forward + there, backward=cost.backward + back, core=cost.core + there)
    dispatch: Column = 0.0
    collect: Column = 0.0
    if np.any(work.expert > 1):
        dispatch, collect = experts.exchange(cluster, work)
        if np.any(work.expert_overlap):
            left = experts.beside_another(cluster, work, dispatch + collect, cost.forward + cost.backward)
            dispatch, collect = dispatch * left, collect * left
        cost = cost._replace(forward=cost.forward + dispatch, backward=cost.backward + collect)
    spared = work.stops_early * cost.last + work.keeps_qkv * cost.first
    floor = compute.launches(cluster, work)
    # a device that starts its own kernels cannot do so while it computes
    at_least = np.add if cluster.device.host else np.maximum
    backward = at_least(cost.backward + backward_tensor, 2 * floor)
    ahead = 1 + work.reference  # a reference sees every microbatch first
    return LayerCost(
        forward=ahead * at_least(cost.forward + forward_tensor, floor),
        backward=backward,
        again_full=at_least(cost.forward - spared + tensor_again, floor),
        again_selective=cost.core,
        # about half of a layer's kernels are no products; experts of other ranks are sent their tokens once more
        again_elementwise=at_least(cost.around + dispatch, floor / 2),
        again_per_op=cost.half,
        tensor_forward=ahead * forward_tensor,
        tensor_backward=backward_tensor,
        tensor_again=tensor_again,
        context_forward=there,
        context_backward=back,
        expert_forward=dispatch,
        expert_backward=collect,
        weight=cost.weight * backward / (cost.backward + backward_tensor),  # starting its kernels takes its share
    )


def _in_chunks(cluster: Cluster, work: Work, tensor: Column) -> tuple[Column, Column]:
    """A forward whose products are made chunk by chunk, and what of its exchange nothing hides.

    Smaller products are less efficient, every chunk's collective has its own start, and one chunk stands alone.
    """
    chunks = work.tensor_chunks
    forward = chunks * compute.layer(cluster, replace(work, microbatch=work.microbatch / chunks)).forward
    starts = (chunks - 1) * np.where(work.sequence_parallel, 4, 2) * cluster.efficiency.collective_us * 1e-6
    early = 1 - 1 / chunks
    return forward, tensor + starts - hidden(cluster, early * tensor, early * forward)


def tensor_exchange(cluster: Cluster, work: Work) -> Column:
    """Collectives along the tensor axis in one pass through one layer.

    Two all-reduces of the activations (Megatron-LM, PTD-P §2.3); under sequence parallelism two pairs of all-gather
    and reduce-scatter, which move the same bytes (arXiv 2205.05198 §4.2.2). The gather that its backward repeats
    runs beside a matrix product. Between nodes these wait in the middle of a pass, as ZeRO's gathers do.
    """
    count = work.tokens * work.hidden * work.element
    whole = network.all_reduce(cluster, count, work.tensor)
    pairs = 2 * network.all_gather(cluster, count, work.tensor, in_pass=True)
    pairs = pairs * (3 + latent.entering(work)) / 4
    both: Column = 2.0
    if np.any(work.whole_experts):  # only shared experts need all tokens; slices of others' output are gathered
        shared = (work.deferrable > 0) + np.where(work.sequence_parallel, 0.0, 0.5)
        both = np.where(work.whole_experts * (work.experts > 0), 1 + shared, 2.0)
    return both * np.where(work.sequence_parallel, pairs, whole) + _adapter_exchange(cluster, work)


def _adapter_exchange(cluster: Cluster, work: Work) -> Column:
    """What travels between A and B: `rank` numbers of each token, for each adapter one way or the other."""
    if not np.any(work.frozen):
        return 0.0
    each = network.all_reduce(cluster, work.tokens * work.rank * work.element, work.tensor)
    places = (work.adapters_qkv > 0) + (work.adapters_out > 0) + work.adapters_up + (work.adapters_down > 0)
    return np.where(work.tensor > 1, work.frozen * places / 2 * each, 0.0)


def shard_exchange(cluster: Cluster, work: Work, parameters: Column, frozen: Column = 0.0) -> Column:
    """What ZeRO 2 and 3 communicate for every microbatch: parameters gathered for use, gradients summed into shards.

    ZeRO-3 gathers for the forward and for the backward (arXiv 1910.02054 §7; PyTorch FSDP, arXiv 2304.11277 §3.2),
    ZeRO-2 once for all microbatches of a step, which `_gathered_once` adds. `frozen`: bytes of weights that nobody
    updates, which ZeRO-3 gathers as well.
    """
    if not np.any(work.zero >= 2):
        return 0.0
    alone = work.pipeline == 1
    gathers = np.where(work.zero == 3, 2 + alone * work.regather * (work.full > 0), 0)
    sums = np.where(work.sums_once, 1 / work.microbatches, 1.0)
    count = parameters * (gathers * work.element + sums * work.reduce_bytes)
    if np.any(frozen):
        count = count + np.where(work.zero == 3, gathers * frozen, 0.0)
    turns = (gathers + sums) * (np.floor(work.layers / work.pipeline) + alone)  # layer by layer, and the ends
    seconds = network.replica_rings(cluster, work, count, turns, in_pass=True)
    if np.any(work.large_gathers):
        whole = network.replica_rings(cluster, work, count, turns)
        seconds = np.where(work.large_gathers, whole, seconds)
    if np.any(groups := work.replicas > work.sharing):
        often = np.where(work.groups_once, 1 / work.microbatches, sums)
        seconds = seconds + np.where(groups, often * _between_groups(cluster, work, parameters), 0.0)
    return np.where(work.zero >= 2, seconds, 0.0)


def _between_groups(cluster: Cluster, work: Work, parameters: Column) -> Column:
    """Where fewer replicas share than there are: their shards of gradients, summed over the groups, layer by layer."""
    groups, stride = work.replicas / work.sharing, work.tensor * work.sharing
    speed, turn, _ = network.ring_of(cluster, groups, stride)
    layers = np.floor(work.layers / work.pipeline)
    return 2 * layers * turn + 2 * (groups - 1) / groups * parameters / work.sharing * work.reduce_bytes / speed


def data_exchange(cluster: Cluster, work: Work, parameters: Column) -> Column:
    """What replicas communicate once per step: gradients summed, with ZeRO-1 into shards, then parameters gathered."""
    _, summed, gathered = replicas_exchange(cluster, work).seconds(parameters)
    return summed + gathered


def exposed_exchange(
    cluster: Cluster, work: Work, parameters: Column, beside: Column, exchange: Exchange | None = None
) -> Column:
    """Of that what nothing hides, where the step's last backward takes `beside` seconds.

    Gradients go bucket by bucket while the backward makes the next, and the last one has nothing to hide behind. The
    gather hides behind the next forward, about half as long as a backward, and the first part is waited for.
    `exchange`: what replicas exchange, where it is known.
    """
    of = exchange or replicas_exchange(cluster, work)
    count, summed, gathered = of.seconds(parameters)
    early = 1 - 1 / count
    exposed = summed - work.data_overlap * hidden(cluster, early * summed, beside)
    exposed = exposed + gathered - of.gathers_later * hidden(cluster, early * gathered, of.gathers_beside * beside)
    if not np.any(work.zero == 2):
        return exposed
    kept = _gathered_once(cluster, work, parameters)
    return exposed + kept - work.data_overlap * hidden(cluster, kept, beside)


def _gathered_once(cluster: Cluster, work: Work, parameters: Column) -> Column:
    """Weights that ZeRO-2 gathers once per step and keeps, layer by layer."""
    turns = np.floor(work.layers / work.pipeline) + (work.pipeline == 1)
    seconds = network.replica_rings(cluster, work, parameters * work.element, turns, in_pass=True)
    return np.where(work.zero == 2, seconds, 0.0)


class Exchange(NamedTuple):
    """A reduce-scatter of gradients, then a gather of these, or with ZeRO-1 of parameters: both in as many pieces."""

    pieces: Column  # at least
    pieces_each: Column  # and for each parameter
    start: Column  # seconds of a piece without any bytes
    start_short: Column  # the same for pieces that are too short to make up for it
    summed: Column  # seconds of a parameter's gradient
    gathered: Column
    gathers_later: Column  # 1: the gather runs beside a pass
    gathers_beside: Column  # of which, relative to a backward
    gather_start: Column = 1.0  # seconds of a piece of the gather without any bytes, relative to one of the sum
    broadcasts: Column = 0.0  # pieces of the gather, where each is a broadcast of its own; 0: as many as of the sum
    first_slice: Column = 0.0  # seconds that each of these takes beside its bytes

    def seconds(self, parameters: Column) -> tuple[Column, Column, Column]:
        """Pieces, and seconds of the first and the second half, for so many parameters of a rank."""
        pieces = self.pieces + parameters * self.pieces_each
        summed, gathered = parameters * self.summed, parameters * self.gathered
        # each half goes the quicker way: long pieces at full speed, short ones with quick hops
        long, short = pieces * self.start, pieces * self.start_short
        slower = 1 / network.QUICK_SPEED
        gathers = np.minimum(long * self.gather_start + gathered, short * self.gather_start + slower * gathered)
        if np.any(self.broadcasts):
            gathers = np.where(self.broadcasts, self.broadcasts * self.first_slice + gathered, gathers)
        return pieces, np.minimum(long + summed, short + slower * summed), gathers


def replicas_exchange(cluster: Cluster, work: Work) -> Exchange:
    """What replicas exchange once per step; of those that meet after several steps, each step's part of it.

    Those that share experts sum the gradients of these among fewer ranks, which sit further apart.
    """
    of_all = _exchange_among(cluster, work, work.replicas, work.tensor)
    if not np.any(work.expert > 1) and not np.any(work.whole_experts):
        return of_all
    same = work.replicas * work.expert_copies / work.expert
    of_experts = _exchange_among(cluster, work, same, work.expert_stride)
    share = work.expert_held
    return Exchange(*((1 - share) * one + share * other for one, other in zip(of_all, of_experts, strict=True)))


def _exchange_among(cluster: Cluster, work: Work, replicas: Column, stride: Column) -> Exchange:
    """Among so many replicas that sit so far apart."""
    size = np.maximum(work.bucket_bytes, work.piece_bytes * replicas)
    tensors = (12 - 5 * work.gated) * work.layers / work.pipeline  # weights, biases and norms of its layers
    speed, start, start_short = network.ring_of(cluster, replicas, stride)
    several = (replicas > 1) & (work.zero <= 1)
    each = np.where(several, 1 / np.maximum(work.local_steps, 1), 0.0)
    moved = each * (replicas - 1) / replicas / speed
    summed: Column = moved * work.reduce_bytes
    if np.any(work.sums_whole):  # a sum that everybody gets goes round twice, though each keeps a share of it
        summed = summed * np.where(work.zero == 1, 1 + work.sums_whole, 1)
    gathered: Column = moved * np.where(work.zero == 0, work.reduce_bytes, work.element)
    near: Column = 1.0
    if np.any((work.replicas > work.sharing) & (work.zero == 1)):
        summed, gathered, near = _within_groups(cluster, work, each, start, summed, gathered)
    return Exchange(
        pieces=1 + np.where(size > 0, 0.0, tensors),  # 0 bytes per bucket: one for every parameter tensor
        pieces_each=np.where(size > 0, work.reduce_bytes / np.maximum(size, 1), 0.0),
        start=each * start,
        start_short=each * start_short,
        summed=summed,
        gathered=gathered,
        gathers_later=np.where(work.zero == 1, work.gather_overlap, work.data_overlap),
        gathers_beside=np.where(work.zero == 1, 0.5, 1.0),
        broadcasts=work.broadcasts * np.where(work.zero == 1, np.minimum(work.sharing, 1 + tensors), 0.0),
        gather_start=near,
        first_slice=(
            network.first_slice(cluster, work.sharing, work.tensor) + cluster.efficiency.collective_us * 1e-6
            if np.any(work.broadcasts)
            else 0.0
        ),
    )


def _within_groups(
    cluster: Cluster, work: Work, each: Column, start: Column, summed: Column, gathered: Column
) -> tuple[Column, Column, Column]:
    """The same where ZeRO-1 shares within groups of replicas: seconds of a parameter's sum, of its gather, and how long
    a piece of the gather takes to start, relative to `start`. Shards are summed over the groups; gathers stay in one.
    """
    groups = (work.replicas > work.sharing) & (work.zero == 1)
    speed, first, _ = network.ring_of(cluster, work.sharing, work.tensor)
    inside = each * (work.sharing - 1) / work.sharing / speed
    across = np.where(groups, work.replicas / work.sharing, 1)
    between, _, _ = network.ring_of(cluster, across, work.tensor * work.sharing)
    apart = (inside + each * 2 * (across - 1) / across / work.sharing / between) * work.reduce_bytes
    summed = np.where(groups & np.equal(work.sums_whole, 0), apart, summed)
    return summed, np.where(groups, inside * work.element, gathered), np.where(groups, first / start, 1.0)


def message(cluster: Cluster, work: Work, forward: Column, whole: Column | None = None) -> Column:
    """Seconds that a rank gives to one message between stages; `forward`: of one layer, which it may hide behind.

    With several chunks per rank a message goes while another chunk computes (overlap_p2p_comm of Megatron-LM); with one
    it is what the next action waits for. `whole`: of the message itself, where it is known.
    """
    whole = network.between_stages(cluster, work) if whole is None else whole
    if not np.any(work.pipeline_overlap):
        return whole
    beside = forward * work.layers / (work.pipeline * work.virtual)
    return whole - np.where(work.virtual > 1, work.pipeline_overlap, 0.0) * hidden(cluster, whole, beside)


def slowdown(cluster: Cluster, work: Work) -> Column:
    """How much longer a step takes because somebody is always late, and more so among more nodes.

    The largest of n delays with spread σ is about σ·sqrt(2 ln n) above their mean (Cramér 1946, §28.6).
    """
    spread: Column = np.sqrt(2 * np.log(np.maximum(network.nodes(cluster, work), 1)))
    return 1 + cluster.efficiency.jitter * spread


def pace(cluster: Cluster, working: Column) -> Column:
    """How fast a device is while so many of its node work, relative to when all do; 1 where none share a core."""
    if cluster.cores is None or cluster.cores >= cluster.devices:
        return 1.0
    return cluster.devices / np.clip(working, cluster.cores, cluster.devices)


class Split(NamedTuple):
    """What follows from the degrees of a split and the level of ZeRO."""

    first_end: Column  # parameters of the first rank beside its layers
    last_end: Column
    states: memory.StateBytes
    exchange: Exchange
    sharing: Column  # ranks that share the optimizer
    slowdown: Column


def split_of(work: Work, cluster: Cluster) -> Split:
    """The same for all plans with these degrees."""
    alone = work.pipeline == 1
    return Split(
        first_end=memory.end_parameters(work, True, alone),
        last_end=memory.end_parameters(work, alone, True),
        states=memory.state_bytes(work),
        exchange=replicas_exchange(cluster, work),
        sharing=np.where(work.zero >= 1, work.sharers, 1),
        slowdown=slowdown(cluster, work),
    )
