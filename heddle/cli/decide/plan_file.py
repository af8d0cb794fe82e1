"""The job file that `heddle plan -o` writes: the job as it was, with the best plan and what is predicted of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle.errors import HeddleError

if TYPE_CHECKING:
    from heddle.simulating.simulation import Simulation
    from heddle.spec.job import Job


def assumed_by(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """What [train] does not say and a plan depends on."""
    chosen = {"global_batch": job.train.global_batch, "precision": job.precision}
    return {key: value for key, value in chosen.items() if key not in document.get("train", {})}


def write_plan(output: Path, document: dict[str, Any], folder: Path, job: Job, chosen: Simulation) -> None:
    """The job as it was written, with the plan and what is predicted of it."""
    from heddle.cli.common import write_output
    from heddle.cli.decide.job_paths import moved
    from heddle.spec.plan import rounded
    from heddle.spec.tables import to_table, to_toml

    _keep_others(output)
    tables = moved(document, folder, output.parent)
    # the plan is for this batch in this precision: a default that changes would make it another job's
    tables["train"] = assumed_by(document, job) | tables.get("train", {})
    tables |= {"plan": to_table(chosen.plan), "predicted": rounded(chosen.predicted)}
    write_output(output, to_toml(tables))


def _keep_others(output: Path) -> None:
    """A plan takes the place of a job or of nothing: a cluster's file is somebody's measurements."""
    from heddle.spec.tables import read_toml

    if not output.is_file():  # a pipe or a device holds nothing that could be lost
        return
    try:
        found = read_toml(output, "a job")
    except HeddleError:
        found = {}
    if "model" not in found and "train" not in found:
        raise HeddleError(
            f"{output} exists and is not a job.",
            "It would be replaced by a job with its plan.",
            "Choose another file for -o.",
        )
