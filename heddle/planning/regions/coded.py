"""Codes that a planner may choose, where the user allows it: which links carry fewer bits, and what that saves.

Numbers are sent as they are unless asked otherwise: what a code rounds is not exact. Where codes are allowed, plans
with them stand beside exact ones. A link gets the mildest code that is as good as the narrowest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import cast

from heddle.errors import HeddleError, nearest
from heddle.simulating.network.link_use import link_uses
from heddle.simulating.network.over_network import OverNetwork
from heddle.spec.job import Job
from heddle.spec.network import Network
from heddle.spec.network.compression import BITS, ActivationCode, GradientCode, bytes_per_number
from heddle.spec.network.link_codes import LinkCodes, codes_used
from heddle.spec.plan import Plan

CODES = ("none", "bf16", "int8", "int4")  # from mild to narrow
NARROWEST = {"gradients": "int4", "activations": "int8"}  # what is said once, and never made up for, has more bits
WORTH = 0.01  # of a step, that a plan with codes must gain over an exact one
SAME = 0.002  # of a step: as good as
MOST_NAMED = 4  # pairs of groups that are exempt by name


def check_allowed(code: str) -> None:
    """Refuse a word that is not a code."""
    if code not in BITS:
        raise HeddleError(
            f"{code!r} is not a code.", "It names the fewest bits that a link may use.", nearest(code, BITS)
        )


def with_codes(plan: Plan, network: Network, allowed: str) -> Plan | None:
    """The plan with the narrowest codes between groups, or inside the only one; None where that changes nothing."""
    if plan.codes:
        return None
    gradients = allowed if plan.data > 1 and plan.zero < 2 and plan.compress_gradients == "none" else None
    activations = (
        _at_least(allowed, "activations") if plan.pipeline > 1 and plan.compress_activations == "none" else None
    )
    if gradients is None and activations is None:
        return None
    links = "between" if len(network.groups) > 1 else "inside"
    return replace(plan, codes=(_table(links, (), gradients, activations),))


def milder(job: Job, network: Network, plan: Plan, devices: tuple[int, ...]) -> Plan:
    """The same with as many bits as cost nothing: first on all links, then exactly between two groups by name."""

    def priced(tried: Plan) -> OverNetwork:
        return OverNetwork(replace(job, plan=tried, network=None), network, devices)

    limit = priced(plan).step.seconds * (1 + SAME)
    for what in ("gradients", "activations"):
        now = getattr(plan.codes[0], what) if plan.codes else None
        for code in CODES[: CODES.index(now)] if now is not None else ():
            tried = replace(plan, codes=_changed(plan.codes[0], what, code))
            if priced(tried).step.seconds <= limit:
                plan = tried
                break
    if not plan.codes:
        return plan
    codes = plan.codes[0]
    if codes.links == "inside":
        return plan
    used = {frozenset((use.source, use.target)) for use in link_uses(priced(plan))}
    for one, two in combinations([group.name for group in network.groups], 2):
        if frozenset((one, two)) not in used or len(plan.codes) > MOST_NAMED:
            continue
        exact = _table("between", (one, two), _none(codes.gradients), _none(codes.activations))
        tried = replace(plan, codes=(*plan.codes, exact))
        if priced(tried).step.seconds <= limit:
            plan = tried
    return plan


def codes_in_words(job: Job, network: Network, plan: Plan) -> Iterator[str]:
    """How much smaller what links carry is, and that the loss may differ."""
    if not codes_used(plan, "gradients") and not codes_used(plan, "activations"):
        return

    def carried(what: str, code: str) -> str:
        less = "as they are" if code == "none" else f"in {code} ({_smaller(job, what, code):.2g} times smaller)"
        return f"{what} {less}"

    for each in plan.codes:
        codes = {what: getattr(each, what) for what in ("gradients", "activations")}
        said = [carried(what, code) for what, code in codes.items() if code is not None]
        yield f"{each.words[0].upper()}{each.words[1:]} carry {' and '.join(said)}."
    exact = replace(plan, codes=(), compress_gradients="none", compress_activations="none")
    here, there = (OverNetwork(replace(job, plan=each, network=None), network) for each in (plan, exact))
    ways = [[use for use in link_uses(priced) if use.source != use.target] for priced in (here, there)]
    sizes = [sum(use.stages + use.replicas for use in uses) for uses in ways]
    yield (
        f"Between groups that is {sizes[0] / 1e9:.3g} GB per step in place of {sizes[1] / 1e9:.3g}, and "
        f"{here.step.seconds:.3g} s in place of {there.step.seconds:.3g}. Codes round: the loss may differ."
    )


def _smaller(job: Job, what: str, code: str) -> float:
    exact = 4 if what == "gradients" or job.precision == "fp32" else 2
    return float(exact / bytes_per_number(code, exact))


def _at_least(code: str, what: str) -> str:
    return max(code, NARROWEST[what], key=lambda each: BITS[each])


def _none(code: str | None) -> str | None:
    return None if code is None else "none"


def _table(links: str, groups: tuple[str, ...], gradients: str | None, activations: str | None) -> LinkCodes:
    return LinkCodes(
        links=links,  # type: ignore[arg-type]
        groups=groups,
        gradients=cast("GradientCode | None", gradients),
        activations=cast("ActivationCode | None", activations),
    )


def _changed(codes: LinkCodes, what: str, code: str) -> tuple[LinkCodes, ...]:
    """With another code for one of the two; "none" is what links have that no table names."""
    said = {"gradients": codes.gradients, "activations": codes.activations, what: None if code == "none" else code}
    return (_table(codes.links, codes.groups, **said),) if any(said.values()) else ()
