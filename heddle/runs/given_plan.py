"""The plan that a run is to return to, as long as it goes on under another for want of devices."""

from __future__ import annotations

import json

from heddle.durable import replace_text
from heddle.runs.folder import Run
from heddle.spec.job import Job
from heddle.spec.plan import Plan, Predicted
from heddle.spec.tables import build, read_json, to_table


def keep_given(run: Run, given: Job | None) -> None:
    """Note it, or that there is none."""
    if given is None:
        run.given_plan.unlink(missing_ok=True)
        return
    tables = {"plan": to_table(given.plan)}
    if given.predicted is not None:
        tables["predicted"] = to_table(given.predicted)
    replace_text(run.given_plan, json.dumps(tables, indent=2) + "\n")


def given_plan(run: Run, begun: Job) -> tuple[Plan | None, Predicted | None]:
    """The plan that a run has, whichever it goes on under for want of devices."""
    if not run.given_plan.is_file():
        return begun.plan, begun.predicted
    tables = read_json(run.given_plan, "the plan that a run is to return to")
    predicted = tables.get("predicted")
    return build(Plan, tables["plan"], "plan"), None if predicted is None else build(Predicted, predicted, "predicted")
