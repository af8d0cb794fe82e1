"""A plan in another trainer's words, and what of it has none there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any

from heddle.errors import shorten
from heddle.spec.job import PlannedJob

# of [train], what is Heddle's own: folders, logs, checkpoints, and numbers of methods that the plan names
OWN_OF_RUN = (
    *("name", "runs", "start_from", "log_every", "log", "notify", "eval_every", "eval_batches", "patience"),
    *("keep_best", "save_every", "keep_last", "keep_every", "restarts", "watch_links", "hang_after", "offload_folder"),
    *("outer_learning_rate", "outer_momentum", "outer_mixing", "meeting", "meet_every", "site"),
    *("delay_warmup", "delay_correction"),
)


@dataclass(frozen=True)
class ExportedPlan:
    """A file for another trainer."""

    trainer: str
    file: str  # what it is usually called
    text: str
    missing: tuple[str, ...]  # what the trainer has no word for, or does otherwise
    plan_missing: tuple[str, ...]  # those of them that are about [plan]

    def __str__(self) -> str:
        return self.text


class SpokenFields:
    """Fields of a record that a writer has put into words; those that it has not, and that say something, are left."""

    def __init__(self, record: Any, table: str, ignored: Iterable[str] = ()) -> None:
        self.record, self.table = record, table
        self.spoken = set(ignored)
        self.notes: list[str] = []

    def take(self, name: str) -> Any:
        """The field's value, which the writer now answers for."""
        self.spoken.add(name)
        return getattr(self.record, name)

    def miss(self, name: str, why: str) -> None:
        """A field that is taken, and yet cannot be said."""
        self.spoken.add(name)
        self.notes.append(f"{self.table}.{name} = {_shown(getattr(self.record, name))}: {why}")

    def left(self, trainer: str) -> list[str]:
        """All that is not said: what was missed, and fields with other than their usual value that nobody took."""
        silent = [
            each for each in fields(self.record) if each.name not in self.spoken and not _usual(self.record, each)
        ]
        return self.notes + [
            f"{self.table}.{each.name} = {_shown(getattr(self.record, each.name))}: {trainer} has no such setting"
            for each in silent
        ]


def _usual(record: Any, each: Any) -> bool:
    value = getattr(record, each.name)
    return bool(each.default is not MISSING and value == each.default) or value in (None, (), 0, False)


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else shorten(list(value) if isinstance(value, tuple) else value)


class JobInWords:
    """The three records that a trainer's file is made from, each with what has been said of it."""

    def __init__(self, job: PlannedJob) -> None:
        self.job = job
        self.model = SpokenFields(job.model, "model", ("name", "family", "dense_layers"))
        self.train = SpokenFields(job.train, "train", OWN_OF_RUN)
        self.plan = SpokenFields(job.plan, "plan", ("prefetch",))

    def exported(self, trainer: str, file: str, text: str, besides: Iterable[str] = ()) -> ExportedPlan:
        """The file, with all that it leaves out stated at its head by the caller, and in `missing`."""
        about_plan = self.plan.left(trainer)
        return ExportedPlan(trainer, file, text, tuple(self.missing(trainer, besides)), tuple(about_plan))

    def missing(self, trainer: str, besides: Iterable[str] = ()) -> list[str]:
        """What the file does not say."""
        found = [*self.plan.left(trainer), *self.model.left(trainer), *self.train.left(trainer), *besides]
        if self.job.tune is not None:
            found.append("tune: adapters are set up in the trainer's own way")
        if self.job.network is not None:
            found.append("network: links that differ, and which rank runs on which device")
        return found


def recompute_words(job: PlannedJob) -> list[str]:
    """What each layer recomputes."""
    return [job.plan.recompute_of(layer) for layer in range(job.model.layers)]


def first_of_each_chunk(job: PlannedJob) -> int | None:
    """How many layers at the beginning of each chunk are recomputed in full and no others; None: it is not so."""
    words, at, counts = recompute_words(job), 0, set()
    for length in job.plan.stages:
        chunk = words[at : at + length]
        at += length
        count = chunk.count("full")
        if chunk != ["full"] * count + ["none"] * (length - count):
            return None
        counts.add(count)
    return counts.pop() if len(counts) == 1 else None


def same_zero(job: PlannedJob) -> bool:
    """Whether all layers shard alike."""
    return all(job.plan.memory_of(layer).zero == job.plan.zero for layer in range(job.model.layers))


def same_offload(job: PlannedJob) -> bool:
    """Whether all layers offload alike."""
    return all(job.plan.memory_of(layer).offload == job.plan.offload for layer in range(job.model.layers))


def devices_per_node(job: PlannedJob) -> int:
    """Processes that a launcher starts on each node."""
    world = job.plan.world
    most = job.cluster.devices if job.cluster is not None else world
    return max(count for count in range(1, min(most, world) + 1) if world % count == 0)


def commented(lines: Iterable[str], trainer: str) -> str:
    """What is not said, at the head of a file."""
    listed = [f"# - {line}" for line in lines]
    return "\n".join([f"# Not expressed for {trainer}:", *listed, ""]) + "\n" if listed else ""
