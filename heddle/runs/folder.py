"""The run folder: what a run keeps on disk, and how it is made, found and taken up again."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heddle.data.template import TEMPLATE_FILE
from heddle.data.tokens import Meta, Prepared
from heddle.durable import replace_text
from heddle.errors import HeddleError
from heddle.runs.lock import LOCK, begun
from heddle.spec.job import Job, dumps_job, load_job
from heddle.spec.start import JOB, TOKENIZER_FOLDER
from heddle.spec.tables import read_json

# What may change when a run is resumed: where and how fast it runs, what it tells and keeps. All else is its meaning.
FREE = {
    "name",
    "runs",
    "start_from",
    "log_every",
    "eval_every",
    "eval_batches",
    "save_every",
    "keep_last",
    "keep_every",
}
SHOWN = ("step", "loss", "tokens_per_second", "mfu", "memory_gib")  # of its metrics, in a notebook
FREE |= {"log", "notify", "patience", "keep_best", "checkpoints", "replan"}
FREE |= {"restarts", "hang_after", "compile", "meeting", "site"}


@dataclass(frozen=True)
class Run:
    """A folder with `job.toml`, `machine.toml`, `data.json`, `metrics.jsonl`, the tokenizer and `checkpoints/`."""

    folder: Path

    def _repr_html_(self) -> str:
        from heddle.trace.notebook import table_html

        rows = [row for row in self.rows if "loss" in row]
        title = f"{self.folder}: {len(rows)} steps"
        return table_html([{name: row[name] for name in SHOWN if name in row} for row in rows[-10:]], title)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines of its metrics so far."""
        from heddle.runs.metrics import read_metrics

        path = self.folder / "metrics.jsonl"
        return read_metrics(path) if path.is_file() else []

    def to_frame(self) -> Any:
        """Its metrics, a row for each step, as a pandas DataFrame."""
        from heddle.trace.frames import frame

        return frame([row for row in self.rows if "loss" in row])

    def plot(self, axes: Any = None) -> Any:
        """Draw loss, speed and memory over steps; `axes` are as many of matplotlib's, if given."""
        from heddle.trace.plots import plot_columns

        return plot_columns([row for row in self.rows if "loss" in row], SHOWN[1:], axes)

    @property
    def checkpoints(self) -> Path:
        """One folder a saved step."""
        return self.folder / "checkpoints"

    @property
    def traces(self) -> Path:
        """Spans of the first steps, a file per step and rank; there when the run was traced."""
        return self.folder / "traces"

    @property
    def hang(self) -> Path:
        """What the ranks were doing; there if the run stood still."""
        return self.folder / "hang"

    @property
    def processes(self) -> Path:
        """Which process is which rank; there where a run has several."""
        return self.folder / "processes"

    @property
    def tokenizer(self) -> Path:
        """Where the tokenizer's files are."""
        return self.folder / TOKENIZER_FOLDER

    @property
    def job_file(self) -> Path:
        """The job as it was run, with everything spelled out."""
        return self.folder / JOB

    @property
    def adapted(self) -> Path:
        """What the first steps took and held, and what was decided by it; there where the plan says `adapt`."""
        return self.folder / "adapted.json"

    @property
    def given_plan(self) -> Path:
        """The plan to return to; there while the run goes on under another, for want of devices."""
        return self.folder / "given-plan.json"

    @property
    def machine(self) -> Path:
        """The machine, as it was found to be when the run began; there where the job has no cluster with its speed."""
        return self.folder / "machine.toml"

    @property
    def data_file(self) -> Path:
        """What the run learns from: how many tokens, of which checksum, made from what."""
        return self.folder / "data.json"


def refuse_existing(job: Job) -> None:
    """A run never writes over another; said before any work is done."""
    if begun(job.run_folder):
        raise HeddleError(
            f"The run folder {job.run_folder} exists already.",
            "A run never overwrites another.",
            "Resume it with --resume, or choose another name with --name.",
        )


def create_run(job: Job, data: Prepared, bring: Callable[[Path], None] | None = None) -> Run:
    """Make the run folder. The job comes last: a folder that has it has everything.

    `bring` adds to the tokenizer's folder what came with the weights that the run starts from.
    """
    refuse_existing(job)
    run = Run(job.run_folder)
    try:
        run.checkpoints.mkdir(parents=True)
        data.tokenizer.save(run.tokenizer)
        if bring is not None:
            bring(run.tokenizer)
        if (data.folder / TEMPLATE_FILE).is_file():  # by which the conversations were written that it learns from
            shutil.copyfile(data.folder / TEMPLATE_FILE, run.tokenizer / TEMPLATE_FILE)
        _describe(run, job, data)
    except OSError as error:
        raise HeddleError(
            f"The run folder {run.folder} cannot be written.",
            f"{error.strerror}.",
            "Choose another place with [train] runs, or --set train.runs=FOLDER.",
        ) from None
    return run


@contextmanager
def writing_to(run: Run) -> Iterator[None]:
    """A disk that is full, or gone, is told; whatever is in the run's folder stays as it is."""
    try:
        yield
    except OSError as error:
        raise HeddleError(
            f"The run folder {run.folder} cannot be written.",
            f"{error.strerror or error}.",
            "Earlier checkpoints are untouched; free some space, then continue with --resume.",
        ) from None


