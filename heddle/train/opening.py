"""What a run needs before its first step: folders that all ranks see, tokens, weights to start from, its own folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from heddle.checkpoint.companions import carry_into_run, check_companions
from heddle.checkpoint.source import WeightSource, check_model, check_tokenizer, differences, find_source
from heddle.data import Prepared, check_vocab, prepared_for
from heddle.parallel.mesh import Mesh
from heddle.runs.folder import Run, clear, create_run, resume_run
from heddle.runtime.environment import local_place
from heddle.runtime.error_files import FOLDER as NOTES
from heddle.runtime.error_files import restart_count
from heddle.runtime.together import Together
from heddle.spec.job import Job
from heddle.train.watchdog import forget


def shared_folders(job: Job) -> list[Path]:
    """What all ranks of a run read and write."""
    cache = [Path(job.corpus.cache)] if job.corpus.tokens is None else []
    return [job.run_folder.parent, *cache]


def prepare(job: Job, together: Together, console: Console) -> Prepared:
    """The tokens, made by the first rank and opened by the others; one rank on every node compares their checksum."""
    begun = shown = time.monotonic()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal shown
        together.tick()
        if time.monotonic() > shown + 10:
            shown = time.monotonic()
            console.print(f"Tokens: {what}, {done / max(1, total):.0%} after {shown - begun:.0f} s", highlight=False)

    # Who started these processes by itself has looked at the tokens before.
    verify = job.corpus.verify and local_place()[0] == 0 and NOTES not in os.environ
    opened = partial(prepared_for, replace(job.corpus, verify=verify), progress=progress)
    data: Prepared = together.first("the tokens", opened, opened)
    check_vocab(data, job.model.vocab)
    together.all("the tokens' checksums")
    return data


def find_weights(job: Job, data: Prepared, mesh: Mesh, warn: Callable[[str], None]) -> WeightSource | None:
    """The weights that the job starts from, found and checked before anything is made."""
    if job.train.start_from is None:
        return None
    source = find_source(Path(job.train.start_from), mesh, warn)
    check_model(source, job.model)
    if mesh.rank == 0:
        check_companions(source)
        check_tokenizer(source, data)
    if words := differences(source, job.model):
        warn(f"[model] differs from that of {source.folder}: {words}.")
    return source


def open_folder(job: Job, data: Prepared, source: WeightSource | None, together: Together, existing: bool) -> None:
    """The run's folder, made or described anew by the first rank."""
    if together.mesh.rank == 0:
        if restart_count() and not existing:  # whoever made the folder died before it was complete
            clear(Run(job.run_folder))
        bring = None if source is None else partial(carry_into_run, source)
        run = resume_run(job, data) if existing else create_run(job, data, bring)
        forget(run.hang)
    together.all("opening the run")
