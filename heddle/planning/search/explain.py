"""Why this plan: what each neighboring choice would cost, what would help most, and what the papers say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heddle.cost.breakdown import STEP, exchanged
from heddle.errors import listing
from heddle.format import GIB, figures, memory_unit, seconds_in_words, signed_seconds
from heddle.planning.layer_memory.explain import next_gib, reasons, smallest_budget
from heddle.planning.layer_memory.families import BY_LAYER
from heddle.planning.search.candidates import Candidates
from heddle.planning.search.context import context_reasons
from heddle.planning.search.describe import in_words, recompute_in_words
from heddle.planning.search.experts import expert_reasons, no_such_degree
from heddle.planning.search.given import ALL
from heddle.planning.search.larger import gains_of
from heddle.planning.search.legal import RECOMPUTE, worth_sharing
from heddle.planning.search.objective import MARGIN
from heddle.planning.search.pricing import priced
from heddle.planning.search.ranking import parts
from heddle.planning.search.search import Search, summary
from heddle.schedule.registry import BY_DEFAULT
from heddle.simulating.simulation import Simulation
from heddle.spec.axes import DEGREES
from heddle.spec.plan import Plan
from heddle.spec.rules.context import PLAN_EXCHANGES
from heddle.spec.software import CONTEXT_EXCHANGES

OTHERS = (
    *("expert_tensor", "context_exchange", "virtual", "sequence", "zero", "zero_within", "microbatch", "recompute"),
    "schedule",
)
LINES = 12  # on layers
WORTH = 0.0005  # of the tokens per second: what gains less helps nothing


@dataclass(frozen=True)
class Neighbor:
    """One choice made otherwise, the rest as near to the plan as can be."""

    change: str
    simulation: Simulation | None  # None: there is no such plan
    why: str


@dataclass(frozen=True)
class Explanation:
    """The reasons for the first choice of a search."""

    search: Search
    plan: tuple[str, ...]
    neighbors: tuple[Neighbor, ...]
    helps: tuple[tuple[str, float], ...]  # a change, and how many times as many tokens per second it gives
    takeaways: tuple[str, ...]
    in_short: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "plan": list(self.plan),
            "neighbors": [
                {"change": each.change, "why": each.why, **(summary(each.simulation) if each.simulation else {})}
                for each in self.neighbors
            ],
            "helps": [{"change": change, "speedup": gain} for change, gain in self.helps],
            "takeaways": list(self.takeaways),
            "in_short": list(self.in_short),
        }


def explain(search: Search) -> Explanation:
    """Look around the best plan of a search."""
    neighbors = tuple(_neighbors(search))
    gains = sorted(gains_of(search), key=lambda change: -change[1])
    helps = tuple((change, gain) for change, gain in gains if gain - 1 >= WORTH)
    return Explanation(
        search,
        tuple(described(search.best)),
        neighbors,
        helps,
        tuple(_takeaways(search)),
        tuple(_in_short(search, neighbors, helps)),
    )


def described(best: Simulation) -> Iterator[str]:
    """The plan in words and numbers."""
    plan, job = best.plan, best.job
    yield in_words(plan)
    called = {name: item.words for name, item in STEP.items()}
    called["data"] = exchanged(plan.replicas, plan.tied_stages if job.model.tied else 1) or called["data"]
    shares = {called[name]: float(value) / best.step_seconds for name, value in best.breakdown._asdict().items()}
    largest = sorted(((share, name) for name, share in shares.items() if share >= 0.005), reverse=True)
    yield f"A step takes {figures(best.step_seconds)} s: " + ", ".join(f"{name} {share:.1%}" for share, name in largest)
    m = plan.microbatches(job.train.global_batch)
    yield f"Each replica works through {m} microbatch{'es' * (m != 1)} of {plan.microbatch * job.sequence:,} tokens."
    if plan.context > 1:
        tokens, exchange = plan.tokens(job.sequence), plan.context_exchange
        yield f"{plan.context} ranks share them: {tokens:,} tokens each, exchange by {exchange}."
        yield from context_reasons(best)
    yield from expert_reasons(best)
    breakdown = best.memory[best.fullest]._asdict()
    unit, size = memory_unit(best.worst)
    parts = ", ".join(f"{name} {float(value) / size:.3g}" for name, value in breakdown.items() if value >= 0.005 * size)
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
        saves = f"{seconds_in_words(gain)} per step" if gain > 0 else "nothing"
        yield f"One GiB more per device would save {saves} with the same split."
    yield f"The least that this split can do with is {smallest_budget(best):.3g} GiB per device."


def _neighbors(search: Search) -> Iterator[Neighbor]:
    """Each degree doubled and halved, other schedules, levels, words of recompute and microbatches.

    Where several such changes lead to one and the same plan, it is told once. So is a split whose layers choose for
    themselves, as the ranking has it if it is there.
    """
    ranked = {_split(each.plan): each for each in reversed(search.plans)}
    plans: dict[Plan, tuple[Simulation, list[str]]] = {}
    others = []
    experts = search.job.model.expert_counts != {0}
    for name, value in _changes(search.best.plan, search.job.sequence, experts):
        found = _neighbor(search, name, value)
        if isinstance(found, Neighbor):
            others.append(found)
            continue
        key = _split(found[1].plan)
        plans.setdefault(key, (ranked.get(key, found[1]), []))[1].append(found[0])
    for simulation, changes in sorted(plans.values(), key=lambda each: search.goal.of(each[0])):
        yield _judged(search, changes, simulation)
    yield from others


def _split(plan: Plan) -> Plan:
    """The plan, or where its layers choose for themselves, its split."""
    return replace(plan, layers=(), stages=(), zero=0, recompute="none", offload=()) if plan.layers else plan


def _changes(best: Plan, sequence: int, experts: bool) -> Iterator[tuple[str, Any]]:
    for name in (*DEGREES, "microbatch", "virtual"):
        value = getattr(best, name)
        for other in (2 * value, value // 2):
            if other < 1:
                continue
            if name == "context" and best.context == 1 and not worth_sharing(sequence, other):
                continue  # which nobody asked for
            if name == "expert" and not experts:
                continue
            if name != "virtual" or best.pipeline > 1:
                yield name, other
    if best.tensor > 1:
        yield "sequence", not best.sequence
        if experts:
            yield "expert_tensor", int(not best.whole_experts)
    for zero in best.zero_levels:
        level = zero != best.zero or bool(best.layers)
        if level and best.replicas > 1 and (zero <= 1 or best.pipeline == 1):
            yield "zero", zero
    if best.zero_within:
        yield "zero_within", 0
    yield from (("recompute", word) for word in RECOMPUTE if word != best.recompute or best.layers)
    if best.context > 1:
        yield from (("context_exchange", word) for word in PLAN_EXCHANGES if word != best.context_exchange)
    if best.pipeline > 1:
        yield "schedule", ALL


def _neighbor(search: Search, name: str, value: Any) -> Neighbor | tuple[str, Simulation]:
    """A plan that makes that one choice otherwise, about the fastest: a search with the choice fixed looks at more."""
    change = f"{name} = {str(value).lower() if isinstance(value, bool) else value}"
    change += " in all layers" if name in BY_LAYER and search.best.plan.layers else ""
    if name in search.goal.fixed:
        return Neighbor(change, None, f"{name} is fixed")
    if name == "schedule":
        other = search.other_schedule
        return (
            Neighbor(change, None, "no other schedule fits")
            if other is None
            else (f"{name} = {other.plan.schedule}", other)
        )
    candidates = _candidates(search, name, value)
    lists: dict[str, tuple[str, ...]] = {"recompute": RECOMPUTE, "context_exchange": CONTEXT_EXCHANGES}
    wanted = candidates.space.columns[name] == (lists[name].index(value) if name in lists else int(value))
    if not wanted.any() and name not in BY_LAYER:
        return Neighbor(change, None, _no_such_plan(search, name, value))
    some = candidates.among(wanted, name)
    # layers choose for themselves where they do in the best plan, or where nothing fits otherwise
    found = None if search.best.plan.layers else candidates.among(wanted, name, alike=True).hopeful()
    found = found or some.hopeful()
    if found is None:
        least_held = _least_memory(search, name, value) if name in BY_LAYER else some.least_memory
        needs, has = least_held / GIB, search.cluster.device.memory_gib
        if needs == np.inf:
            return Neighbor(change, None, _no_such_plan(search, name, value))
        least = f": at least {needs:.1f} GiB of {has:.4g}" if has < needs else ""
        return Neighbor(change, None, f"does not fit{least}")
    return change, found


def _candidates(search: Search, name: str, value: Any) -> Candidates:
    """Plans among which there are those with a choice: some levels of ZeRO are there only when asked for."""
    if name != "zero" or value == 0:
        return search.candidates
    counts = np.unique(search.space.devices).tolist()
    space, step = priced(search.job, search.cluster, counts, {**search.goal.fixed, name: value}, "fitting")
    return Candidates(search.job, space, step, search.goal)


def _least_memory(search: Search, name: str, value: Any) -> float:
    """Bytes per device that no plan needs less than which has a choice for all of its layers; infinite: there is none.

    Most of what does not fit is not among the candidates.
    """
    fixed = {**search.goal.fixed, name: value}
    step = priced(search.job, search.cluster, np.unique(search.space.devices).tolist(), fixed)[1]
    return float(np.min(step.memory_at_least, initial=np.inf))


def _judged(search: Search, changes: Sequence[str], other: Simulation) -> Neighbor:
    """What else that plan does otherwise, and where the difference is, per step."""
    best = search.best
    leaves = ["leaves the node"] * (other.plan.tensor > search.cluster.devices >= best.plan.tensor)
    more = {name: float(getattr(other.breakdown, name)) - float(getattr(best.breakdown, name)) for name in STEP}
    telling = sorted(more, key=lambda name: -abs(more[name]))[:2]
    reasons = [
        f"{signed_seconds(more[name])} of {STEP[name].words}"
        for name in telling
        if abs(more[name]) > 0.002 * best.step_seconds
    ]
    faster = other.step_seconds < (1 - MARGIN) * search.fastest.step_seconds
    if faster and other.plan.schedule not in BY_DEFAULT:
        reasons.append("not searched unless asked for: --schedule all")
    elif search.goal.alike(other.step_seconds, other.plan.world, search.fastest):
        theirs, ours = (parts(each.plan, each.worst / each.limit) for each in (other, best))
        needs = [part for part in theirs if part not in ours]
        reasons.append(f"as fast within {MARGIN:.0%}" + (f", but needs {listing(needs)}" if needs else ""))
    named = {each.partition(" = ")[0] for each in changes}
    also = _difference(best.plan, other.plan, named)  # doubling one degree halves another
    told = [*[f"with {also}"] * bool(also), *leaves, *reasons]
    return Neighbor(", ".join(changes), other, "; ".join(told))


def _difference(best: Plan, other: Plan, named: set[str]) -> str:
    """What else the other plan chooses otherwise."""
    names = [
        each for each in (*DEGREES, *OTHERS[:-1]) if each not in named and getattr(best, each) != getattr(other, each)
    ]
    if other.layers:  # these choose for themselves
        names = [each for each in names if each not in BY_LAYER]
    words = {each: str(getattr(other, each)).lower() for each in names} | {"recompute": recompute_in_words(other)}
    own = ["memory chosen by layer"] * bool(other.layers and not best.layers)
    return ", ".join([*(f"{each} {words[each]}" for each in names), *own])


def _no_such_plan(search: Search, name: str, value: Any) -> str:
    """Why a choice is not among the legal ones."""
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
    if name == "context" and job.sequence % (2 * value):
        return f"{job.sequence} tokens cannot be cut into {2 * value} equal blocks"
    if name == "context" and not worth_sharing(job.sequence, value):
        return (
            f"samples of {job.sequence:,} tokens are not shared by {value} devices unless asked for: --context {value}"
        )
    if name == "expert":
        return no_such_degree(search.best, value)
    if name == "context_exchange":
        parts = "groups of its ranks in a node" if value == "2d" else "tensor × context"
        return f"{job.model.kv_heads} heads of keys and values cannot be split over {parts}"
    if name == "sequence":
        return f"{job.sequence} tokens cannot be split over tensor = {search.best.plan.tensor}"
    return f"no legal plan on {search.best.plan.world} devices has it"


def _in_short(search: Search, neighbors: Sequence[Neighbor], helps: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Three sentences: what a step goes into, the nearest alternative, what would help most."""
    best = search.best
    shares = {name: float(value) / best.step_seconds for name, value in best.breakdown._asdict().items()}
    lost = max((name for name in shares if name != "compute"), key=shares.__getitem__)
    loss = f"{STEP[lost].words} ({shares[lost]:.0%})" if shares[lost] >= 0.005 else "less than 1%"
    yield (
        f"Of a step {shares['compute']:.0%} is {STEP['compute'].words}, the largest loss is {loss}, "
        f"and the fullest device has {(best.limit - best.worst) / GIB:.3g} GiB left."
    )
    others = [(each.simulation, each.change) for each in neighbors if each.simulation is not None]
    others += [(each, f"plan {place} of the table") for place, each in enumerate(search.plans[1:], 2)]
    if others:
        near, change = min(others, key=lambda each: search.goal.of(each[0]))
        share = near.step_seconds / best.step_seconds - 1
        yield f"The nearest alternative is {change} ({share:+z.1%} per step): {in_words(near.plan)}."
    if helps:
        change, gain = helps[0]
        yield f"Most would be gained by {change}: {gain - 1:+.1%} tokens/s."
    else:
        yield "Twice the memory, faster links or a larger batch would gain nothing."


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
            f"{plan.microbatch} sample{'s' * (plan.microbatch > 1)}, {m} microbatches, "
            f"a bubble of {best.bubble:.1%} of the ideal time."
        )


def _least_split(search: Search) -> int:
    """The least tensor × pipeline of which some plan fits."""
    columns, candidates = search.space.columns, search.candidates
    sizes, best = columns["tensor"] * columns["pipeline"], search.best.plan
    for size in np.unique(sizes[sizes < best.tensor * best.pipeline]):
        if candidates.among(sizes == size).fits_at_all:
            return int(size)
    return best.tensor * best.pipeline
