"""Predicted beside measured: the errors of the model on runs that others measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heddle.calibrate.runs_csv import Row, read_rows
from heddle.format import GIB
from heddle.simulating.closed_form import closed_form
from heddle.simulating.error_bar import RunKind, kind_of
from heddle.spec.cluster import Cluster


@dataclass(frozen=True)
class Compared:
    """One run, predicted and measured; errors are in per cent of the measured."""

    id: str
    group: str
    measured_s: float
    predicted_s: float
    error_pct: float
    predicted_gib: float
    measured_gib: float | None = None
    memory_error_pct: float | None = None
    assumed: tuple[str, ...] = ()
    software: str = "heddle"
    kind: RunKind | None = None


@dataclass(frozen=True)
class Errors:
    """How far off predictions are, in per cent."""

    count: int
    mape: float | None
    median: float | None
    worst: float | None
    bias: float | None

    def __str__(self) -> str:
        if not self.count:
            return "no rows"
        return (
            f"{self.count} rows, mean error {self.mape:.2f} %, median {self.median:.2f} %, worst {self.worst:.1f} %, "
            f"bias {self.bias:+.1f} %"
        )


@dataclass(frozen=True)
class Validation:
    """All rows, and what could not be modeled, with the reason."""

    rows: tuple[Compared, ...]
    skipped: tuple[tuple[str, str], ...]

    @property
    def seconds(self) -> Errors:
        """Errors of step time."""
        return _errors([row.error_pct for row in self.rows])

    @property
    def memory(self) -> Errors:
        """Errors of memory, of those runs that state it."""
        return _errors([row.memory_error_pct for row in self.rows if row.memory_error_pct is not None])

    @property
    def groups(self) -> dict[str, Errors]:
        """Errors of step time by group."""
        names = dict.fromkeys(row.group for row in self.rows)
        return {name: _errors([row.error_pct for row in self.rows if row.group == name]) for name in names}

    @property
    def software(self) -> dict[str, int]:
        """The profiles that rows were priced with, and how many."""
        names = [row.software for row in self.rows]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data, with the keys that `heddle validate --json` prints."""
        every = self.seconds
        return {
            "rows": [
                {key: value for key, value in asdict(row).items() if value is not None and key != "kind"}
                for row in self.rows
            ],
            "mape": every.mape,
            "median": every.median,
            "worst": every.worst,
            "bias": every.bias,
            "groups": {name: asdict(errors) for name, errors in self.groups.items()},
            "memory": asdict(self.memory),
            "software": self.software,
            "skipped": [{"id": name, "why": why} for name, why in self.skipped],
        }


def validate(paths: Sequence[Path], cluster: Cluster | None = None) -> Validation:
    """Predict every run of some files, on one cluster or on the presets of their GPUs."""
    compared: list[Compared] = []
    skipped: list[tuple[str, str]] = []
    for path in paths:
        rows, left_out = read_rows(path, cluster)
        skipped += left_out
        for row in rows:
            step = closed_form(row.work, row.cluster)
            seconds, held = float(step.seconds), float(step.memory) / GIB
            if row.allocated:
                held /= 1 + row.cluster.efficiency.slack
            known = row.memory_gib
            compared.append(
                Compared(
                    id=row.id,
                    group=row.group,
                    measured_s=row.seconds,
                    predicted_s=seconds,
                    error_pct=100 * (seconds / row.seconds - 1),
                    predicted_gib=held,
                    measured_gib=known,
                    memory_error_pct=None if known is None else 100 * (held / known - 1),
                    assumed=row.assumed,
                    software=str(row.software.profile),
                    kind=_kind(row),
                )
            )
    return Validation(tuple(compared), tuple(skipped))


def residual_lines(runs: Sequence[Compared]) -> list[str]:
    """The file that error bars are made from."""
    groups = ", ".join(dict.fromkeys(row.group for row in runs))
    lines = ["# computed by benchmarks/accuracy/residuals.py: runs that predictions were held against, none fitted to"]
    lines += [f"# {groups}", ",".join([*RunKind._fields, "log_ratio"])]
    for row in runs:
        assert row.kind is not None
        generation, software, *shared = row.kind
        ratio = float(np.log(row.measured_s / row.predicted_s))
        lines.append(",".join([generation, software, *(str(int(each)) for each in shared), f"{ratio:.4f}"]))
    return lines


def _kind(row: Row) -> RunKind:
    profile = "unknown" if "software = heddle" in row.assumed else row.software.profile
    work = row.work
    return kind_of(row.cluster.device, profile, float(work.context), float(work.zero), float(work.fp8))


def _errors(errors: Sequence[float | None]) -> Errors:
    if not errors:
        return Errors(0, None, None, None, None)
    signed = np.array(errors, dtype=float)
    sizes = np.abs(signed)
    return Errors(len(errors), float(sizes.mean()), float(np.median(sizes)), float(sizes.max()), float(signed.mean()))
