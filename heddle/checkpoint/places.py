"""Where checkpoints go: a folder that all ranks see, or an object store; and which there are.

In either a checkpoint is whole or not there at all. A folder is written under another name, and renamed when it is
complete. A store cannot rename; there the description comes last, and what has none is no checkpoint.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from heddle.checkpoint.index import INDEX, joined, write_index
from heddle.checkpoint.manifest import Progress, sum_of, write_about
from heddle.checkpoint.object_store import ObjectStore
from heddle.checkpoint.remote import REMOTE
from heddle.checkpoint.storage import Boxes, upload_part, write_part
from heddle.durable import sync, write_through
from heddle.spec.job import Job, dumps_job
from heddle.spec.start import ABOUT, JOB, TOKENIZER_FOLDER
from heddle.spec.tables import to_table

PARTIAL = ".partial-"  # begins the name of a folder that is no checkpoint: not yet, or no longer
RUN = "run"  # the folder of a store with what else is needed to go on, where a run's own folder is lost
DESCRIPTIONS = (INDEX, JOB, ABOUT)  # in the order in which a store gets them

Tick = Callable[[], None]


def checkpoints(folder: Path) -> list[Path]:
    """All complete checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdecimal())


def step_of(checkpoint: Path) -> int:
    """The step that a checkpoint was written after."""
    return int(checkpoint.name.removeprefix("step-"))


def name_of(step: int) -> str:
    """What the checkpoint of a step is called."""
    return f"step-{step:08}"


class CheckpointPlace(Protocol):
    """What a `Saver` asks of the place where checkpoints go. What may go wrong is told by raising."""

    def begin(self, step: int) -> Any:
        """Make room for a checkpoint; the first rank does, and all get what it returns."""

    def write(self, begun: Any, rank: int, state: Mapping[str, Boxes], tick: Tick) -> Any:
        """Write what one rank holds; the first gets what each returns."""

    def complete(self, begun: Any, parts: list[Any], progress: Progress, job: Job) -> None:
        """Make it a checkpoint: from here on it is found. The first rank does, once all have written."""

    def remove(self, checkpoint: Path) -> None:
        """Take one away."""


