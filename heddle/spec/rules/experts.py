"""Which ranks can share the experts of a layer, and which other choices of a plan that goes with."""

from __future__ import annotations

from math import gcd
from typing import Protocol

from heddle.errors import HeddleError, divisors, listing
from heddle.schedule.late import SYNCHRONOUS
from heddle.spec.model import ModelSpec
from heddle.spec.network.link_codes import Coded, codes_used


class ExpertChoices(Coded, Protocol):
    """What of a plan it depends on."""

    @property
    def expert(self) -> int: ...
    @property
    def data(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def replicas(self) -> int: ...
    @property
    def shares(self) -> tuple[int, ...]: ...
    @property
    def update(self) -> str: ...
    @property
    def local_steps(self) -> int: ...


def check_expert_degree(plan: ExpertChoices) -> None:
    """Refuse a degree that the ranks of data × context cannot be grouped by, and what needs each replica whole."""
    expert = plan.expert
    if expert == 1:
        return
    if plan.replicas % expert:
        raise HeddleError(
            f"expert = {expert} does not divide data × context = {plan.data} × {plan.context} = {plan.replicas}.",
            "It groups the ranks of data × context: those of a group share the experts of every layer.",
            f"Use expert = {_largest(plan)}, or data = {_next(plan, expert)}.",
        )
    if len(set(plan.shares)) > 1:
        raise HeddleError(
            f"shares = {list(plan.shares)} cannot be combined with expert = {expert}.",
            "Ranks that share experts exchange tokens in every layer, microbatch by microbatch.",
            "Use expert = 1, or leave shares out.",
        )
    apart = {
        f"local_steps = {plan.local_steps}": plan.local_steps > 0,
        f"update = '{plan.update}'": plan.update != SYNCHRONOUS,
        "gradients in codes": bool(codes_used(plan, "gradients")),
    }
    said = [word for word, used in apart.items() if used]
    if said:
        raise HeddleError(
            f"expert = {expert} cannot be combined with {said[0]}.",
            "It needs replicas that hold the same parameters, and those that share experts hold different ones.",
            f"Use expert = 1, or go without {said[0]}.",
        )


def _largest(plan: ExpertChoices) -> int:
    """The largest degree up to what is said that goes."""
    return max(degree for degree in divisors(plan.replicas) if degree <= plan.expert)


def _next(plan: ExpertChoices, expert: int) -> int:
    """The smallest number of replicas from what is said on that can be grouped."""
    return next(data for data in range(plan.data, plan.data + expert + 1) if data * plan.context % expert == 0)


def check_experts_split(plan: ExpertChoices, model: ModelSpec) -> None:
    """Refuse a model whose experts cannot be shared equally."""
    if plan.expert == 1:
        return
    counts = {shape.experts for shape in model.shapes} - {0}
    if not counts:
        raise HeddleError(
            f"plan.expert = {plan.expert}, but the model has no experts.",
            "It says over how many ranks the experts of a layer are split.",
            "Leave it out, or use a model with experts, such as qwen3-30b-a3b.",
        )
    uneven = sorted(count for count in counts if count % plan.expert)
    if uneven:
        fitting = [degree for degree in divisors(gcd(*counts)) if plan.replicas % degree == 0]
        raise HeddleError(
            f"{uneven[0]} experts cannot be split over expert = {plan.expert}.",
            "Every rank holds the same number of whole experts.",
            f"With data × context = {plan.replicas}, {listing(fitting)} can.",
        )
