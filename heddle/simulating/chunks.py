"""What each chunk and each stage of one plan takes: stages may be uneven, and layers differ."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from heddle.cost import compute, muon
from heddle.cost import step as stage
from heddle.cost.layers import Chunk, LayerKind, chunk_layers
from heddle.cost.network import hidden
from heddle.cost.offload import Copies, copies, shard_seconds, update_seconds
from heddle.cost.step import LayerCost
from heddle.cost.work import Work
from heddle.schedule import Kind
from heddle.simulating.stage_memory import bytes_of, frozen_of, of_a_layer, parameters_of, parts_of
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job, PlannedJob
from heddle.spec.layer_memory import Zero
from heddle.spec.plan import Plan, even_stages


class PassCosts(NamedTuple):
    """Seconds of one microbatch's way through a chunk, one direction, and what is part of them."""

    seconds: float
    again: float = 0.0  # recomputing
    tensor: float = 0.0  # collectives along the tensor axis
    tensor_again: float = 0.0  # the same, of `again`
    send: float = 0.0  # the message to the next chunk
    weight: float = 0.0  # weight gradients, which may be made apart
    context: float = 0.0  # keys and values that attention waits for, where ranks share tokens
    context_again: float = 0.0
    expert: float = 0.0  # tokens on their way to the experts of other ranks, and back
    expert_again: float = 0.0
    offload: float = 0.0  # copies to other tiers and back that nothing hides


class ChunkCosts(NamedTuple):
    """Both ways of one microbatch through one chunk."""

    forward: PassCosts
    backward: PassCosts

    def of(self, kind: Kind) -> PassCosts:
        """What an action takes: one way, or one half of the way back."""
        if kind.owes < 0:
            return PassCosts(self.backward.weight)
        if kind.owes > 0:
            return self.backward._replace(seconds=self.backward.seconds - self.backward.weight)
        return self.forward if kind.direction > 0 else self.backward


def chunk_costs(job: Job, plan: Plan, work: Work, cluster: Cluster) -> list[ChunkCosts]:
    """What one microbatch takes in each chunk: the sum over its layers, its end of the model, its messages."""
    shapes = [one for _, one in work.each_shape]
    prices = [priced(cluster, of_a_layer(one)) for one in shapes]
    counts = [count for count, _ in work.each_shape]
    forward = sum(n * price[0].forward for n, price in zip(counts, prices, strict=True)) / sum(counts)
    seconds = float(stage.message(cluster, work, forward))
    message = PassCosts(seconds, send=seconds)

    @cache  # of a hundred chunks most are alike
    def one(layers: Chunk, first: bool, last: bool, onward: bool, homeward: bool) -> ChunkCosts:
        ways = []
        for way, sends in enumerate((onward, homeward)):
            ends = [PassCosts(price[way]) for price, here in zip(prices[0][1:], (first, last), strict=True) if here]
            ends.append(PassCosts(cluster.efficiency.microbatch_us * 1e-6 / 2))
            passes = [(_passes(cluster, shapes[kind.shape], prices[kind.shape][0], kind)[way], n) for kind, n in layers]
            summed = [PassCosts(*(n * value for value in each)) for each, n in passes]
            ways.append(PassCosts(*map(sum, zip(*summed, *ends, *[message] * sends, strict=True))))
        return ChunkCosts(*ways)

    chunks = chunk_layers(job.model, plan)
    return [
        one(
            layers, chunk == 0, chunk == len(chunks) - 1, _apart(plan, chunk, chunk + 1), _apart(plan, chunk, chunk - 1)
        )
        for chunk, layers in enumerate(chunks)
    ]


def _apart(plan: Plan, chunk: int, other: int) -> bool:
    """Whether a chunk has that neighbor, on another rank."""
    return 0 <= other < plan.chunks and (plan.pipeline == 1 or plan.rank_of(chunk) != plan.rank_of(other))


def _passes(cluster: Cluster, work: Work, price: LayerCost[float], kind: LayerKind) -> tuple[PassCosts, PassCosts]:
    """Both ways through one layer."""
    again = price.again(kind.recompute)
    repeated = price.tensor_again * (kind.recompute == "full")
    exchanged = price.context_forward * (kind.recompute in ("selective", "full"))
    moved = layer_copies(cluster, work, kind, (price.forward, price.backward + again))
    onward = PassCosts(
        seconds=price.forward + moved.forward,
        tensor=price.tensor_forward,
        context=price.context_forward,
        expert=price.expert_forward,
        offload=moved.forward,
    )
    return onward, PassCosts(
        seconds=price.backward + again + moved.backward,
        again=again,
        tensor=price.tensor_backward,
        tensor_again=repeated,
        context=price.context_backward,
        context_again=exchanged,
        expert=price.expert_backward,
        expert_again=price.expert_forward * (kind.recompute in ("elementwise", "full")),
        weight=price.weight,
        offload=moved.backward,
    )


