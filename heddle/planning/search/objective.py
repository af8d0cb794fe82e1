"""What a plan is chosen by: an objective, a deadline, fields that are decided already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from heddle.errors import HeddleError, nearest
from heddle.planning.search.given import Fixed
from heddle.simulating.simulation import Simulation
from heddle.spec.job import Job

Objective = Literal["fastest", "cheapest", "fewest", "smallest"]

MARGIN = 0.01  # of the step: less than the model's own error, so plans within it count as equally fast


@dataclass(frozen=True)
class SearchGoal:
    """What a plan is chosen by."""

    objective: Objective = "fastest"  # the step; device-seconds per step; devices that meet a deadline; memory
    fixed: Fixed = field(default_factory=dict)
    days: float | None = None  # the deadline
    tokens: float | None = None  # to learn from until then; None: the job's steps

    def __post_init__(self) -> None:
        if self.objective not in get_args(Objective):
            raise HeddleError(
                f"There is no objective '{self.objective}'.",
                "Plans are ranked by one objective.",
                nearest(self.objective, get_args(Objective)),
            )
        if self.objective == "fewest" and self.days is None:
            raise HeddleError(
                "The objective 'fewest' needs a deadline.",
                "It finds the fewest devices that meet one.",
                "Add --days 30, or days=30.",
            )
        for name in ("days", "tokens"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise HeddleError(
                    f"{name} must be above 0, got {value}.", "It limits what plans may take.", f"Give a {name} above 0."
                )

    def limit(self, job: Job) -> float:
        """Seconds that a step may take."""
        if self.days is None:
            return np.inf
        tokens = self.tokens or job.train.steps * job.tokens_per_step
        return self.days * 86_400 * job.tokens_per_step / tokens

    def key(self, seconds: Any, memory: Any, devices: Any) -> tuple[Any, ...]:
        """What is to be small, the most important first."""
        match self.objective:
            case "fastest":
                return seconds, memory
            case "cheapest":
                return seconds * devices, seconds
            case "fewest":
                return devices, seconds
            case "smallest":
                return memory, seconds

    def less(self, key: tuple[Any, ...], share: float) -> tuple[Any, ...]:
        """A key that is lower by a share; devices are counted, and stay."""
        counted = self.objective == "fewest"
        return tuple(value if counted and place == 0 else value * (1 - share) for place, value in enumerate(key))

    def alike(self, seconds: Any, devices: Any, first: Simulation) -> Any:
        """Whether plans are so close to the best that no model tells them from it."""
        match self.objective:
            case "smallest":  # bytes are counted, not estimated
                return seconds < 0
            case "cheapest":
                return seconds * devices <= first.step_seconds * first.plan.world * (1 + MARGIN)
            case _:
                return (devices == first.plan.world) & (seconds <= first.step_seconds * (1 + MARGIN))

    def of(self, found: Simulation) -> tuple[Any, ...]:
        """The same of one plan that was simulated."""
        return self.key(found.step_seconds, found.worst, found.plan.world)
