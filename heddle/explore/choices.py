"""What a reader of the page has chosen, as the job and the request that `heddle plan` would make of it.

Nothing here runs code or opens a file that a choice names: models and clusters are presets, or those of the job file
that the command was started with.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.errors import HeddleError, nearest
from heddle.planning.fields import FIELDS, Use
from heddle.planning.request import PlanRequest
from heddle.spec.job import Job, job_from_tables
from heddle.spec.presets import cluster_presets, model_presets

OWN = "of the job file"  # the model or cluster that the command was started with
RANKED = 6  # plans that are shown
PRECISIONS = ("bf16", "fp16", "fp32")
# numbers: where each goes, the least and the most of it, and whether it is whole
NUMBERS: dict[str, tuple[str, float, float, bool]] = {
    "nodes": ("cluster.nodes", 1, 100_000, True),
    "sequence": ("model.sequence", 16, 16_777_216, True),
    "global_batch": ("train.global_batch", 1, 1_000_000, True),
    "memory_gib": ("request.memory_gib", 0.001, 100_000, False),
    "tokens": ("request.tokens", 1, 1e18, False),
    "price": ("", 0, 1e6, False),
}
PINNED = tuple(each.name for each in FIELDS if each.cluster is Use.CHOSEN and each.option is not None)


class ChoiceError(HeddleError):
    """A choice that cannot be; `field` is where the page shows it."""

    def __init__(self, field: str, what: str, why: str, hint: str) -> None:
        super().__init__(what, why, hint)
        self.field = field


@dataclass(frozen=True)
class PageChoices:
    """A job, what is asked of the planner, and how its answer is to be shown."""

    job: Job
    request: PlanRequest
    price: float | None  # dollars per device-hour
    selected: int  # which of the ranked plans is shown
    other: int | None  # and which one beside it


def read_choices(given: Any, base: Mapping[str, Any]) -> PageChoices:
    """Check everything that came from the page; `base` are the tables of the job file, or of a first job."""
    if not isinstance(given, dict):
        raise ChoiceError("", "The request is not a table.", "A page sends its choices by name.", "Reload the page.")
    document = copy.deepcopy({name: dict(table) for name, table in base.items() if name != "plan"})
    document.pop("predicted", None)
    for kind, known in (("model", model_presets()), ("cluster", cluster_presets())):
        name = given.get(kind, OWN)
        if name == OWN:
            continue
        if not isinstance(name, str) or name not in known:
            raise ChoiceError(
                kind, f"There is no {kind} {str(name)[:40]!r}.", "Presets ship with Heddle.", nearest(str(name), known)
            )
        document[kind] = {"preset": name}
    request: dict[str, Any] = {"top": RANKED}
    price = None
    for name in NUMBERS:
        if given.get(name) in (None, ""):
            continue
        value = _number(name, given[name])
        table, _, key = NUMBERS[name][0].partition(".")
        if table == "request":
            request[key] = value
        elif table:
            document.setdefault(table, {})[key] = value
        else:
            price = value
    if (precision := given.get("precision")) not in (None, ""):
        if precision not in list(PRECISIONS):
            raise ChoiceError(
                "precision",
                f"There is no precision {str(precision)[:40]!r}.",
                "Products are computed in one of three.",
                nearest(str(precision), PRECISIONS),
            )
        document.setdefault("train", {})["precision"] = precision
    request["fixed"] = _pins(given.get("pins") or {})
    job = job_from_tables(document)
    return PageChoices(job, PlanRequest(**request), price, _place(given, "selected") or 0, _place(given, "other"))


def _number(name: str, value: Any) -> float:
    _, least, most, whole = NUMBERS[name]
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    fits = type(value) in (int, float) and least <= value <= most  # no float holds every whole number
    if not fits or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise ChoiceError(
            name, f"{name} is not {kind}.", f"It is {kind} from {least:g} to {most:g}.", f"For example {least:g}."
        )
    return int(value) if whole else float(value)


def _pins(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ChoiceError("pins", "Pins are not a table.", "They are fields of a plan by name.", "Reload the page.")
    for name in given:
        if name not in PINNED:
            raise ChoiceError(
                "pins",
                f"A plan's field {str(name)[:40]!r} cannot be pinned.",
                "The planner chooses some.",
                nearest(str(name), PINNED),
            )
    return {name: value for name, value in given.items() if value is not None}


def _place(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    return value if type(value) is int and 0 <= value < RANKED else None
