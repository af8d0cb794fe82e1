"""What an optimizer remembers of each number, and which jobs may keep that in few bits."""

from __future__ import annotations

from typing import Literal, Protocol

from heddle.errors import HeddleError
from heddle.schedule.late import SYNCHRONOUS
from heddle.spec.plan import Plan

OptimizerName = Literal["adamw", "adamw8bit", "muon"]
MOMENT_BLOCK = 256  # numbers that share a scale where moments are kept in eight bits
SMALL = 4096  # parameters of fewer numbers keep theirs in full precision, as bitsandbytes' do


def moment_bytes(optimizer: OptimizerName) -> float:
    """Bytes of both moments of a number."""
    return 2 * (1 + 4 / MOMENT_BLOCK) if optimizer == "adamw8bit" else 8.0


class Optimized(Protocol):
    """What of a training it depends on."""

    @property
    def optimizer(self) -> OptimizerName: ...
    @property
    def meeting(self) -> str | None: ...


def check_optimizer(plan: Plan, train: Optimized, layers: int) -> None:
    """Refuse what looks into the moments of AdamW, and would find codes."""
    if train.optimizer != "adamw8bit":
        return
    tiers = {plan.memory_of(layer).tier("optimizer") for layer in range(layers)}
    reasons = {
        f"update = '{plan.update}'": (plan.update != SYNCHRONOUS, "Late updates correct moments."),
        f"check_step = '{plan.check_step}'": (plan.check_step != "before", "A step that is undone restores moments."),
        f"local_steps = {plan.local_steps}": (plan.local_steps > 0, "Replicas that meet exchange moments."),
        "adapt = true": (plan.adapt, "It may offload moments."),
        "train.meeting": (train.meeting is not None, "Sites that meet exchange moments."),
        "offload of the optimizer": (tiers != {None}, "Its moments are updated where they live, in full precision."),
    }
    for what, (given, why) in reasons.items():
        if given:
            raise HeddleError(
                f"train.optimizer = 'adamw8bit' cannot be combined with {what}.",
                why,
                f"Use optimizer = 'adamw', or leave {what} out.",
            )
