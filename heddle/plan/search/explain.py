"""Why this plan: what each neighbouring choice would cost, what would help most, and what the papers say of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heddle.cost.breakdown import STEP
from heddle.errors import listing
from heddle.format import GIB, figures, memory_unit, seconds_in_words, signed_seconds
from heddle.plan.layer_memory.explain import next_gib, reasons, smallest_budget
from heddle.plan.search.candidates import Candidates
from heddle.plan.search.describe import in_words, overfull, recompute_in_words
from heddle.plan.search.objective import MARGIN, SearchGoal
from heddle.plan.search.pricing import priced
from heddle.plan.search.ranking import parts
from heddle.plan.search.search import Search, summary
from heddle.plan.search.space import RECOMPUTE, recompute_number
from heddle.schedule.registry import NAMES
from heddle.simulate.simulation import Simulation, simulate
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.plan import WRITTEN, Plan

OTHERS = ("virtual", "sequence", "zero", "microbatch", "recompute", "schedule")
TOP = 10  # choices that are looked at for each neighbour, as in a search for it
LINES = 12  # on layers


@dataclass(frozen=True)
class Neighbour:
    """One choice made otherwise, the rest as near to the plan as can be."""

    change: str
    simulation: Simulation | None  # None: there is no such plan
    why: str


@dataclass(frozen=True)
class Explanation:
    """The reasons for the first choice of a search."""

    search: Search
    plan: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    helps: tuple[tuple[str, float], ...]  # a change, and how many times as many tokens per second it gives
    takeaways: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "plan": list(self.plan),
            "neighbours": [
                {"change": each.change, "why": each.why, **(summary(each.simulation) if each.simulation else {})}
                for each in self.neighbours
            ],
            "helps": [{"change": change, "speedup": gain} for change, gain in self.helps],
            "takeaways": list(self.takeaways),
        }


def explain(search: Search) -> Explanation:
    """Look around the best plan of a search."""
    return Explanation(
        search,
        tuple(described(search.best)),
        tuple(_neighbours(search)),
        tuple(sorted(_helps(search), key=lambda change: -change[1])),
        tuple(_takeaways(search)),
    )


def described(best: Simulation) -> Iterator[str]:
    """The plan in words and numbers."""
    plan, job = best.plan, best.job
    yield in_words(plan)
    shares = {STEP[name].words: float(value) / best.step_seconds for name, value in best.breakdown._asdict().items()}
    largest = sorted(((share, name) for name, share in shares.items() if share >= 0.005), reverse=True)
    yield f"A step takes {figures(best.step_seconds)} s: " + ", ".join(f"{name} {share:.1%}" for share, name in largest)
    m = plan.microbatches(job.train.global_batch)
    yield f"Each replica works through {m} microbatch{'es' * (m != 1)} of {plan.microbatch * job.sequence:,} tokens."
    bill = best.memory[best.fullest]._asdict()
    unit, size = memory_unit(best.worst)
    parts = ", ".join(f"{name} {float(value) / size:.3g}" for name, value in bill.items() if value >= 0.005 * size)
    needs = f"{best.worst / size:.4g}" + f" {unit}" * (unit != "GiB")
    yield f"Stage {best.fullest} is the fullest: {needs} of {best.limit / GIB:.4g} GiB" + f" ({parts})" * bool(parts)
    if plan.by_layer:
        yield from _layers(best)
    if len(set(plan.stages)) > 1:
        yield f"Stages are uneven, {min(plan.stages)} to {max(plan.stages)} layers: the ends hold embedding and head."


def _layers(best: Simulation) -> Iterator[str]:
    """What layers do that choose for themselves, and what memory is worth to them."""
    lines = list(reasons(best))
    yield from lines[:LINES]
    if len(lines) > LINES:
        yield f"… and {len(lines) - LINES} more ranges of layers"
    gain = next_gib(best)
    if gain is not None:
        yield f"One GiB more per device would save {seconds_in_words(gain)} per step with the same split."
    yield f"The least that this split can do with is {smallest_budget(best):.3g} GiB per device."


def _neighbours(search: Search) -> Iterator[Neighbour]:
    """Each degree doubled and halved, other schedules, levels, words of recompute and microbatches."""
    best = search.best.plan
    for name in (*WRITTEN, "microbatch", "virtual"):
        value = getattr(best, name)
        for other in (2 * value, value // 2):
            if other >= 1 and (name != "virtual" or best.pipeline > 1):
                yield _neighbour(search, name, other)
    if best.tensor > 1:
        yield _neighbour(search, "sequence", not best.sequence)
    for zero in best.zero_levels:
        if zero != best.zero and best.data > 1 and (zero <= 1 or best.pipeline == 1):
            yield _neighbour(search, "zero", zero)
    for word in RECOMPUTE:
        if word != best.recompute:
            yield _neighbour(search, "recompute", word)
    if best.pipeline > 1 and best.schedule != "gpipe":
        other = simulate(replace(search.job, plan=replace(best, schedule="gpipe")))
        full = Neighbour("schedule = gpipe", other, f"does not fit: {overfull(other)}")
        yield _judged(search, full.change, other) if other.fits else full


def _neighbour(search: Search, name: str, value: Any) -> Neighbour:
    """The fastest plan that makes that one choice otherwise: what the search would find if it were fixed."""
    change = f"{name} = {str(value).lower() if isinstance(value, bool) else value}"
    candidates = _candidates(search, name, value)
    wanted = candidates.space.columns[name] == (RECOMPUTE.index(value) if name == "recompute" else int(value))
    if not wanted.any():
        return Neighbour(change, None, _no_such_plan(search, name, value))
    alone = _differs_least(search, candidates, name, np.flatnonzero(wanted))
    some = candidates.among(candidates.rows[wanted[candidates.rows]])
    choices = some.choices(TOP)
    if not choices:
        return Neighbour(change, alone, f"does not fit: {overfull(alone)}")
    found = min(*(choice.best for choice in choices), some.fastest, key=search.wish.of)
    judged = _judged(search, change, found)
    also = _difference(search.best.plan, found.plan, name)  # doubling one degree halves another
    why = f"with {also}: {judged.why}" if also else judged.why
    if not alone.fits and alone.plan != found.plan:
        others = _difference(search.best.plan, alone.plan, name)
        why += f"; {f'with {others} only' if others else 'alone'} it does not fit: {overfull(alone)}"
    return replace(judged, why=why)


def _candidates(search: Search, name: str, value: Any) -> Candidates:
    """Plans among which there are those with a choice: some levels of ZeRO are there only when asked for."""
    if name != "zero" or value == 0:
        return search.candidates
    counts = np.unique(search.space.devices).tolist()
    space, step = priced(search.job, search.cluster, counts, {**search.wish.fixed, name: value})
    return Candidates(search.job, space, step, search.wish)


def _differs_least(search: Search, candidates: Candidates, name: str, rows: np.ndarray) -> Simulation:
    """Of some plans the one with the fewest other choices than the best, and among those the quickest."""
    columns, best = candidates.space.columns, search.best.plan
    others = [other for other in (*WRITTEN, *OTHERS) if other != name]
    differing = sum((columns[other][rows] != _column_value(best, other)).astype(int) for other in others)
    nearest = rows[differing == np.min(differing)]
    row = int(nearest[np.argmin(candidates.step.seconds[nearest])])
    return candidates.exact(row) or simulate(replace(search.job, plan=candidates.space.plan(row)))


def _judged(search: Search, change: str, other: Simulation) -> Neighbour:
    """What that plan would cost, all of it per step, and where the difference is."""
    best = search.best
    difference = other.step_seconds - best.step_seconds
    leaves = " (leaves the node)" if other.plan.tensor > search.cluster.devices >= best.plan.tensor else ""
    why = f"{signed_seconds(difference)} per step ({difference / best.step_seconds:+.1%}){leaves}"
    changes = {name: float(getattr(other.breakdown, name)) - float(getattr(best.breakdown, name)) for name in STEP}
    telling = sorted(changes, key=lambda name: -abs(changes[name]))[:2]
    reasons = [
        f"{signed_seconds(changes[name])} of {STEP[name].words}"
        for name in telling
        if abs(changes[name]) > 0.002 * best.step_seconds
    ]
    memory = other.worst - best.worst
    if not reasons or abs(memory) > 0.1 * best.limit:
        reasons.append(f"{memory / GIB:+.3g} GiB on the fullest stage")
    if search.wish.alike(other.step_seconds, other.plan.world, search.fastest):
        theirs, ours = (parts(each.plan, each.worst / each.limit) for each in (other, best))
        more = [part for part in theirs if part not in ours]
        reasons.append(f"as fast within {MARGIN:.0%}" + (f", but needs {listing(more)}" if more else ""))
    return Neighbour(change, other, f"{why}: {', '.join(reasons)}")


def _difference(best: Plan, other: Plan, name: str) -> str:
    """What else the other plan chooses otherwise."""
    names = [each for each in (*WRITTEN, *OTHERS[:-1]) if each != name and getattr(best, each) != getattr(other, each)]
    words = {each: str(getattr(other, each)).lower() for each in names} | {"recompute": recompute_in_words(other)}
    return ", ".join(f"{each} {words[each]}" for each in names)


def _column_value(plan: Plan, name: str) -> int:
    """A field's value as it stands in a column."""
    if name == "recompute":
        return recompute_number(plan)
    return NAMES.index(plan.schedule) if name == "schedule" else int(getattr(plan, name))


