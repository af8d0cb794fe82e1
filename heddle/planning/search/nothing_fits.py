"""When nothing fits: by how much, and the smallest change of each kind that would help, with its number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from heddle.cost.fits import fits
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.planning.layer_memory.explain import memory_in_words
from heddle.planning.layer_memory.families import BY_LAYER
from heddle.planning.layer_memory.smallest import lean_plans, smallest_by_layer
from heddle.planning.search.candidates import Candidates
from heddle.planning.search.describe import in_words, recompute_in_words
from heddle.planning.search.given import Fixed
from heddle.planning.search.legal import SOME
from heddle.planning.search.objective import SearchGoal
from heddle.planning.search.pricing import SpaceCosts, priced
from heddle.planning.search.space import Space
from heddle.simulating.simulation import Simulation, simulate
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan

LARGER = 4  # times the memory: beyond that, no device helps
SHORTEST = 64  # tokens: nobody trains on shorter sequences
MORE = 4096  # times as many nodes are looked at, at most


def nothing_fits(job: Job, cluster: Cluster, goal: SearchGoal, counts: list[int], by_layer: bool) -> HeddleError:
    """What the smallest plan needs, of which most is what, and what would help.

    `by_layer`: whether layers may recompute, shard and offload on their own, which is how a plan needs least.
    """
    own = by_layer and not any(name in goal.fixed for name in BY_LAYER)
    space, step = priced(job, cluster, counts[-1:], goal.fixed)
    smallest = _smallest(job, space, step)
    lean = smallest_by_layer(job, space) if own else None
    if lean is not None and lean.worst < smallest.worst:
        smallest = lean
    # plans whose layers recompute as far as memory asks count only where they fit
    legal = int(np.sum(space.columns["recompute"] != SOME))
    breakdown = smallest.memory[smallest.fullest]
    needs, has = smallest.worst / GIB, cluster.device.memory_gib
    largest = max(breakdown._fields, key=lambda name: float(getattr(breakdown, name)))
    ways = list(_ways(job, cluster, goal, counts, own))
    if needs <= LARGER * has or not ways:
        ways.append(f"{needs:.4g} GiB per device")
    return HeddleError(
        f"Of {legal:,} legal plans none fits: the smallest needs {needs:.4g} GiB, {cluster.device.name} has "
        f"{has:.4g} GiB.",
        f"That is {_plan_in_words(smallest.plan)}; most of it is {largest}, "
        f"{float(getattr(breakdown, largest)) / GIB:.4g} GiB.",
        f"It would fit with {', or '.join(ways)}.",
    )


def _smallest(job: Job, space: Space, step: SpaceCosts) -> Simulation:
    """The plan that holds least on its fullest device: what is left out holds more at least."""
    found: Simulation | None = None
    for row in np.argsort(step.memory_at_least):
        if found is not None and step.memory_at_least[row] >= found.worst:
            break
        other = simulate(replace(job, plan=space.plan(int(row))))
        found = other if found is None or other.worst < found.worst else found
    assert found is not None
    return found


def _plan_in_words(plan: Plan) -> str:
    """As for any plan, and what its layers do where they all do the same."""
    if not plan.layers and not plan.offload:
        return in_words(plan)
    kinds = dict.fromkeys(plan.memory_of(layer) for layer in range(sum(plan.stages)))
    own = "; or ".join(memory_in_words(memory, plan.replicas) for memory in kinds)
    split = in_words(replace(plan, layers=(), offload=(), recompute="none")).removesuffix(", recompute none")
    return f"{split}, whose layers {own}"


def _ways(job: Job, cluster: Cluster, goal: SearchGoal, counts: list[int], own: bool) -> Iterator[str]:
    for name in goal.fixed:
        fewer = {other: value for other, value in goal.fixed.items() if other != name}
        if (found := _first_that_fits(job, cluster, counts, fewer, own)) is not None:
            yield f"recompute {recompute_in_words(found)}" if name == "recompute" else f"{name} = {_word(found, name)}"
    if nodes := _enough_nodes(job, cluster, goal, max(counts), own):
        yield f"{nodes * cluster.devices} devices"
    if sequence := _longest_sequence(job, cluster, goal, counts, own):
        yield f"train.sequence = {sequence}"


def _longest_sequence(job: Job, cluster: Cluster, goal: SearchGoal, counts: list[int], own: bool) -> int | None:
    """Of the sequence's halves, quarters … the longest that fits."""

    def enough(sequence: int) -> bool:
        shorter = replace(job, train=replace(job.train, sequence=sequence))
        return _first_that_fits(shorter, cluster, counts, goal.fixed, own) is not None

    shorter = [job.sequence >> halved for halved in range(1, 32) if job.sequence >> halved >= SHORTEST]
    if not shorter or not enough(shorter[-1]):  # weights alone are too large, as for most who get here
        return None
    return next(sequence for sequence in shorter if sequence == shorter[-1] or enough(sequence))


def _word(plan: Plan, name: str) -> str:
    value = getattr(plan, name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _enough_nodes(job: Job, cluster: Cluster, goal: SearchGoal, most: int, own: bool) -> int | None:
    """The fewest nodes that hold the model: doubled until it fits, then halved back."""
    if not cluster.links or cluster.links[-1].devices is not None or "data" in goal.fixed:
        return None

    def enough(nodes: int) -> bool:
        larger = replace(cluster, nodes=nodes)
        return _first_that_fits(job, larger, [larger.world], goal.fixed, own) is not None

    few = max(1, most // cluster.devices)
    many, limit = 2 * few, MORE * few
    while not enough(many):
        few, many = many, 2 * many
        if many > limit:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def _first_that_fits(job: Job, cluster: Cluster, counts: list[int], fixed: Fixed, own: bool) -> Plan | None:
    space, step = priced(job, cluster, counts, fixed, "fitting")
    job = replace(job, cluster=cluster, plan=None)
    candidates = Candidates(job, space, step, SearchGoal("fastest", fixed))
    rows = candidates.rows[np.argsort(step.seconds[candidates.rows])]
    alike = next((found.plan for row in rows if (found := candidates.exact(int(row)))), None)
    if alike is not None or not own:
        return alike
    lean = lean_plans(job, space, np.arange(len(space)))
    return next((each.job.plan for each in lean if fits(each.bytes, cluster.device)), None)
