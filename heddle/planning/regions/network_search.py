"""What `heddle plan` finds for a job over a network: plans, why each site holds what it does, what would help."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from heddle.errors import HeddleError, listing, nearest
from heddle.format import GIB
from heddle.planning.fields import Use, over_network
from heddle.planning.regions.coded import check_allowed, codes_in_words
from heddle.planning.regions.for_job import plans_over
from heddle.planning.regions.walk import NetworkPlan
from heddle.planning.search.describe import in_words
from heddle.schedule.registry import RULES
from heddle.simulating.network.link_use import LinkUse, link_uses
from heddle.simulating.network.over_network import OverNetwork
from heddle.simulating.simulation import Simulation, simulate
from heddle.spec.job import Job
from heddle.spec.network import GroupLink, Network, Speed
from heddle.spec.network.link_codes import check_known, codes_used
from heddle.spec.plan import Plan
from heddle.spec.ranks import coordinates
from heddle.spec.tables import build, to_table

FIXABLE = over_network(Use.CHOSEN, Use.KEPT)
FASTER = 2.0  # times as fast, of a link that is tried


@dataclass(frozen=True)
class NetworkSearch:
    """Plans over a network, the fastest first."""

    job: Job  # with the best plan
    network: Network
    found: tuple[NetworkPlan, ...]
    plans: tuple[Simulation, ...]
    seconds: float

    @property
    def best(self) -> Simulation:
        """The fastest."""
        return self.plans[0]

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the keys that `heddle plan --json` prints."""
        return {
            "plans": [
                {
                    "plan": to_table(each.plan),
                    "devices": each.plan.world,
                    "step_seconds": each.step_seconds,
                    "tokens_per_second": each.tokens_per_second,
                    "mfu": each.mfu,
                    "worst_stage_gib": each.worst / GIB,
                    "headroom_gib": (each.limit - each.worst) / GIB,
                    "bubble": each.bubble,
                    "exact": not any(codes_used(each.plan, what) for what in ("gradients", "activations")),
                }
                for each in self.plans
            ],
            "held": held(self.best.plan, self.network),
            "seconds": self.seconds,
            "objective": "fastest",
        }


def search_network(
    job: Job,
    fixed: Mapping[str, Any] | None = None,
    top: int = 5,
    time_limit: float = 15.0,
    allowed: str | None = None,
) -> NetworkSearch:
    """The best plans for a job that has a network.

    `fixed` are fields of the plan that are decided; `allowed` is the narrowest code that links may use, if any may.
    """
    if allowed is not None:
        check_allowed(allowed)
    began, network = time.perf_counter(), job.network
    assert network is not None
    fixed = {name: value for name, value in (fixed or {}).items() if name not in over_network(Use.AGAIN)}
    if unknown := [name for name in fixed if name not in FIXABLE]:
        raise HeddleError(
            f"Over a network, plan.{unknown[0]} cannot be fixed.",
            "The search over a network goes by the links that plans use.",
            f"{listing(FIXABLE)} can.",
        )
    if (name := fixed.get("schedule")) is not None and name not in (possible := _schedules()):
        raise HeddleError(
            f"Over a network, schedule = {name!r} is not considered.",
            "Plans over a network have one chunk per rank, and an order that has a name.",
            nearest(str(name), possible),
        )
    checked = ("compress_gradients", "zero", "codes")
    said = build(Plan, {name: value for name, value in fixed.items() if name in checked}, "plan")
    check_known(said, network)
    if said.codes:
        fixed["codes"] = said.codes
    found = plans_over(replace(job, plan=None), network, time_limit, top, fixed, allowed)
    plans = [simulate(replace(job, plan=each.placed)) for each in found]
    return NetworkSearch(
        replace(job, plan=plans[0].plan), network, tuple(found), tuple(plans), time.perf_counter() - began
    )


def _schedules() -> list[str]:
    """Those that a plan with one chunk per rank can have."""
    possible = []
    for name in RULES:
        with suppress(HeddleError):
            possible.append(Plan(pipeline=2, schedule=name).schedule)
    return possible


def held(plan: Plan, network: Network) -> dict[str, list[list[int]]]:
    """Of each group: the stages that its devices hold, and of which replicas, as pairs."""
    devices = plan.devices or range(plan.world)
    found: dict[str, set[tuple[int, int]]] = {group.name: set() for group in network.groups}
    for rank, device in enumerate(devices):
        place = coordinates(plan, rank)
        found[network.group_of[device]].add((place.pipeline, place.data))
    return {name: [list(pair) for pair in sorted(pairs)] for name, pairs in found.items()}


