"""Piper's answer, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PiperStage:
    """Layers that run together on data × tensor devices."""

    layers: list[Any]  # ids
    data: int
    tensor: int
    options: list[str]  # of each layer
    in_flight: int
    seconds: float  # a microbatch of the pipeline
    memory: float  # bytes per device
    how: str = ""  # what else it does: "sequence, zero 1"


@dataclass(frozen=True)
class PiperPlan:
    """Piper's answer: stages in model order."""

    value: float  # seconds per microbatch, of the slowest stage
    lower_bound: float
    optimal: bool
    stages: list[PiperStage]
    seconds: float  # spent searching
    note: str = ""
    unrestricted: PiperPlan | None = None  # of a uniform one: the best whose stages may differ

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal else f"at best {self.lower_bound:.4g}"
        return f"<PiperPlan: {self.value:.4g} s ({proof}) in {len(self.stages)} stages on {self.devices} devices>"

    @property
    def slower_by(self) -> float:
        """Of a uniform one: how much longer a microbatch takes than where stages may differ, as a share."""
        free = self.unrestricted
        return self.value / free.value - 1 if free is not None and free.value else 0.0

    @property
    def devices(self) -> int:
        return sum(stage.data * stage.tensor for stage in self.stages)