class CheckpointFolder:
    """A folder on a disk that all ranks share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, step: int) -> Path:
        """See the protocol."""
        for left in self.folder.glob(f"{PARTIAL}*"):  # by whoever was killed in the middle of a save
            shutil.rmtree(left, ignore_errors=True)
        partial = self.folder / f"{PARTIAL}{step:08}"
        partial.mkdir(parents=True)
        return partial

    def write(self, begun: Path, rank: int, state: Mapping[str, Boxes], tick: Tick) -> Any:
        """See the protocol."""
        return write_part(begun, rank, state, tick)

    def complete(self, begun: Path, parts: list[Any], progress: Progress, job: Job) -> None:
        """See the protocol."""
        _describe(begun, parts, progress, job)
        place(begun, self.folder / name_of(progress.step))

    def remove(self, checkpoint: Path) -> None:
        """Take its name away first: what is half deleted must not be taken for a checkpoint."""
        doomed = checkpoint.with_name(f"{PARTIAL}{checkpoint.name}")
        checkpoint.rename(doomed)
        shutil.rmtree(doomed)


def place(partial: Path, final: Path) -> None:
    """Give a folder that is complete its name."""
    sync(partial)
    if final.exists():  # damaged: nobody saves what a good checkpoint holds
        CheckpointFolder(final.parent).remove(final)
    partial.rename(final)
    sync(final.parent)


class CheckpointStore:
    """An object store. The run's folder gets the descriptions, too, so it is read like one with checkpoints.

    Every save has a word in the names of its files. Whatever a process that was given up for dead still writes, it
    writes beside the files of others, not over them.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.store, self.local = ObjectStore(url), CheckpointFolder(folder)

    def check(self) -> None:
        """Refuse a store that cannot be written to; one that has no such bucket lists it as empty."""
        self.store.write("begun", [b"1"])
        self.store.delete("begun")

    def begin(self, step: int) -> tuple[int, str]:
        """See the protocol."""
        known = {path.name for path in checkpoints(self.local.folder)}
        for name in self._steps():
            if name == name_of(step) or (name not in known and ABOUT not in self.store.names(name)):
                self._delete(name)  # by whoever was killed in the middle of a save; or what is about to be replaced
        return step, secrets.token_hex(4)

    def write(self, begun: tuple[int, str], rank: int, state: Mapping[str, Boxes], tick: Tick) -> Any:
        """See the protocol."""
        step, word = begun
        file = f"part-{rank:05}-{word}.safetensors"
        stored, head = upload_part(self.store.within(name_of(step)), file, state, tick)
        return stored, {file: sum_of(head)} if head else {}

    def complete(self, begun: tuple[int, str], parts: list[Any], progress: Progress, job: Job) -> None:
        """See the protocol."""
        name = name_of(begun[0])
        there = self.store.within(name)
        partial = self.local.begin(begun[0])
        sums = {file: each for _, own in parts for file, each in own.items()}
        _describe(partial, [stored for stored, _ in parts], progress, job, sums)
        write_through(partial / REMOTE, there.url + "\n")
        self._keep_run()
        for each in DESCRIPTIONS:
            there.write(each, [(partial / each).read_bytes()])
        place(partial, self.local.folder / name)

    def remove(self, checkpoint: Path) -> None:
        """See the protocol."""
        self._delete(checkpoint.name)
        self.local.remove(checkpoint)

    def fetch(self) -> None:
        """Describe in the run's folder the checkpoints that the store has, and no others."""
        steps = self._steps()
        whole = [name for name in steps if ABOUT in self.store.names(name)]
        for path in checkpoints(self.local.folder):
            if path.name not in whole and (path / REMOTE).is_file():
                self.local.remove(path)
        for name in whole:
            there, final = self.store.within(name), self.local.folder / name
            about = there.read(ABOUT)
            if (final / ABOUT).is_file() and (final / ABOUT).read_bytes() == about:
                continue
            partial = self.local.folder / f"{PARTIAL}{secrets.token_hex(4)}"
            partial.mkdir(parents=True)
            for each in (INDEX, JOB):
                if each in there.names():
                    (partial / each).write_bytes(there.read(each))
            (partial / ABOUT).write_bytes(about)
            write_through(partial / REMOTE, there.url + "\n")
            try:
                place(partial, final)
            except OSError:
                if not (final / ABOUT).is_file():
                    raise
                shutil.rmtree(partial, ignore_errors=True)  # another node, which shares the folder, was first

    def _steps(self) -> list[str]:
        return [name for name in self.store.names() if name.removeprefix("step-").isdecimal()]

    def _delete(self, name: str) -> None:
        """The description goes first: what has none is no checkpoint."""
        there = self.store.within(name)
        there.delete(ABOUT, *(each for each in there.names() if each != ABOUT))

    def _keep_run(self) -> None:
        """What a run needs beside a checkpoint to go on; its job comes last, as in the folder."""
        run, there = self.local.folder.parent, self.store.within(RUN)
        files = [*run.glob("*.json"), *run.glob("*.jsonl"), *run.glob("*.toml"), *run.glob(f"{TOKENIZER_FOLDER}/*")]
        for path in sorted(files, key=lambda each: each == run / JOB):
            if path.is_file() and not path.name.startswith("."):
                there.write(path.relative_to(run).as_posix(), [path.read_bytes()])


def _describe(folder: Path, parts: list[Any], progress: Progress, job: Job, sums: dict[str, str] | None = None) -> None:
    plan = {} if job.plan is None else {"plan": to_table(job.plan), "plan_hash": job.plan.hash}
    write_index(folder, joined(parts))
    write_through(folder / JOB, dumps_job(job))
    write_about(folder, progress, sums, **plan)


def place_of(job: Job, folder: Path) -> CheckpointPlace:
    """Where the checkpoints of a run go whose folder has them, or their descriptions, in `folder`."""
    url = store_url(job)
    return CheckpointFolder(folder) if url is None else CheckpointStore(folder, url)


def store_url(job: Job) -> str | None:
    """The folder of a run in the object store that its job names; None where it names none."""
    return None if job.train.checkpoints is None else f"{job.train.checkpoints.rstrip('/')}/{job.train.name}"


def restore_run(job: Job, run: Path) -> bool:
    """Bring back a run's folder from its object store, where it is gone; whether there was anything to bring."""
    url = store_url(job)
    if url is None or (run / JOB).is_file():
        return False
    there = ObjectStore(url).within(RUN)
    names = there.names()
    if JOB not in names:
        return False
    files = [name for name in names if name not in (JOB, TOKENIZER_FOLDER)]
    files += [f"{TOKENIZER_FOLDER}/{name}" for name in there.within(TOKENIZER_FOLDER).names()]
    for name in (*files, JOB):
        target = run / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(there.read(name))
    (run / "checkpoints").mkdir(exist_ok=True)
    return True


def in_store(job: Job) -> bool:
    """Whether the object store that a job names has its run already."""
    url = store_url(job)
    return url is not None and JOB in ObjectStore(url).within(RUN).names()
