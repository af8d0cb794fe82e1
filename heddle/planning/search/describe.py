"""Plans and their differences in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from heddle.planning.layer_memory.explain import layers_in_words, memory_in_words
from heddle.schedule.late import SYNCHRONOUS
from heddle.simulating.simulation import Simulation
from heddle.spec.layer_memory import LayerMemory, Recompute
from heddle.spec.plan import Plan
from heddle.spec.ranks import split_in_words


def in_words(plan: Plan) -> str:
    """The decisions of a plan on one line: "tensor 8 × pipeline 4 × data 16, zero 1, …"."""
    parts = [split_in_words(plan)]
    if plan.sequence:
        parts.append("sequence parallel")
    if plan.context > 1:
        inner = f" (all-to-all of {plan.context_inner})" * (plan.context_exchange == "2d")
        parts.append(f"{plan.context_exchange} exchange{inner}")
    if plan.pipeline > 1:
        order = [plan.schedule] if plan.late is None else []  # late updates have their own, named below
        parts += [each + (f" with {plan.virtual} chunks per rank" if plan.virtual > 1 else "") for each in order]
        if plan.extra_warmup is not None:
            parts.append(f"extra warm-up {plan.extra_warmup}")
    parts += memory_parts(plan)
    return ", ".join([*parts, *beyond_the_split(plan)])


def memory_parts(plan: Plan) -> list[str]:
    """What all layers do alike, of what memory is about: level of ZeRO, microbatch, recompute."""
    within = f" within {plan.zero_within}" * (plan.shards < plan.replicas)
    zero = [f"zero {plan.zero}{within}"] * (plan.replicas > 1 and not plan.layers)
    again = [f"recompute {recompute_in_words(plan)}"] * (not plan.layers)
    return [*zero, f"microbatch {plan.microbatch}", *again]


def headline(plan: Plan) -> str:
    """The degrees, what memory is about, and what else changes how a plan trains."""
    return ", ".join([split_in_words(plan), *memory_parts(plan), *beyond_the_split(plan)])


def beyond_the_split(plan: Plan) -> list[str]:
    """What else changes how a plan trains, and not only over how many devices: said in every headline."""
    parts = []
    if plan.layers:
        parts.append(f"by layer ({'; '.join(layer_by_layer(plan))})")
    elif plan.offload:
        parts.append(f"offload {', '.join(plan.offload)}")
    if plan.tensor > 1 and plan.tensor_chunks > 1:
        parts.append(f"tensor exchange in {plan.tensor_chunks} chunks")
    if plan.update != SYNCHRONOUS:
        parts.append(f"late updates ({plan.update})")
    if plan.local_steps:
        parts.append(f"replicas meet every {plan.local_steps} steps")
    codes = {"gradients": plan.compress_gradients, "activations": plan.compress_activations}
    parts += [f"{what} in {code}" for what, code in codes.items() if code != "none"]
    return parts


def layer_by_layer(plan: Plan) -> Iterator[str]:
    """What each layer does, all that do the same together; and what the embedding and the output layer do."""
    count = sum(plan.stages) or 1 + max(run.numbers[-1] for run in plan.layers)
    alike: dict[LayerMemory, list[int]] = {}
    for layer in range(count):
        alike.setdefault(plan.memory_of(layer), []).append(layer)
    for memory, layers in sorted(alike.items(), key=lambda each: -len(each[1])):
        which = "all layers" if len(layers) == count else layers_in_words(layers)
        yield f"{which}: {memory_in_words(memory, plan.replicas, every_level=True)}"
    ends = LayerMemory("none", plan.zero, plan.ends_offload)
    yield f"embedding and output: {memory_in_words(ends, plan.replicas, every_level=True)}"


def recompute_in_words(plan: Plan) -> str:
    """One word, or of how many layers what."""
    if isinstance(plan.recompute, str):
        return plan.recompute
    counts = {word: plan.recompute.count(word) for word in get_args(Recompute)}
    return " and ".join(f"{word} in {count} layer{'s' * (count > 1)}" for word, count in counts.items() if count)


def overfull(found: Simulation) -> str:
    """Which stage needs more than there is: "stage 0 needs 86.10 GiB, 6.10 GiB more than the 80 GiB of …"."""
    return str(found.verdict)


def planned_in_words(best: Simulation, feasible: int) -> str:
    """What a job without a [plan] got, and for what: said wherever one is planned."""
    cluster = best.cluster
    return (
        f"Planned for cluster '{cluster.name}' ({cluster.world:,} × {cluster.device.name}), the best of {feasible:,}: "
        f"{in_words(best.plan)}; {best.step_seconds:.3g} s per step. `heddle plan --explain` says why."
    )
