"""A good plan made better: stages balanced around the embedding and the head, no layer recomputed that need not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heddle.cost import compute
from heddle.cost import step as stage
from heddle.cost.work import work_of
from heddle.plan.search.objective import SearchGoal
from heddle.plan.search.space import recompute_first
from heddle.schedule import Placement, rule_of
from heddle.simulate.simulation import Simulation, simulate_if_fits
from heddle.spec.rules.even import even_stages


def balanced(found: Simulation, wish: SearchGoal) -> Simulation | None:
    """The same degrees with better stages, where there are, and no more recomputed layers than those need."""
    if "stages" in wish.fixed or found.plan.pipeline == 1:
        return None
    stages = _balanced(found)
    if stages == found.plan.stages:
        return None
    if isinstance(found.plan.recompute, str) or "recompute" in wish.fixed:
        other = simulate_if_fits(replace(found.job, plan=replace(found.plan, stages=stages)))
    else:
        other = _fewest(found, stages)
    return other if other is not None and wish.of(other) < wish.of(found) else None


def _fewest(found: Simulation, stages: tuple[int, ...]) -> Simulation | None:
    """Recompute in no more layers of each rank than memory asks for: the fewest are found by halving."""
    plan, best = found.plan, None
    fewest, most = 0, max(sum(stages[chunk] for chunk in plan.chunks_of(r)) for r in range(plan.pipeline))
    while most - fewest > 1:
        middle = (fewest + most) // 2
        words = recompute_first(stages, plan.pipeline, middle, rule_of(plan.schedule).placement)
        other = simulate_if_fits(replace(found.job, plan=replace(plan, stages=stages, recompute=words)))
        fewest, most, best = (middle, most, best) if other is None else (fewest, middle, other)
    return best


def _balanced(found: Simulation) -> tuple[int, ...]:
    job, plan, cluster = found.job, found.plan, found.cluster
    work = work_of(job, cluster)
    prices = []  # seconds of a layer of each shape
    for _, one in work.each_shape:
        price = stage.layer_cost(cluster, one)
        prices.append(float(price.forward + price.backward + stage.recompute_seconds(one, price)))
    layers = [prices[shape] for shape in job.model.shape_of]
    ends = [float(sum(cost)) for cost in (compute.embedding(cluster, work), compute.head(cluster, work))]
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
    placement: Placement = Placement.LOOP,
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
