"""Two subjects, number by number and choice by choice."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from heddle.reporting import html as text
from heddle.reporting.sections import NUMBERS, predicted
from heddle.reporting.subject import Subject
from heddle.spec.axes import WRITTEN


def comparison(subjects: Sequence[Subject]) -> str:
    """Two subjects, number by number."""
    rows = []
    for what, key, shown in NUMBERS:
        for how, values in (
            ("predicted", [predicted(subject, key) for subject in subjects]),
            ("measured", [subject.measured.median(key) if subject.measured else None for subject in subjects]),
        ):
            if any(value is not None for value in values):
                a, b = values
                times = f"{b / a:.3g} ×" if a and b is not None else "–"
                rows.append((f"{what}, {how}", shown(a), shown(b), times))
    plans = [_choices(subject) for subject in subjects]
    rows += [(escape(name), escape(plans[0][name]), escape(plans[1][name]), "") for name in plans[0]]
    heads = ["", *(escape(subject.name) for subject in subjects), "second to first"]
    return text.table(heads, rows)


def _choices(subject: Subject) -> dict[str, str]:
    """The fields of a plan, for the columns of a comparison."""
    plan = subject.job.plan
    more = {"tensor": " + sequence" * plan.sequence}
    return {
        " × ".join(WRITTEN): " × ".join(f"{getattr(plan, axis)}{more.get(axis, '')}" for axis in WRITTEN),
        "schedule": plan.schedule + (f", {plan.virtual} chunks per rank" if plan.virtual > 1 else ""),
        "zero, microbatch": f"{plan.zero}, {plan.microbatch}",
        "recompute": plan.recompute if isinstance(plan.recompute, str) else "by layer",
    }
