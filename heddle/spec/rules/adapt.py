"""Which runs may choose the strategies of their layers once more."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError
from heddle.schedule.late import SYNCHRONOUS
from heddle.schedule.written import SEARCHED


class AdaptFields(Protocol):
    """What of a plan it depends on."""

    @property
    def adapt(self) -> bool: ...
    @property
    def update(self) -> str: ...
    @property
    def schedule(self) -> str: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def shares(self) -> tuple[int, ...]: ...


def check_adapt(plan: AdaptFields, meeting: str | None, network: bool) -> None:
    """Refuse to adapt what the search for strategies cannot price, or what has no checkpoint to go on from."""
    if not plan.adapt:
        return
    priced = "Strategies are chosen by a prediction of every layer, for devices, links and shares that are alike."
    whole = "Strategies change where all replicas have the same weights, and between two meetings they have not."
    reasons = {
        f"update = '{plan.update}'": (plan.update != SYNCHRONOUS, "Old weights are kept for microbatches under way."),
        f"schedule = '{SEARCHED}'": (plan.schedule == SEARCHED, "Its order was searched for these very strategies."),
        f"local_steps = {plan.local_steps}": (plan.local_steps > 0, whole),
        "train.meeting": (meeting is not None, whole),
        "shares": (bool(plan.shares), priced),
        "[network]": (network, priced),
    }
    for what, (given, why) in reasons.items():
        if given:
            raise HeddleError(
                f"adapt = true cannot be combined with {what}.", why, f"Use adapt = false, or leave {what} out."
            )