def _no_such_plan(search: Search, name: str, value: Any) -> str:
    """Why a choice is not among the legal ones."""
    if name in search.wish.fixed:
        return f"{name} is fixed"
    job = search.job
    batch = job.train.global_batch
    if name == "data" and batch % value:
        return f"a batch of {batch} cannot be divided over {value} replicas"
    if name == "pipeline" and value > job.model.layers:
        return f"{job.model.layers} layers cannot fill {value} stages"
    if name == "tensor" and value not in job.model.tensor_degrees:
        heads = job.model.kv_heads
        what = f"{heads} heads of keys and values" if heads % value else "the columns of every layer's MLP"
        return f"{what} cannot be split over {value}"
    if name == "sequence":
        return f"{job.sequence} tokens cannot be split over tensor = {search.best.plan.tensor}"
    return f"no legal plan on {search.best.plan.world} devices has it"


def _helps(search: Search) -> Iterator[tuple[str, float]]:
    """How much faster the best plan would be with more of one thing, the plan chosen anew."""
    job, cluster = search.job, search.cluster
    base = _fastest(search, job, cluster) or search.fastest.step_seconds
    device = cluster.device
    larger: list[tuple[str, Job, Cluster]] = [
        (
            f"twice the memory ({2 * device.memory_gib:.4g} GiB)",
            job,
            replace(cluster, device=replace(device, memory_gib=2 * device.memory_gib)),
        )
    ]
    for place, link in enumerate(cluster.links):
        links = [replace(each, gbs=2 * each.gbs) if i == place else each for i, each in enumerate(cluster.links)]
        larger.append((f"twice as fast a link '{link.name}'", job, replace(cluster, links=tuple(links))))
    batch = 2 * job.train.global_batch
    larger.append((f"twice the batch ({batch})", replace(job, train=replace(job.train, global_batch=batch)), cluster))
    for change, wanted, machine in larger:
        seconds = _fastest(search, wanted, machine)
        if seconds is not None:
            tokens = wanted.tokens_per_step / job.tokens_per_step
            yield change, base / seconds * tokens


