"""What is asked of the planner, beside the job: one record, from the command line or from Python to the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any

from heddle.errors import HeddleError, shorten
from heddle.planning.search.objective import Objective
from heddle.spec.job import Job

ANYWHERE = ("fixed", "top")  # what goes with a cluster and with a network


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What to look for; `heddle.plan` describes each field."""

    objective: Objective = "fastest"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    top: int = 10
    devices: int | None = None
    memory_gib: float | None = None
    days: float | None = None
    tokens: float | None = None
    by_layer: bool | None = None
    allow_delay: bool = False
    allow_compression: str | None = None

    def check_for(self, job: Job) -> None:
        """Refuse what does not apply to a job, or makes no sense for any."""
        self._check_counts()
        if job.network is None:
            if self.allow_compression is not None:
                raise HeddleError(
                    "--allow-compression needs a [network].",
                    "It is for links that differ; those of a cluster are alike.",
                    "Set compress_gradients or compress_activations in [plan], which hold for all links.",
                )
            return
        for each in fields(self):
            if each.name in (*ANYWHERE, "allow_compression") or getattr(self, each.name) == each.default:
                continue
            raise HeddleError(
                f"--{each.name.replace('_', '-')} does not go with a [network].",
                "Over a network, Heddle looks for the fastest plan on all of its devices.",
                f"Leave {each.name} out, or describe a smaller network.",
            )

    def _check_counts(self) -> None:
        counted: dict[str, object] = {"top": self.top, "devices": self.devices}
        for name, value in counted.items():
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise HeddleError(
                    f"{name} must be a whole number of at least 1, got {shorten(value)}.",
                    "It counts plans." if name == "top" else "It counts devices.",
                    f"Leave {name} out, or use {name} = 1 or more.",
                )
