"""Full, LoRA or QLoRA: what of a model may learn on the devices that a job has, and what each way takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.planning.best import best
from heddle.planning.request import PlanRequest
from heddle.planning.search.describe import in_words
from heddle.simulating.simulation import Simulation
from heddle.spec.job import Job
from heddle.spec.tune import Lora, Tune, adapter_parameters

FULL, LORA, QLORA = "full", "LoRA", "QLoRA"


@dataclass(frozen=True)
class Method:
    """One way to fine-tune a job's model on its devices."""

    name: str
    learned: int  # parameters that learn
    found: Simulation | None  # its best plan; None: none fits
    least: float = 0.0  # bytes of a device that its smallest plan needs
    why: str = ""  # it does not
    tokens: float = 0.0  # of the training

    @property
    def hours(self) -> float | None:
        """Of the training."""
        return None if self.found is None else 24 * self.found.days(self.tokens)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        about: dict[str, Any] = {"method": self.name, "learned": self.learned}
        if self.found is None:
            return about | {"why": self.why}
        return about | {
            "gib": self.found.worst / GIB,
            "least_gib": self.least / GIB,
            "step_seconds": self.found.step_seconds,
            "hours": self.hours,
            "hours_per_million_tokens": 24 * self.found.days(1e6),
            "plan": in_words(self.found.plan),
        }


def fine_tunes(job: Job) -> bool:
    """Whether a job goes on from weights that are there, or learns beside frozen ones."""
    return job.tune is not None or job.train.start_from is not None


def variants(job: Job) -> Iterator[tuple[str, Job]]:
    """The same job by every method that its model allows."""
    tune = job.tune or Tune(lora=Lora())
    yield FULL, replace(job, tune=None)
    yield LORA, replace(job, tune=replace(tune, base=None))
    if not any(job.model.expert_counts):
        yield QLORA, replace(job, tune=replace(tune, base="nf4"))


def methods(job: Job, request: PlanRequest | None = None) -> list[Method]:
    """The best plan of each on the same devices."""
    request = replace(request or PlanRequest(), top=1)
    tokens = request.tokens or float(job.train.steps * job.tokens_per_step)
    return [_method(name, each, request, tokens) for name, each in variants(replace(job, plan=None, predicted=None))]


def _method(name: str, job: Job, request: PlanRequest, tokens: float) -> Method:
    learned = job.model.parameters if job.tune is None else adapter_parameters(job.model, job.tune.adapters)
    try:
        found = best(job, request).best
    except HeddleError as error:
        return Method(name, learned, None, why=f"{error.what} {error.why}", tokens=tokens)
    assert isinstance(found, Simulation)
    leanest = best(job, replace(request, objective="smallest", days=None)).best
    assert isinstance(leanest, Simulation)
    return Method(name, learned, found, leanest.worst, tokens=tokens)