def _fastest(search: Search, job: Job, cluster: Cluster) -> float | None:
    """Seconds of the fastest plan for another job or machine, on as many devices."""
    wish = SearchGoal("fastest", search.wish.fixed)
    job = replace(job, plan=None, predicted=None, cluster=cluster)
    found = Candidates(job, *priced(job, cluster, [search.best.plan.world], wish.fixed), wish).finest()
    return None if found is None else found.step_seconds


def _takeaways(search: Search) -> Iterator[str]:
    """The three of PTD-P §3, where they have something to say about this plan."""
    best, cluster = search.best, search.cluster
    plan = best.plan
    if cluster.nodes > 1 and plan.tensor > 1 and plan.world > cluster.devices:
        inside = plan.tensor <= cluster.devices
        yield (
            f"Tensor parallelism up to the size of a node, pipeline across nodes (PTD-P, takeaway 1): "
            f"tensor {plan.tensor} "
            + (f"stays inside a node of {cluster.devices}." if inside else f"leaves a node of {cluster.devices} here.")
        )
    if plan.data > 1:
        size, least = plan.tensor * plan.pipeline, _least_split(search)
        other = "the least that fits" if size == least else f"{least} would also fit, but be slower"
        yield (
            f"Split the model until it fits, then add replicas (PTD-P, takeaway 2): "
            f"tensor × pipeline = {size}, {other}; {plan.data} replicas."
        )
    if plan.pipeline > 1:
        m = plan.microbatches(best.job.train.global_batch)
        yield (
            f"The best microbatch trades larger matrix products for a longer bubble (PTD-P, takeaway 3): "
            f"{plan.microbatch} sample{'s' * (plan.microbatch > 1)}, {m} microbatches, a bubble of {best.bubble:.1%}."
        )


def _least_split(search: Search) -> int:
    """The least tensor × pipeline of which some plan fits."""
    columns, candidates = search.space.columns, search.candidates
    sizes = (columns["tensor"] * columns["pipeline"])[candidates.rows]
    for size in np.unique(sizes):
        rows = candidates.rows[sizes == size]
        if any(candidates.exact(int(row)) for row in rows[np.argsort(search.step.memory_at_least[rows])]):
            return int(size)
    raise AssertionError("the best plan fits")