def clear(run: Run) -> None:
    """Take away what is in a folder whose maker died before it was complete; the lock is ours."""
    for path in run.folder.iterdir() if run.folder.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


def resume_run(job: Job, data: Prepared) -> Run:
    """Open the run folder of a job that was started before; from now on it is described by the job as it is now."""
    run = open_run(job.run_folder)
    _describe(run, job, data)
    return run


def _describe(run: Run, job: Job, data: Prepared) -> None:
    replace_text(run.data_file, data.meta.to_json())
    replace_text(run.job_file, dumps_job(job))


def as_begun(job: Job) -> Job:
    """A job that goes on: if it does not say in which precision, in that of the run, whatever is best here."""
    run = Run(job.run_folder)
    if job.train.precision is not None or not run.job_file.exists():
        return job
    return job.stating(load_job(run.job_file).precision)


def check_resumed(job: Job, data: Prepared, allow: bool, warn: Callable[[str], None]) -> None:
    """Refuse to go on with a run as something else: with another model, and unless allowed on other terms."""
    run = open_run(job.run_folder)
    before = load_job(run.job_file)
    if before.model != job.model:
        fields = [field.name for field in dataclasses.fields(job.model)]
        changed = [name for name in fields if getattr(before.model, name) != getattr(job.model, name)]
        shown = "; ".join(
            f"{name} was {getattr(before.model, name)!r}, is {getattr(job.model, name)!r}" for name in changed[:3]
        )
        raise HeddleError(
            f"{run.folder} is a run of another model.",
            f"{shown}.",
            "Choose another name with --name, or fix [model].",
        )
    changes = [*_changes(before, job), *_data_changes(run, before, job, data.meta)]
    if changes and not allow:
        raise HeddleError(
            f"{run.folder} was started with other settings:",
            "\n".join(changes),
            "Choose another name with --name, or resume anyway with --allow-changes.",
        )
    if changes:
        warn(f"Resuming with {'; '.join(changes)}.")


def _changes(before: Job, job: Job) -> list[str]:
    """What is trained otherwise than before. Fewer steps are a change, for the learning rate goes by them."""
    names = [field.name for field in dataclasses.fields(job.train) if field.name not in FREE]
    pairs = {f"train.{name}": (getattr(before.train, name), getattr(job.train, name)) for name in names}
    pairs["[tune]"] = (before.tune, job.tune)
    pairs["[preference]"] = (before.preference, job.preference)
    pairs["train.precision"] = (before.precision, job.precision)
    pairs["train.sequence"] = (before.sequence, job.sequence)
    if job.train.steps >= before.train.steps:
        del pairs["train.steps"]
    return [f"{name} was {_word(old)}, is {_word(new)}" for name, (old, new) in pairs.items() if old != new]


def _data_changes(run: Run, before: Job, job: Job, meta: Meta) -> list[str]:
    """Whether it learns from other tokens, wherever they lie: by their checksums, where the run has them."""
    if run.data_file.is_file():
        kept = read_json(run.data_file, "what a run learns from")
        splits = (("train", meta.train), ("validation", meta.validation))
        return [
            f"the {name} tokens were {_split(kept.get(name))}, are {_split(asdict(split))}"
            for name, split in splits
            if not isinstance(kept.get(name), dict) or kept[name].get("sha256") != split.sha256
        ] + _conversation_changes(kept.get("chat"), before, job, meta)
    names = ("text", "tokens", "tokenizer", "key", "validation")
    old, new = (dataclasses.replace(each.corpus, tokenizer=each.corpus.tokenizer_word) for each in (before, job))
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in names]
    return [f"data.{name} was {_word(was)}, is {_word(now)}" for name, was, now in pairs if was != now]


def _conversation_changes(kept: Any, before: Job, job: Job, meta: Meta) -> list[str]:
    """Whether other tokens of the same are learned, or samples are made of them in another way."""
    changes = []
    found = None if meta.chat is None else meta.chat.train.sha256
    was = kept.get("train", {}).get("sha256") if isinstance(kept, dict) else None
    if was != found:
        changes.append("other tokens of the conversations are learned")
    if before.corpus.pack != job.corpus.pack:
        changes.append(f"data.pack was {before.corpus.pack}, is {job.corpus.pack}")
    return changes


def _split(split: Any) -> str:
    if not isinstance(split, dict) or not isinstance(split.get("tokens"), int):
        return "not told"
    return f"{split['tokens']:,} with checksum {str(split.get('sha256'))[:8]}"


def _word(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def open_run(folder: Path) -> Run:
    """Find an existing run."""
    run = Run(folder)
    if not run.job_file.exists():
        near = [place for place in (folder, folder.parent) if place.is_dir()]  # many name the folder of all runs
        others = [str(path.parent) for place in near for path in sorted(place.glob("*/job.toml"))]
        raise HeddleError(
            f"{folder} is not a run folder.",
            "A run folder holds the job.toml that it was started with.",
            f"Runs near it: {', '.join(others)}." if others else "Train one with `heddle train JOB.toml`.",
        )
    return run
