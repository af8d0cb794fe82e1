"""Why layers do what they do: what each strategy saves and costs, what more memory would buy, the least that fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from heddle.cost.work import work_of
from heddle.format import GIB, seconds_in_words
from heddle.plan.layer_memory.options import options
from heddle.plan.layer_memory.solve import best_strategies
from heddle.plan.layer_memory.stage import in_flight
from heddle.schedule import build
from heddle.simulate.simulation import Simulation
from heddle.spec.job import Job
from heddle.spec.layer_memory import LayerMemory

MARKS = "·abcdefghijklmnopqrstuvwxyz"


def memory_in_words(memory: LayerMemory, replicas: int) -> str:
    """What a layer does: "recompute in full, input to host"."""
    words = {"none": [], "selective": ["recompute the attention core"], "full": ["recompute in full"]}[memory.recompute]
    words = words + [f"ZeRO-{memory.zero}"] * (memory.zero >= 2 and replicas > 1)
    moved = [" to ".join(word.split(":")) for word in memory.offload]
    return ", ".join([*words, *moved]) or "keep everything"


def reasons(found: Simulation) -> Iterator[str]:
    """A line for each run of layers of a stage that does something: what a layer saves by it, and what that costs."""
    job, plan = found.job, found.plan
    work = work_of(job, found.cluster)
    microbatches = plan.microbatches(job.train.global_batch)
    schedule = build(plan.schedule, plan.pipeline, microbatches, plan.virtual)
    plain = LayerMemory("none", plan.zero if plan.zero < 2 else 1, ())
    shapes, start = [one for _, one in work.each_shape], 0
    for chunk, size in enumerate(plan.stages):
        rank = chunk % plan.pipeline
        flights = in_flight(schedule.places[rank], plan.chunks, plan.pipeline, rank)
        flight, layers = flights[chunk // plan.pipeline], range(start, start + size)
        for (shape, memory), run in groupby(layers, lambda layer: (job.model.shape_of[layer], plan.memory_of(layer))):
            numbers = list(run)
            if memory == plain:
                continue
            keeps, own = options(found.cluster, shapes[shape], plan, microbatches, [plain, memory])
            saves = keeps.always - own.always + flight * (keeps.left - own.left)
            which = f"layers {numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else f"layer {numbers[0]}"
            yield (
                f"{which} of stage {rank}: {memory_in_words(memory, plan.data)}; each saves {saves / GIB:.3g} GiB "
                f"for {seconds_in_words(max(0.0, own.seconds - keeps.seconds))} per step"
            )
        start += size


def next_gib(found: Simulation, gib: float = 1.0) -> float | None:
    """Seconds per step that so much more memory per device would save; None: nothing can be said."""
    more = best_strategies(_within(found.job, found.limit / GIB + gib))
    return None if more is None else max(0.0, found.step_seconds - more.step_seconds)


def smallest_budget(found: Simulation) -> float:
    """GiB per device of the least budget that the same split can keep, by halving, to one percent."""
    low, high = 0.0, found.worst / GIB
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        lean = best_strategies(_within(found.job, middle))
        low, high = (middle, high) if lean is None else (low, min(middle, lean.worst / GIB))
    return high


def _within(job: Job, gib: float) -> Job:
    assert job.cluster is not None
    return replace(job, cluster=replace(job.cluster, device=replace(job.cluster.device, memory_gib=gib)))


def strips(found: Simulation) -> Iterator[str]:
    """A line for each stage, with a mark for each of its layers, chunk by chunk; and what the marks mean."""
    plan, layers = found.plan, found.job.model.layers
    every = [plan.memory_of(layer) for layer in range(layers)]
    order = sorted(set(every), key=lambda memory: (memory != LayerMemory("none", memory.zero, ()), memory))
    marks = {memory: MARKS[min(number, len(MARKS) - 1)] for number, memory in enumerate(order)}
    if order and order[0].offload + ((order[0].recompute,) if order[0].recompute != "none" else ()):
        marks = {memory: MARKS[1 + min(number, len(MARKS) - 2)] for number, memory in enumerate(order)}
    for rank in range(plan.pipeline):
        chunks = range(rank, plan.chunks, plan.pipeline)
        yield f"stage {rank:<3} " + " ".join(
            "".join(marks[every[layer]] for layer in plan.layers_of(chunk, layers)) for chunk in chunks
        )
    yield "; ".join(f"{mark}: {memory_in_words(memory, plan.data)}" for memory, mark in marks.items())
