"""Replicas that take local steps are saved and evaluated only at a meeting."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError
from heddle.spec.plan import Plan


class Habits(Protocol):
    """What of a training it depends on."""

    @property
    def meeting(self) -> str | None: ...
    @property
    def meet_every(self) -> int: ...
    @property
    def save_every(self) -> int: ...
    @property
    def eval_every(self) -> int: ...


def check_meetings(plan: Plan, train: Habits) -> None:
    """Refuse saves and evaluations at steps at which every replica has weights of its own."""
    streams = plan.fragments > 1 or plan.overlap_steps > 0  # a checkpoint has what is under way then
    key, every = ("train.meet_every", train.meet_every) if train.meeting else ("plan.local_steps", plan.local_steps)
    if not every or (streams and not train.meeting):
        return
    for name, value in (("save_every", train.save_every), ("eval_every", train.eval_every)):
        if value % every:
            raise HeddleError(
                f"train.{name} = {value} is not a multiple of {key} = {every}.",
                "Between two synchronizations every replica has its own weights.",
                f"Use {name} = {max(1, round(value / every)) * every}.",
            )
