"""Which replicas can share what ZeRO shards, where they are fewer than all: hybrid sharding."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError, divisors, listing


class Sharing(Protocol):
    """What of a plan it depends on."""

    @property
    def zero_within(self) -> int: ...
    @property
    def zeros(self) -> frozenset[int]: ...
    @property
    def replicas(self) -> int: ...
    @property
    def expert(self) -> int: ...
    @property
    def whole_experts(self) -> bool: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def compress_gradients(self) -> str: ...
    @property
    def codes(self) -> tuple[object, ...]: ...


def check_within(plan: Sharing) -> None:
    """Refuse neighbors that do not come out even, and those that have nothing to share."""
    within = plan.zero_within
    if not within:
        return
    if not any(plan.zeros):
        raise HeddleError(
            f"zero_within = {within} needs zero.",
            "It says how many neighboring replicas share what ZeRO shards, and zero = 0 shards nothing.",
            "Use zero = 1, 2 or 3, or leave zero_within out.",
        )
    possible = [count for count in divisors(plan.replicas) if count > 1]
    if within not in possible:
        hint = f"Use {listing(possible)}, or leave it out." if possible else "Leave it out: there is one replica."
        raise HeddleError(
            f"zero_within = {within} cannot divide {plan.replicas} replicas.",
            "Each group of neighbors holds the whole model once, and all groups are equal.",
            hint,
        )
    if plan.expert > 1 or plan.whole_experts:
        what = f"expert = {plan.expert}" if plan.expert > 1 else "expert_tensor = 1"
        raise HeddleError(
            f"zero_within = {within} cannot be combined with {what}.",
            "Ranks that hold the same experts are other ones than those that hold the same layers.",
            "Use expert = 1, or leave zero_within out.",
        )
    if plan.local_steps or plan.compress_gradients != "none" or plan.codes:
        what = "local_steps" if plan.local_steps else "compressed gradients"
        raise HeddleError(
            f"zero_within = {within} cannot be combined with {what}.",
            "Sums inside a group and between groups would need codes, or meetings, of their own.",
            f"Leave zero_within out, or {what}.",
        )
