"""A good plan made better: stages balanced around the embedding and the head, no layer recomputed that need not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from heddle.cost import step as stage
from heddle.cost.work import work_of
from heddle.planning.search.objective import SearchGoal
from heddle.planning.search.space import recompute_first
from heddle.schedule import ChunkPlacement, rule_of
from heddle.simulating.chunks import chunk_costs, priced
from heddle.simulating.simulation import Simulation, fits, simulate_if_fits
from heddle.simulating.stage_memory import of_a_layer
from heddle.spec.job import Job
from heddle.spec.plan import Plan
from heddle.spec.rules.even import even_stages


def balanced(found: Simulation, goal: SearchGoal) -> Simulation | None:
    """The same degrees with better stages, where there are, and no more recomputed layers than those need."""
    if "stages" in goal.fixed or found.plan.pipeline == 1:
        return None
    stages = balanced_ranks(found)
    if stages == found.plan.stages:
        return None
    if isinstance(found.plan.recompute, str) or "recompute" in goal.fixed:
        other = simulate_if_fits(replace(found.job, plan=replace(found.plan, stages=stages)))
    else:
        other = _fewest(found, stages)
    return other if other is not None and goal.of(other) < goal.of(found) else None


def _fewest(found: Simulation, stages: tuple[int, ...]) -> Simulation | None:
    """Recompute in no more layers of each rank than memory asks for: the fewest are found by halving."""
    plan = found.plan
    placement = rule_of(plan.schedule).placement

    def with_count(count: int) -> Job:
        words = recompute_first(stages, plan.pipeline, count, placement)
        return replace(found.job, plan=replace(plan, stages=stages, recompute=words))

    every = max(sum(stages[chunk] for chunk in plan.chunks_of(r)) for r in range(plan.pipeline))
    now = max(sum(plan.recompute[layer] == "full" for layer in layers) for layers in _layers_of_ranks(found))
    count = fewest_that_fit(with_count, range(1, every), now)
    return None if count is None else simulate_if_fits(with_count(count))


def _layers_of_ranks(found: Simulation) -> Iterator[list[int]]:
    plan, layers = found.plan, found.job.model.layers
    for rank in range(plan.pipeline):
        yield [layer for chunk in plan.chunks_of(rank) for layer in plan.layers_of(chunk, layers)]


def fewest_that_fit(job: Callable[[int], Job], among: range, guess: int) -> int | None:
    """The least of some numbers with which a job's plan fits; None if none does.

    Bytes fall with the number, as a rule: what is recomputed lives for a moment. So the guess is asked first, and two
    others before it is said that none fits. From the guess it goes in strides that double, then by halving.
    """
    if not among:
        return None
    low, high, stride = among[0] - 1, among[-1] + 1, 1
    at = min(max(guess, among[0]), among[-1])
    while high - low > 1:
        if fits(job(at)):
            high = at
        elif high > among[-1]:
            far = next((each for each in (among[-1], (at + among[-1]) // 2) if each > at and fits(job(each))), None)
            if far is None:
                return None
            low, high = at, far
        else:
            low = at
        beyond = low + stride if low >= guess else high - stride
        at = beyond if low < beyond < high else (low + high) // 2
        stride *= 2
    return high


def moved_layer(found: Simulation) -> tuple[int, ...] | None:
    """Stages with one layer moved from the slowest rank to the quickest; None: there is none to move."""
    plan, job = found.plan, found.job
    chunks = chunk_costs(job, plan, work_of(job, found.cluster), found.cluster)
    busy = [sum(chunks[each].forward.seconds + chunks[each].backward.seconds for each in own) for own in _owned(plan)]
    slow, quick = (busy.index(which(busy)) for which in (max, min))
    stages = list(plan.stages)
    giver = max(plan.chunks_of(slow), key=lambda chunk: stages[chunk])
    taker = min(plan.chunks_of(quick), key=lambda chunk: stages[chunk])
    if slow == quick or stages[giver] == 1:
        return None
    stages[giver] -= 1
    stages[taker] += 1
    return tuple(stages)


def _owned(plan: Plan) -> list[Sequence[int]]:
    return [plan.chunks_of(rank) for rank in range(plan.pipeline)]


def balanced_ranks(found: Simulation) -> tuple[int, ...]:
    """Layers of each chunk so that no rank is slower than it must be, as if none recomputed."""
    job, plan, cluster = found.job, found.plan, found.cluster
    work = work_of(job, cluster)
    shapes = [(one, *priced(cluster, of_a_layer(one))) for _, one in work.each_shape]
    prices = [  # seconds of a layer of each shape
        price.forward + price.backward + float(stage.recompute_seconds(one, price)) for one, price, *_ in shapes
    ]
    layers = [prices[shape] for shape in job.model.shape_of]
    ends = [sum(cost) for cost in shapes[0][2:]]
    placement = rule_of(plan.schedule).placement
    if len(prices) > 1 and plan.virtual == 1:
        return balanced_runs(layers, plan.pipeline, *ends)
    mean = sum(layers) / len(layers)
    return balanced_stages(len(layers), plan.pipeline, plan.virtual, mean, ends[0], ends[1], placement)


def balanced_runs(layers: Sequence[float], pipeline: int, first: float, last: float) -> tuple[int, ...]:
    """Layers of each stage, so that the slowest is as fast as can be, where each layer has seconds of its own.

    Stages are runs of layers, so the least limit that they can keep is found by halving. Later stages are filled first:
    earlier ones hold more microbatches.
    """

    def within(limit: float) -> tuple[int, ...] | None:
        stages, end = list[int](), len(layers)
        for rank in reversed(range(pipeline)):
            load, start = last * (rank == pipeline - 1) + first * (rank == 0), end
            while start > rank and (start == end or load + layers[start - 1] <= limit):
                start -= 1
                load += layers[start]
            if load > limit:
                return None
            stages.append(end - start)
            end = start
        return tuple(reversed(stages)) if end == 0 else None

    low, high = 0.0, sum(layers) + first + last
    best = even_stages(len(layers), pipeline)
    for _ in range(50):
        middle = (low + high) / 2
        found = within(middle)
        low, high, best = (middle, high, best) if found is None else (low, middle, found)
    return best


def balanced_stages(
    layers: int,
    pipeline: int,
    virtual: int,
    layer: float,
    first: float,
    last: float,
    placement: ChunkPlacement = ChunkPlacement.LOOP,
) -> tuple[int, ...]:
    """Layers of each chunk, so that the slowest rank is as fast as can be.

    A rank that holds n layers takes n times the seconds of a `layer`, and those of the ends that it holds. Layers go,
    one after the other, to the rank that is then the least loaded; among equals to one in the middle, as in
    `even_stages`. With equal layers no other assignment has a smaller maximum. A rank's own chunks are as even as can
    be, the later ones smaller, and never empty.
    """
    load = [virtual * layer] * pipeline
    load[0] += first
    load[placement.rank_of(pipeline * virtual - 1, pipeline)] += last
    held = [virtual] * pipeline
    middle = sorted(range(pipeline), key=lambda rank: abs(rank - (pipeline - 1) / 2))
    for _ in range(layers - pipeline * virtual):
        rank = min(middle, key=load.__getitem__)
        held[rank] += 1
        load[rank] += layer
    even, own = (
        even_stages(layers, pipeline * virtual),
        [placement.chunks_of(r, pipeline, virtual) for r in range(pipeline)],
    )
    if held == [sum(even[chunk] for chunk in chunks) for chunks in own]:
        return even
    stages = [0] * (pipeline * virtual)
    for rank, count in enumerate(held):
        small, extra = divmod(count, virtual)
        for lap, chunk in enumerate(own[rank]):
            stages[chunk] = small + (lap < extra)
    return tuple(stages)
