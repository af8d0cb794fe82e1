"""How far a prediction may be off: by how much it missed measured runs of the same kind.

`residuals.csv` has one line for every run that predictions are held against and that no constant was fitted to. It is
computed by `benchmarks/accuracy/residuals.py`.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from heddle.spec.cluster import Device

COVERED = 0.8  # share of runs that a bar is to hold
FEWEST = 20  # runs that a bar is made from: fewer are of one source, and know nothing of others
GENERATIONS = {  # by the names of devices
    "Ampere": r"\bA(100|800|10G?|30|40)\b|RTX 30\d0",
    "Hopper": r"\bG?H(100|200|800|20)\b",
    "Blackwell": r"\bG?B(100|200|300)\b|RTX 50\d0",
}


class RunKind(NamedTuple):
    """What runs may have in common."""

    generation: str  # of the device; empty: not one that runs were measured on
    software: str  # the first word of its profile
    context: bool  # several ranks share the tokens of a sample
    sharded: bool  # parameters are sharded, ZeRO-3
    eight_bits: bool


# what similar runs share, the closest first: of the first such kind with enough runs the bar is made
SHARED: tuple[tuple[str, ...], ...] = (
    RunKind._fields,
    ("generation", "software", "context", "sharded"),
    ("generation", "software", "context"),
    ("generation", "context", "sharded"),
    ("generation", "context"),
    ("generation",),
    (),
)


class Residual(NamedTuple):
    """One measured run: its kind, and the logarithm of measured over predicted seconds."""

    kind: RunKind
    log_ratio: float


@dataclass(frozen=True)
class ErrorBar:
    """Within `share` either way of a prediction lie `covered` of so many similar runs."""

    share: float
    runs: int
    covered: float
    shared: tuple[str, ...]  # what they have in common with what is predicted

    def __str__(self) -> str:
        return f"± {100 * self.share:.2g} % ({100 * self.covered:.0f} % of {self.runs} similar runs lie within)"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "error_bar": {
                "share": self.share,
                "covered": self.covered,
                "similar_runs": self.runs,
                "similar_in": list(self.shared),
            }
        }


def generation_of(device: Device) -> str:
    """The generation of a device that runs were measured on; empty for others."""
    return next((name for name, words in GENERATIONS.items() if re.search(words, device.name)), "")


def kind_of(device: Device, profile: str, context: float, zero: float, eight_bits: float) -> RunKind:
    """The kind of a run."""
    return RunKind(generation_of(device), profile.split()[0], context > 1, zero >= 3, bool(eight_bits))


def error_bar(kind: RunKind, known: Sequence[Residual] | None = None) -> ErrorBar | None:
    """The bar of a prediction of that kind; None on devices that no run was measured on.

    The smallest bar that holds the share `COVERED` of runs yet unseen: of n residuals in order of size the
    ceil((n + 1) · COVERED)-th (split conformal prediction, Vovk, Gammerman and Shafer 2005, §2).
    """
    if not kind.generation:
        return None
    known = residuals() if known is None else known
    for shared in SHARED:
        wanted = tuple(getattr(kind, name) for name in shared)
        alike = [each for each in known if tuple(getattr(each.kind, name) for name in shared) == wanted]
        if len(alike) >= FEWEST:
            sizes = sorted(abs(each.log_ratio) for each in alike)
            place = math.ceil((len(sizes) + 1) * COVERED)
            return ErrorBar(math.expm1(sizes[place - 1]), len(sizes), COVERED, shared)
    return None


@cache
def residuals() -> tuple[Residual, ...]:
    """All that are known."""
    with (files("heddle.simulating") / "residuals.csv").open(encoding="utf-8") as file:
        return tuple(
            Residual(
                RunKind(
                    row["generation"],
                    row["software"],
                    row["context"] == "1",
                    row["sharded"] == "1",
                    row["eight_bits"] == "1",
                ),
                float(row["log_ratio"]),
            )
            for row in csv.DictReader(line for line in file if not line.startswith("#"))
        )
