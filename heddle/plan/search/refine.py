"""A good plan made better: stages balanced around the embedding and the head, no layer recomputed that need not be."""

from __future__ import annotations

from dataclasses import replace

from heddle.cost import compute
from heddle.cost import step as stage
from heddle.cost.work import work_of
from heddle.plan.search.objective import Wish
from heddle.plan.search.space import recompute_first
from heddle.simulate.simulation import Simulation, simulate
from heddle.spec.plan import Plan, even_stages


def improved(found: Simulation, wish: Wish) -> Simulation:
    """The same degrees with better stages and fewer recomputed layers, where that fits and is better."""
    if "stages" not in wish.fixed and found.plan.pipeline > 1:
        found = _better(found, replace(found.plan, stages=_balanced(found)), wish)
    if "recompute" not in wish.fixed and "full" in found.plan.recompute:
        found = _recompute_less(found, wish)
    return found


def _better(found: Simulation, plan: Plan, wish: Wish) -> Simulation:
    """What the other plan does, if it fits and is better."""
    if plan == found.plan:
        return found
    other = simulate(replace(found.job, plan=plan))
    return other if other.fits and wish.of(other) < wish.of(found) else found


def _balanced(found: Simulation) -> tuple[int, ...]:
    job, plan, cluster = found.job, found.plan, found.cluster
    work = work_of(job, cluster)
    price = stage.layer_cost(cluster, work)
    layer = float(price.forward + price.backward + stage.again(work, price))
    ends = [float(sum(cost)) for cost in (compute.embedding(cluster, work), compute.head(cluster, work))]
    return balanced_stages(job.model.layers, plan.pipeline, plan.virtual, layer, ends[0], ends[1])


def balanced_stages(
    layers: int, pipeline: int, virtual: int, layer: float, first: float, last: float
) -> tuple[int, ...]:
    """Layers of each chunk, so that the slowest rank is as fast as can be.

    A rank that holds n layers takes n times the seconds of a `layer`, and those of the ends that it holds. Layers go,
    one after the other, to the rank that is then the least loaded; among equals to one in the middle, as in
    `even_stages`. With equal layers no other assignment has a smaller maximum. A rank's own chunks are as even as can
    be, the later ones smaller, and never empty.
    """
    load = [virtual * layer] * pipeline
    load[0] += first
    load[-1] += last
    held = [virtual] * pipeline
    middle = sorted(range(pipeline), key=lambda rank: abs(rank - (pipeline - 1) / 2))
    for _ in range(layers - pipeline * virtual):
        rank = min(middle, key=load.__getitem__)
        held[rank] += 1
        load[rank] += layer
    if held == [sum(even_stages(layers, pipeline * virtual)[rank::pipeline]) for rank in range(pipeline)]:
        return even_stages(layers, pipeline * virtual)
    stages = [0] * (pipeline * virtual)
    for rank, count in enumerate(held):
        small, extra = divmod(count, virtual)
        for lap in range(virtual):
            stages[lap * pipeline + rank] = small + (lap < extra)
    return tuple(stages)


def _recompute_less(found: Simulation, wish: Wish) -> Simulation:
    """Recompute in no more layers of each rank than memory asks for: the fewest are found by halving."""
    plan = found.plan
    if simulate(replace(found.job, plan=replace(plan, recompute="none"))).fits:
        return found  # nothing asks for it; that is a plan of its own
    held = [sum(plan.stages[rank :: plan.pipeline]) for rank in range(plan.pipeline)]
    fewest, most = 0, max(held)  # none of a rank's layers does not fit
    while most - fewest > 1:
        middle = (fewest + most) // 2
        words = recompute_first(plan.stages, [min(middle, layers) for layers in held])
        other = simulate(replace(found.job, plan=replace(plan, recompute=words)))
        if other.fits:
            most = middle
            found = other if wish.of(other) < wish.of(found) else found
        else:
            fewest = middle
    return found
