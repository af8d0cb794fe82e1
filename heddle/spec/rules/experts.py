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
    def tensor(self) -> int: ...
    @property
    def sequence(self) -> bool: ...
    @property
    def expert_tensor(self) -> int: ...
    @property
    def whole_experts(self) -> bool: ...
    @property
    def expert_ranks(self) -> int: ...

    def tokens(self, sequence: int) -> int: ...
    @property
    def shares(self) -> tuple[int, ...]: ...
    @property
    def update(self) -> str: ...
    @property
    def local_steps(self) -> int: ...


def expert_tensor_degrees(tensor: int) -> list[int]:
    """Over how many tensor ranks the width of experts may be split: over none, or over all."""
    return sorted({1, tensor})


def check_whole_experts(plan: ExpertChoices, model: ModelSpec, sequence: int) -> None:
    """Refuse whole experts for tensor ranks of a model without any, and tokens that these cannot share."""
    if not plan.expert_tensor:
        return
    if not any(model.expert_counts):
        raise HeddleError(
            f"plan.expert_tensor = {plan.expert_tensor}, but the model has no experts.",
            "It says over how many tensor ranks the width of each expert is split.",
            "Leave it out, or use a model with experts, such as qwen3-30b-a3b.",
        )
    if plan.whole_experts and plan.tokens(sequence) % plan.tensor:
        raise HeddleError(
            f"A microbatch of {plan.tokens(sequence)} tokens cannot be split over tensor = {plan.tensor}.",
            "With expert_tensor = 1 every tensor rank sends its own share of the tokens to experts.",
            f"Use microbatch = {plan.tensor}, or expert_tensor = {plan.tensor}.",
        )


def check_expert_degree(plan: ExpertChoices) -> None:
    """Refuse a degree that the ranks of data × context cannot be grouped by, and what needs each replica whole."""
    expert = plan.expert
    if plan.expert_tensor not in (0, *expert_tensor_degrees(plan.tensor)):
        raise HeddleError(
            f"expert_tensor = {plan.expert_tensor} with tensor = {plan.tensor}.",
            "The width of experts is split over all tensor ranks, or over none of them.",
            f"Use {listing(expert_tensor_degrees(plan.tensor))}.",
        )
    if expert == 1 and not plan.whole_experts:
        return
    if plan.expert_ranks % expert:
        sizes = [plan.tensor] * plan.whole_experts + [plan.data, plan.context]
        words = "tensor × data × context" if plan.whole_experts else "data × context"
        raise HeddleError(
            f"expert = {expert} does not divide {words} = {' × '.join(map(str, sizes))} = {plan.expert_ranks}.",
            f"It groups the ranks of {words}: those of a group share the experts of every layer.",
            f"Use expert = {_largest(plan)}, or data = {_next(plan, expert)}.",
        )
    if len(set(plan.shares)) > 1:
        raise HeddleError(
            f"shares = {list(plan.shares)} cannot be combined with expert = {expert}.",
            "Ranks that share experts exchange tokens in every layer, microbatch by microbatch.",
            "Use expert = 1, or leave shares out.",
        )
    what = f"expert = {expert}" if expert > 1 else "expert_tensor = 1"
    apart = {
        f"local_steps = {plan.local_steps}": plan.local_steps > 0,
        f"update = '{plan.update}'": plan.update != SYNCHRONOUS,
        "gradients in codes": bool(codes_used(plan, "gradients")),
    }
    said = [word for word, used in apart.items() if used]
    if said:
        raise HeddleError(
            f"{what} cannot be combined with {said[0]}.",
            "It needs replicas that hold the same parameters, and those that share experts hold different ones.",
            f"Use expert = 1 and no expert_tensor, or go without {said[0]}.",
        )


def _largest(plan: ExpertChoices) -> int:
    """The largest degree up to what is said that goes."""
    return max(degree for degree in divisors(plan.expert_ranks) if degree <= plan.expert)


def _next(plan: ExpertChoices, expert: int) -> int:
    """The smallest number of replicas from what is said on that can be grouped."""
    each = plan.expert_ranks // plan.data
    return next(data for data in range(plan.data, plan.data + expert + 1) if data * each % expert == 0)


def check_experts_split(plan: ExpertChoices, model: ModelSpec) -> None:
    """Refuse a model whose experts cannot be shared equally, or whose biases follow what replicas do not share."""
    apart = f"local_steps = {plan.local_steps}" if plan.local_steps else f"update = '{plan.update}'"
    if model.balance_rate and (plan.local_steps or plan.update != SYNCHRONOUS):
        raise HeddleError(
            f"model.balance_rate = {model.balance_rate} cannot be combined with {apart}.",
            "Biases follow the use of experts in the whole batch, step by step.",
            f"Use balance_rate = 0 with balance_loss, or go without {apart}.",
        )
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
        fitting = [degree for degree in divisors(gcd(*counts)) if plan.expert_ranks % degree == 0]
        raise HeddleError(
            f"{uneven[0]} experts cannot be split over expert = {plan.expert}.",
            "Every rank holds the same number of whole experts.",
            f"Of the {plan.expert_ranks} ranks that may share them, {listing(fitting)} can.",
        )