def layer_copies(cluster: Cluster, work: Work, kind: LayerKind, passes: tuple[float, float]) -> Copies:
    """What copies add to a layer that offloads; `work`: of its shape."""
    if not kind.memory.offload:
        return Copies()
    held = bytes_of(of_a_layer(work))
    return copies(cluster, work, kind.memory, held.saved[kind.recompute], held.parameters, passes, held.frozen)


def not_compute(chunks: list[ChunkCosts]) -> dict[str, float]:
    """What of all chunks' seconds is not compute, by the name of the item of a step."""
    passes = [way for chunk in chunks for way in chunk]
    return {
        "recompute": sum(way.again - way.tensor_again - way.context_again - way.expert_again for way in passes),
        "tensor": sum(way.tensor + way.tensor_again for way in passes),
        "pipeline": sum(way.send for way in passes),
        "context": sum(way.context + way.context_again for way in passes),
        "expert": sum(way.expert + way.expert_again for way in passes),
        "offload": sum(way.offload for way in passes),
    }


def priced_layer(cluster: Cluster, work: Work) -> LayerCost[float]:
    """Seconds of one layer that recomputes everything; `work`: as if all layers were of its shape."""
    return priced(cluster, of_a_layer(work))[0]


@lru_cache(maxsize=1024)
def priced(cluster: Cluster, work: Work) -> tuple[LayerCost[float], tuple[float, float], tuple[float, float]]:
    """A layer that recomputes everything, the embedding, and the head, both ways: plain numbers; see `of_a_layer`."""
    layer = LayerCost(*map(float, stage.layer_cost(cluster, work)))
    (a, b), (c, d) = compute.embedding(cluster, work), compute.head(cluster, work)
    return layer, (float(a), float(b)), (float(c), float(d))


def step_tail_seconds(
    job: PlannedJob, work: Work, cluster: Cluster, pipe: float, microbatches: int, backward: list[float]
) -> tuple[float, float]:
    """Seconds that replicas' communication adds to a step, and those of the optimizer, on the stage that has most."""
    plan = job.plan
    if plan.by_layer:
        return _tail_by_layer(job, work, cluster, pipe, microbatches, backward)
    most = max(parameters_of(job.model, plan, work))
    each = stage.shard_exchange(cluster, work, most, max(frozen_of(job.model, plan, work)))
    last = sum(backward[chunk] for chunk in plan.chunks_of(0))
    data = microbatches * (each - hidden(cluster, each, pipe / microbatches))
    data = data + stage.exposed_exchange(cluster, work, most, last)
    shared = work.sharers if plan.zero else 1
    aside = cluster.efficiency.step_us * 1e-6 + muon_seconds(job, work, cluster)
    return float(data), float(compute.optimizer(cluster, work, most / shared)) + aside


def _tail_by_layer(
    job: PlannedJob, work: Work, cluster: Cluster, pipe: float, microbatches: int, backward: list[float]
) -> tuple[float, float]:
    """The same where layers shard and offload on their own: stage by stage, a sum over layers."""
    plan, shapes = job.plan, [one for _, one in work.each_shape]
    parts = [[0.0, 0.0, 0.0] for _ in range(plan.pipeline)]  # every microbatch, once, update
    held: list[defaultdict[Zero, float]] = [defaultdict(float) for _ in range(plan.pipeline)]  # parameters, by level
    for rank, kind, parameters, frozen in parts_of(job.model, plan, work):
        zero = kind.memory.zero
        held[rank][zero] += parameters
        each, once = shard_seconds(cluster, work, parameters, kind.memory, frozen) if zero >= 2 else (0.0, 0.0)
        moved = copies(cluster, shapes[kind.shape], kind.memory, 0.0, parameters, (0.0, 0.0)).step
        for number, value in enumerate((each, once, update_seconds(cluster, work, kind.memory, parameters, moved))):
            parts[rank][number] += value
    last = sum(backward[chunk] for chunk in plan.chunks_of(0))

    @cache  # most stages are alike
    def summed(zero: Zero, parameters: float, share: float) -> float:
        """What is left of the sums in buckets beside the part of the last backward that makes these gradients."""
        return float(stage.exposed_exchange(cluster, replace(work, zero=zero), parameters, share * last))

    tails = []
    for (each, once, update), own in zip(parts, held, strict=True):
        data = microbatches * (each - float(hidden(cluster, each, pipe / microbatches)))
        data += once - float(work.data_overlap * hidden(cluster, once, last))
        every = sum(own.values()) or 1.0
        data += sum(summed(zero, parameters, parameters / every) for zero, parameters in own.items() if zero <= 1)
        tails.append((data, update))
    aside = cluster.efficiency.step_us * 1e-6 + muon_seconds(job, work, cluster)
    return max(data for data, _ in tails), max(update for _, update in tails) + aside


def muon_seconds(job: PlannedJob, work: Work, cluster: Cluster) -> float:
    """What Muon takes on the stage that has most layers."""
    plan = job.plan
    layers = [0] * plan.pipeline
    for chunk, count in enumerate(plan.stages or even_stages(job.model.layers, plan.chunks)):
        layers[plan.rank_of(chunk)] += count
    return float(muon.seconds(cluster, work, max(layers)))
