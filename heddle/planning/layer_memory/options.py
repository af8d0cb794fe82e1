"""The options of a layer, and what each costs on its stage: seconds per step, bytes all along, bytes for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, get_args

from heddle.cost.layers import LayerKind
from heddle.cost.network import hidden
from heddle.cost.offload import Numbers, States, copies, gathered, shard_seconds, states, update_seconds
from heddle.cost.step import LayerCost
from heddle.cost.work import Work
from heddle.simulating.chunks import priced_layer
from heddle.simulating.layer_bytes import bytes_of, fetched_ahead, of_a_layer
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import LayerMemory, Recompute, Zero
from heddle.spec.plan import Plan


class Option(NamedTuple):
    """One strategy of one layer."""

    memory: LayerMemory
    seconds: float  # that a step takes longer on its stage
    always: float  # bytes that are there all the time
    left: float  # bytes that each microbatch in flight leaves
    moment: float  # bytes that its backward holds for a moment
    input: float  # bytes of the input of a layer that lets it go, but for a chunk's first
    brief: float  # bytes of weights and gradients that are gathered while it computes


def legal(plan: Plan, tiers: tuple[str, ...], zeros: tuple[Zero, ...], own: bool = False) -> Iterator[LayerMemory]:
    """Every strategy that a layer of a plan may have; of the user's `own`, nobody knows the inside."""
    if plan.check_step == "after" or plan.local_steps:  # which want all of it on the device
        tiers = ()
    for recompute, zero in product(get_args(Recompute), zeros):
        kept = "input" if recompute == "full" else "activations"
        for activations, optimizer, weights in product((None, *tiers), repeat=3):
            if own and (recompute in ("selective", "elementwise") or activations is not None):
                continue
            if weights is not None and (optimizer is None or plan.puts_off or (plan.replicas > 1 and zero != 3)):
                continue
            words = ((kept, activations), ("weights", weights), ("optimizer", optimizer))
            yield LayerMemory(recompute, zero, tuple(f"{kind}:{tier}" for kind, tier in words if tier is not None))


def lean_ends(plan: Plan, tiers: tuple[str, ...]) -> Plan:
    """The same plan with as little of the embedding and the output layer on each device as can be."""
    if plan.replicas > 1:
        plan = replace(plan, zero=max(plan.zero_levels))
    if plan.check_step == "after" or plan.local_steps:
        return plan
    return replace(plan, offload=tuple(f"optimizer:{tier}" for tier in tiers[:1]))


def leanest(plan: Plan, tiers: tuple[str, ...], zeros: tuple[Zero, ...], own: bool = False) -> list[LayerMemory]:
    """The strategies that may need least: all that may leave does, or all of it but what a layer saves."""
    every = [memory for memory in legal(plan, tiers, zeros, own) if memory.zero == max(zeros)]
    return [memory for memory in every if memory.recompute == "full" or memory.tier("activations")]


def options(cluster: Cluster, work: Work, plan: Plan, strategies: list[LayerMemory]) -> list[Option]:
    """What each strategy costs a layer of this shape; `work`: as if all layers were of it."""
    price, held = priced_layer(cluster, work), bytes_of(of_a_layer(work))
    # what replicas exchange follows from the level of ZeRO alone, of which there are four and of strategies dozens
    levels = {memory.zero: memory for memory in strategies}
    shards = {
        zero: shard_seconds(cluster, work, held.parameters, memory, held.frozen) for zero, memory in levels.items()
    }
    found = []
    for memory in strategies:
        kind = LayerKind(0, memory)
        saved = held.saved[memory.recompute]
        exchange = shards[memory.zero]
        seconds, own = priced_option(cluster, work, memory, price, saved, held.parameters, held.frozen, exchange)
        brief = gathered([own] * (2 + plan.prefetch), plan.prefetch).total
        kept = own.kept * (2 + plan.prefetch)  # which is there all the time, and not only for a moment
        found.append(
            Option(
                memory,
                seconds=float(seconds),
                always=own.weights + own.gradients + own.optimizer + own.kept,
                left=held.left(kind),
                moment=held.back(kind, ahead=fetched_ahead(work, plan, kind) * held.saved[kind.recompute]),
                input=held.saved["full"] if kind.leaves else 0.0,
                brief=brief - kept if own.summed else 0.0,
            )
        )
    return found


def priced_option(
    cluster: Cluster,
    work: Work,
    memory: LayerMemory,
    price: LayerCost[Any],
    saved: Numbers,
    parameters: Numbers,
    frozen: Numbers = 0.0,
    exchange: tuple[Numbers, Numbers] | None = None,
) -> tuple[Numbers, States]:
    """Seconds that a step takes longer on the stage of a layer that does so, and what its parameters take there.

    `saved`: bytes that a microbatch leaves in it. `frozen`: bytes of weights beside its parameters that nobody updates.
    `exchange`: what its replicas exchange, where that is known (`shard_seconds`).
    Of many works at once, too.
    """
    again = price.again(memory.recompute)
    passes = price.forward, price.backward + again
    moved = copies(cluster, work, memory, saved, parameters, passes, frozen)
    each, once = exchange or shard_seconds(cluster, work, parameters, memory, frozen)
    each = each - hidden(cluster, each, sum(passes))
    once = once - work.data_overlap * hidden(cluster, once, passes[1])
    update = update_seconds(cluster, work, memory, parameters, moved.step)
    seconds = work.microbatches * (again + moved.forward + moved.backward + each) + once + update
    return seconds, states(work, parameters, memory, frozen)


def useful(every: list[Option]) -> list[Option]:
    """Without those that another beats, or equals, in everything."""
    kept: list[Option] = []
    for option in sorted(every, key=lambda each: (each[1:], len(each.memory.offload), each.memory)):
        if not any(all(a <= b for a, b in zip(other[1:], option[1:], strict=True)) for other in kept):
            kept.append(option)
    return kept
