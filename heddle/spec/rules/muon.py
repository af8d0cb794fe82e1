"""Which plans Muon is exact under."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError
from heddle.schedule.late import SYNCHRONOUS
from heddle.spec.layer_memory import LayerRun


class MuonFields(Protocol):
    """What of a plan it depends on."""

    @property
    def update(self) -> str: ...
    @property
    def check_step(self) -> str: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def offload(self) -> tuple[str, ...]: ...
    @property
    def layers(self) -> tuple[LayerRun, ...]: ...


class Optimizing(Protocol):
    """What of a training it depends on."""

    @property
    def optimizer(self) -> str: ...
    @property
    def meeting(self) -> str | None: ...


def check_muon(plan: MuonFields, train: Optimizing) -> None:
    """Refuse what corrects, undoes or moves AdamW's moments, which matrices do not have then."""
    if train.optimizer != "muon":
        return
    offloads = (plan.offload, *(run.offload or () for run in plan.layers))
    leaves = next((word for words in offloads for word in words if word.startswith("optimizer")), None)
    apart = "How replicas that learn by themselves come together was tried with AdamW alone."
    reasons = {
        f"update = '{plan.update}'": (plan.update != SYNCHRONOUS, "Late updates are corrected by AdamW's moments."),
        "check_step = 'after'": (plan.check_step == "after", "An update is undone from a copy of AdamW's moments."),
        f"local_steps = {plan.local_steps}": (plan.local_steps > 0, apart),
        "train.meeting": (train.meeting is not None, apart),
        f'offload "{leaves}"': (leaves is not None, "Matrices are made orthogonal on the device, whole."),
    }
    for what, (given, why) in reasons.items():
        if given:
            raise HeddleError(
                f"train.optimizer = 'muon' cannot be combined with {what}.",
                why,
                f"Use optimizer = 'adamw', or leave {what} out.",
            )