def reasons(search: NetworkSearch) -> Iterator[str]:
    """Why each site holds what it holds, and what would make the step shorter."""
    best, network = search.best, search.network
    priced = best.network
    assert priced is not None
    plan = best.plan
    for group, pairs in held(plan, network).items():
        stages, replicas = ({pair[which] for pair in pairs} for which in (0, 1))
        why = (
            "whole pipelines, so that no activation leaves it"
            if len(stages) == plan.pipeline
            else "all replicas of its stages, so that their sums stay inside"
            if len(replicas) == plan.data and plan.data > 1
            else "neither whole pipelines nor all replicas of a stage"
        )
        yield f"{group} holds {_numbered('stage', stages)} of {_numbered('pipeline', replicas)}: {why}."
    yield from _uneven(priced)
    uses = link_uses(priced)
    if uses:
        first = uses[0]
        yield (
            f"The busiest link leads from {first.source} to {first.target}: "
            f"{(first.stages + first.replicas) / 1e6:.3g} MB, {first.busy:.3g} s of a step of "
            f"{best.step_seconds:.3g} s."
        )
        yield from _faster(search, first)
    yield from _less(search)


def _uneven(priced: OverNetwork) -> Iterator[str]:
    plan = priced.plan
    if len(set(plan.stages)) > 1:
        layers = ", ".join(map(str, plan.stages))
        yield f"Stages have {layers} layers, in proportion to device speed after the model's ends are counted."
    if plan.shares:
        yield f"Replicas take {', '.join(map(str, plan.shares))} samples, in proportion to device speed."


def _numbered(what: str, values: set[int]) -> str:
    return f"{what}{'s' * (len(values) > 1)} {', '.join(map(str, sorted(values)))}"


def _faster(search: NetworkSearch, use: LinkUse) -> Iterator[str]:
    """What the same plan gains from a faster, and from a shorter, link between two groups."""
    job, plan, now = search.best.job, search.best.plan, search.best.step_seconds
    for name, latency, gbps in (("twice the bandwidth", 1.0, FASTER), ("half the latency", 1 / FASTER, 1.0)):
        other = OverNetwork(job, changed(search.network, use.source, use.target, latency, gbps), plan.devices)
        then = other.step.seconds
        gain = 1 - then / now
        if gain > 0.005:
            yield f"With {name} there it would take {then:.3g} s ({gain:.0%} less)."


def changed(network: Network, one: str, two: str, latency: float, gbps: float) -> Network:
    """The network with what joins two groups, or lies inside one, so many times as late and as fast."""

    def scaled(speed: Speed) -> Speed:
        return Speed(latency_ms=speed.latency_ms * latency, gbps=min(1e9, speed.gbps * gbps))

    if one == two:
        groups = [
            replace(group, inside=scaled(group.inside)) if group.name == one and group.inside else group
            for group in network.groups
        ]
        return replace(network, groups=tuple(groups))
    links, said = [], set()
    for link in network.links:
        ends = {end.partition(":")[0] for end in link.ends}
        if ends == {one, two}:
            link = replace(link, latency_ms=link.latency_ms * latency, gbps=min(1e9, link.gbps * gbps))
            said |= {way for way in link.ways if not any(":" in end for end in way)}
        links.append(link)
    if network.across is not None:
        speed = scaled(network.across)
        links += [
            GroupLink(source=a, target=b, latency_ms=speed.latency_ms, gbps=speed.gbps)
            for a, b in ((one, two), (two, one))
            if (a, b) not in said
        ]
    return replace(network, links=tuple(links))


def _less(search: NetworkSearch) -> Iterator[str]:
    """What the same plan would take if less were sent; the loss may differ then."""
    job, plan, now = search.best.job, search.best.plan, search.best.step_seconds
    ways: list[tuple[str, dict[str, Any]]] = []
    coded = bool(plan.codes)
    if plan.data > 1 and not plan.local_steps and plan.zero == 0 and not coded:
        ways = [(f"compress_gradients = {code!r}", {"compress_gradients": code}) for code in ("bf16", "int8")]
        ways.append(("local_steps = 50 with int8", {"local_steps": 50, "compress_gradients": "int8", "shares": ()}))
    if plan.pipeline > 1 and plan.compress_activations == "none" and not coded:
        ways.append(("compress_activations = 'int8'", {"compress_activations": "int8"}))
    for name, fields in ways:
        try:
            then = simulate(replace(job, plan=replace(plan, **fields))).step_seconds
        except HeddleError:
            continue
        if then < now * 0.995:
            yield f"With {name} it would take {then:.3g} s ({1 - then / now:.0%} less); that is not exact."


def table_lines(search: NetworkSearch) -> Iterator[str]:
    """The plans and the layout of the best one, for people."""
    network = search.network
    for number, each in enumerate(search.plans, 1):
        step = search.found[number - 1].step
        coded = ", codes on some links" if each.plan.codes else ""
        yield f"{number}  {each.step_seconds:.4g} s per step  {in_words(each.plan)}{coded}"
        yield (
            f"   {step.pipeline:.3g} s pipeline, {step.exchange:.3g} s exchange of gradients, "
            f"{step.agreement:.3g} s agreement on loss and norm"
        )
    first = dict(zip((group.name for group in network.groups), network.first_device, strict=True))
    names = [f"{name}:{device - first[name]}" for device, name in enumerate(network.group_of)]
    plan = search.best.plan
    yield from codes_in_words(search.job, network, plan)
    if len(names) <= 64:
        yield ""
        for rank, device in enumerate(plan.devices):
            place = coordinates(plan, rank)
            yield f"rank {rank} ({place}) on {names[device]}"
