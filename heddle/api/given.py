"""What users hand over: a job or its file, a cluster or its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heddle.errors import HeddleError

if TYPE_CHECKING:
    from heddle.spec.cluster import Cluster
    from heddle.spec.job import Job


def job_of(job: Job | str | Path) -> Job:
    """A job, or the one in a file."""
    from heddle.spec.job import Job, load_job

    if isinstance(job, Job):
        return job
    if isinstance(job, str | Path):
        return load_job(job)
    raise HeddleError(
        f"A job is a heddle.Job or the path of its file, not {_article(job)}.",
        "It says what is trained, and on what.",
        'Make one with heddle.job(model="gpt2-xl", cluster="dgx-h100"), or read one with heddle.load_job("job.toml").',
    )


def cluster_of(cluster: Cluster | str | Path) -> Cluster:
    """A cluster, the one in a file, or a preset."""
    from heddle.spec.cluster import Cluster
    from heddle.spec.shorthand import named_cluster

    if isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, str | Path):
        return named_cluster(str(cluster))
    raise HeddleError(
        f"A cluster is a heddle.Cluster, a preset or the path of a file, not {_article(cluster)}.",
        "It says which devices and links there are.",
        'For example cluster="dgx-h100".',
    )


def path_of(path: object, what: str) -> Path:
    """A path; `what` says of which file or folder, for whoever hands over something else."""
    if isinstance(path, str | Path):
        return Path(path)
    from heddle.spec.job import Job

    written = "Path('job.toml').write_text(heddle.spec.job.dumps_job(job)) writes one."
    raise HeddleError(
        f"This takes the path of {what}, not {_article(path)}.",
        "It reads what is on disk.",
        f"Give the path of a file; {written}" if isinstance(path, Job) and "job file" in what else f"Give {what}.",
    )


def paths_of(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """One path or several."""
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def _article(value: object) -> str:
    kind = type(value).__name__
    return f"a{'n' * (kind[0] in 'aeiouAEIOU')} {kind}"
