"""Why layers do what they do: what each strategy saves and costs, what more memory would buy, the least that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from heddle.cost.work import work_of
from heddle.format import GIB, runs_of, seconds_in_words
from heddle.planning.layer_memory.options import options
from heddle.planning.layer_memory.solve import best_strategies, within
from heddle.planning.layer_memory.stage import in_flight
from heddle.schedule import build
from heddle.simulating.simulation import Simulation
from heddle.spec.layer_memory import LayerMemory, Recompute

RUNS = 6  # of layers that are listed, at most
RECOMPUTED: dict[Recompute, str] = {
    "selective": "recompute the attention core",
    "elementwise": "recompute all but products and attention",
    "full": "recompute in full",
}
MARKS = "·abcdefghijklmnopqrstuvwxyz"


def memory_in_words(memory: LayerMemory, replicas: int, every_level: bool = False) -> str:
    """What a layer does: "recompute in full, input to host"; of the levels of ZeRO those that are about layers."""
    words = [RECOMPUTED[memory.recompute]] if memory.recompute != "none" else []
    words = words + [f"ZeRO-{memory.zero}"] * ((memory.zero >= 2 or every_level) and replicas > 1)
    moved = [" to ".join(word.split(":")) for word in memory.offload]
    return ", ".join([*words, *moved]) or "keep everything"


def reasons(found: Simulation) -> Iterator[str]:
    """A line for all layers of a stage that do the same: what each saves by it, and what that costs."""
    job, plan = found.job, found.plan
    work = work_of(job, found.cluster)
    microbatches = plan.microbatches(job.train.global_batch)
    schedule = build(plan.schedule, plan.pipeline, microbatches, plan.virtual)
    plain = LayerMemory("none", min(plan.zero, 1), ())
    shapes = [one for _, one in work.each_shape]
    for rank in range(plan.pipeline):
        flights = in_flight(schedule.places[rank], plan.chunks_of(rank), plan.chunks)
        alike: dict[LayerMemory, list[tuple[int, float, float]]] = {}
        for chunk, flight in zip(plan.chunks_of(rank), flights, strict=True):
            for layer in plan.layers_of(chunk, job.model.layers):
                memory, shape = plan.memory_of(layer), shapes[job.model.shape_of[layer]]
                keeps, own = options(found.cluster, shape, plan, [plain, memory])
                saves = keeps.always - own.always + flight * (keeps.left - own.left)
                alike.setdefault(memory, []).append((layer, saves, own.seconds - keeps.seconds))
        for memory, layers in alike.items():
            if memory != plain:
                least, most = (f"{which(saved for _, saved, _ in layers) / GIB:.3g}" for which in (min, max))
                costs = max(0.0, *(cost for _, _, cost in layers))
                yield (
                    f"{layers_in_words([layer for layer, _, _ in layers])} of stage {rank}: "
                    f"{memory_in_words(memory, plan.replicas)}; each saves "
                    f"{least if least == most else f'{least} to {most}'} GiB for {seconds_in_words(costs)} per step"
                )


def layers_in_words(numbers: Sequence[int]) -> str:
    """As people list them: layers 0–5 and 8."""
    words = runs_of(numbers, dash="–")
    if len(words) > RUNS:
        return f"{len(numbers)} of layers {numbers[0]}–{numbers[-1]}"
    listed = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"layer{'s' * (len(numbers) > 1)} {listed}"


def next_gib(found: Simulation, gib: float = 1.0) -> float | None:
    """Seconds per step that so much more memory per device would save; None: nothing can be said."""
    more = best_strategies(within(found.job, found.limit / GIB + gib))
    return None if more is None else max(0.0, found.step_seconds - more.step_seconds)


def smallest_budget(found: Simulation) -> float:
    """GiB per device of the least budget that the same split can keep, by halving, to one percent."""
    low, high = 0.0, found.worst / GIB
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        lean = best_strategies(within(found.job, middle))
        low, high = (middle, high) if lean is None else (low, min(middle, lean.worst / GIB))
    return high


class MemoryPrice(NamedTuple):
    """The least seconds per step that a split can do with so much memory."""

    gib: float
    seconds: float


def price_of_memory(found: Simulation, budgets: int) -> list[MemoryPrice]:
    """Of the same split, from the least memory that fits to as much as it can use: never slower with more."""
    free = best_strategies(within(found.job, 1e6))
    if free is None:
        return []
    least, most = smallest_budget(found), free.worst / GIB
    prices: list[MemoryPrice] = []
    for number in range(budgets):
        gib = least + (most - least) * number / (budgets - 1) if budgets > 1 else most
        here = best_strategies(within(found.job, gib * (1 + 1e-9)))
        if here is not None:
            seconds = min([here.step_seconds, *(price.seconds for price in prices)])
            prices.append(MemoryPrice(gib, seconds))
    return prices


def strips(found: Simulation) -> Iterator[str]:
    """A line for each stage, with a mark for each of its layers, chunk by chunk; and what the marks mean."""
    plan, layers = found.plan, found.job.model.layers
    every = [plan.memory_of(layer) for layer in range(layers)]
    order = sorted(set(every), key=lambda memory: (memory != LayerMemory("none", memory.zero, ()), memory))
    marks = {memory: MARKS[min(number, len(MARKS) - 1)] for number, memory in enumerate(order)}
    if order and order[0].offload + ((order[0].recompute,) if order[0].recompute != "none" else ()):
        marks = {memory: MARKS[1 + min(number, len(MARKS) - 2)] for number, memory in enumerate(order)}
    for rank in range(plan.pipeline):
        chunks = plan.chunks_of(rank)
        yield f"stage {rank:<3} " + " ".join(
            "".join(marks[every[layer]] for layer in plan.layers_of(chunk, layers)) for chunk in chunks
        )
    yield "; ".join(f"{mark}: {memory_in_words(memory, plan.replicas)}" for memory, mark in marks.items())
