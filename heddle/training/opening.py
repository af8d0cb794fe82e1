"""What a run needs before its first step: folders that all ranks see, tokens, weights to start from, its own folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from heddle.checkpoint.adapters import note_base
from heddle.checkpoint.checkpoint import checkpoints, newest_good
from heddle.checkpoint.companions import carry_into_run, check_companions
from heddle.checkpoint.places import CheckpointStore, in_store, place_of, store_url
from heddle.checkpoint.source import WeightSource, check_model, check_tokenizer, differences, find_source
from heddle.data import Prepared, check_named, check_vocab, idle_rows, prepared_for, replaced_bytes
from heddle.data.look import colored, first_samples
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.planning.search.describe import beyond_the_split
from heddle.runs.folder import (
    Run,
    check_resumed,
    clear,
    create_run,
    open_run,
    refuse_existing,
    resume_run,
    writing_to,
)
from heddle.runs.given_plan import keep_given
from heddle.runs.machine import keep_machine, machine_of
from heddle.runtime.allotment import check_allotment, settings_in_words
from heddle.runtime.device import on_gpu
from heddle.runtime.environment import local_place
from heddle.runtime.error_files import FOLDER as NOTES
from heddle.runtime.error_files import restart_count
from heddle.runtime.together import Together, check_shared
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job, PlannedJob, Train, load_job
from heddle.training.adapt import Adapter
from heddle.training.loggers import Functions
from heddle.training.peak import PeakFlops, peak_of_run
from heddle.training.step.compiled import compiling_in_words
from heddle.training.step.learning_rate import change_in_words
from heddle.training.step.trainer import Trainer
from heddle.training.watchdog import Watchdog, forget


@dataclass(frozen=True)
class RunOptions:
    """How a job is to be run."""

    resume: bool = False
    trace: bool = False
    auto_resume: bool = False  # whether it is resumed if it has begun, and else started
    allow_changes: bool = False  # to what a run that is resumed was begun with
    machine: Cluster | None = None  # that it runs on, as the first rank knows it
    functions: Functions | None = None  # of the user, that are called with the numbers
    replanned: str = ""  # why it runs under another plan than its own, in words; empty if it does not
    planned: Job | None = None  # with its own plan, to which it is to return, where it runs under another
    returned: bool = False  # whether it was started again because devices are back


def keeps_source(job: Job) -> bool:
    """Whether a run needs the weights that it began with for as long as it goes on: frozen ones, or a reference."""
    return job.tune is not None or job.preference is not None


def shared_folders(job: Job) -> list[Path]:
    """What all ranks of a run read and write; where checkpoints go to an object store, each node may have its own."""
    if job.train.checkpoints is not None:
        return []
    cache = [Path(job.corpus.cache)] if job.corpus.tokens is None else []
    return [job.run_folder.parent, *cache]


def prepare(job: Job, together: Together, console: Console) -> Prepared:
    """The tokens, made by the first rank and opened by the others; one rank on every node compares their checksum."""
    check_named(job.corpus, job.model.vocab)
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
    check_pairs(data, job)
    refuse_other_tokens(together.gather("the tokens' checksums", data.meta.train.sha256))
    return data


def refuse_other_tokens(found: list[str]) -> None:
    """Tell of ranks that would learn from other tokens, which nodes that share no folder may have."""
    other = next((rank for rank, sha256 in enumerate(found) if sha256 != found[0]), None)
    if other is not None:
        raise HeddleError(
            f"Rank {other} has other tokens than rank 0.",
            f"Their SHA-256 is {found[other][:16]}…, and {found[0][:16]}… on rank 0; each node prepared its own.",
            "Give every node the same text and tokenizer, or put [data] cache on a file system that they share.",
        )


def check_pairs(data: Prepared, job: Job) -> None:
    """Refuse a folder of pairs for a job that learns texts, and the other way round."""
    pairs = data.meta.chat is not None and data.meta.chat.learn == "preference"
    if pairs and job.preference is None:
        raise HeddleError(
            f"{data.folder} holds pairs of answers.",
            "Which one is better is learned by a loss of its own.",
            "Add the table [preference], for example with beta = 0.1.",
        )
    if job.preference is not None and not pairs:
        raise HeddleError(
            f"{data.folder} holds no pairs of answers, and the job has [preference].",
            "It learns from rows of prompt, chosen and rejected.",
            'Give them as data.chat = "pairs.jsonl", or leave [preference] out.',
        )


def find_weights(job: Job, data: Prepared, mesh: Mesh, warn: Callable[[str], None]) -> WeightSource | None:
    """The weights that the job starts from, found and checked before anything is made."""
    if job.train.start_from is None:
        return None
    source = find_source(Path(job.train.start_from), mesh, warn, job.model)
    check_model(source, job.model)
    if mesh.rank == 0:
        check_companions(source)
        check_tokenizer(source, data)
    if words := differences(source, job.model):
        warn(f"[model] differs from that of {source.folder}: {words}.")
    return source


def open_folder(
    job: Job,
    data: Prepared,
    source: WeightSource | None,
    together: Together,
    existing: bool,
    machine: Cluster | None = None,
) -> None:
    """The run's folder, made or described anew by the first rank; `machine` is what the job is predicted for."""
    if together.mesh.rank == 0:
        if restart_count() and not existing:  # whoever made the folder died before it was complete
            clear(Run(job.run_folder))
        bring = None if source is None else partial(carry_into_run, source)
        run = resume_run(job, data) if existing else create_run(job, data, bring)
        keep_machine(run, job, machine)
        forget(run)
    together.all("opening the run")


def check_folder(job: Job, options: RunOptions) -> None:
    """A run that is resumed is there, and another one is not."""
    if restart_count() or options.auto_resume:
        return
    if options.resume:
        open_run(job.run_folder)
    else:
        refuse_existing(job)
        if in_store(job):
            raise HeddleError(
                f"The run {store_url(job)} exists already.",
                "A run never overwrites another.",
                "Resume it with --resume, or choose another name with --name.",
            )


@dataclass(frozen=True)
class Opening:
    """What a run was found to be before its first step, on one rank."""

    job: PlannedJob
    run: Run
    data: Prepared
    peak: PeakFlops
    machine: Cluster | None  # that it runs on, as the first rank knows it
    allotted: object  # devices, in words
    existing: bool  # whether the folder is there already
    resume: bool  # from its newest checkpoint
    source: WeightSource | None  # of other weights than new ones
    before: Train | None  # as which a run that is resumed was begun
    together: Together
    console: Console
    first: bool = True  # whether nothing has been said yet
    planned: Job | None = None  # with the plan to which it is to return, where it runs under another

    @property
    def again(self) -> Opening:
        """The same run once more, from the checkpoint that it has just written."""
        source = self.source if keeps_source(self.job) else None
        return replace(self, existing=True, resume=True, source=source, before=None, first=False)

    def begin(self, trainer: Trainer, adapter: Adapter, watchdog: Watchdog) -> None:
        """Open the run's folder, and fill the trainer from a checkpoint or from other weights, if there are some."""
        say = partial(warn, self.console)
        if self.resume:
            fetch_descriptions(self.job, self.run, self.together)
        newest = newest_good(self.run.checkpoints, trainer.mesh, say) if self.resume else None  # before it is written
        with writing_to(self.run):
            open_folder(adapter.job, self.data, self.source, self.together, self.existing, self.machine)
            watchdog.opened(self.run)
            if trainer.mesh.rank == 0:
                keep_given(self.run, self.planned)
        with adapter.making():
            if newest is not None:
                if self.source is not None:
                    trainer.take_frozen(self.source)
                trainer.load(newest)
                if self.before is not None and (words := change_in_words(self.before, self.job.train, trainer.step)):
                    say(words)
            elif self.source is not None:
                trainer.start_from(self.source)
                words = f"Starting from the weights of {self.source.folder}."
                self.console.print(words, highlight=False, soft_wrap=True)
            if newest is None and self.job.tune is not None and self.job.tune.adapter is not None:
                trainer.take_adapters(Path(self.job.tune.adapter))
        if self.source is not None and keeps_source(self.job) and trainer.mesh.rank == 0:
            note_base(self.run.folder, self.source)
        if self.first:
            introduce(self, trainer.device)


def opened(job: PlannedJob, options: RunOptions, together: Together, device: torch.device, console: Console) -> Opening:
    """Look at everything that a run needs; mistakes are told before anything is made."""
    mesh, say = together.mesh, partial(warn, console)
    if mesh.rank == 0:
        check_folder(job, options)
    allotted = check_allotment(job, together, device)
    check_shared(shared_folders(job), together)
    data = prepare(job, together, console)
    for words in (idle_rows(data, job.model.vocab), replaced_bytes(data)):
        if words is not None:
            say(words)
    existing = resume = together.gather("resume", options.resume)[0]
    run = Run(job.run_folder)
    fetch_descriptions(job, run, together)
    if restart_count() or options.auto_resume:
        existing, resume = together.gather("found", (run.job_file.exists(), bool(checkpoints(run.checkpoints))))[0]
        where = "resuming from the newest checkpoint" if resume else "starting over: there is no checkpoint yet"
        what = "All devices are back" if options.returned else "A process died"
        if restart_count():
            say(f"{what}; {where} (restart {restart_count()}).")
    if options.replanned:
        say(options.replanned)
    before = None
    if existing and mesh.rank == 0:
        check_resumed(job, data, options.allow_changes, say)
        before = load_job(run.job_file).train
    # what is frozen is taken from where it came from, also by a run that goes on
    source = None if resume and not keeps_source(job) else find_weights(job, data, mesh, say)
    machine = options.machine or (machine_of(job, run) if mesh.rank == 0 else None)
    peak = peak_of_run(job, machine, device)
    return Opening(
        job,
        run,
        data,
        peak,
        machine,
        allotted,
        existing,
        resume,
        source,
        before,
        together=together,
        console=console,
        planned=options.planned,
    )


def fetch_descriptions(job: Job, run: Run, together: Together) -> None:
    """What is told of checkpoints in an object store, brought to every node: from there on they are as if here."""
    place = place_of(job, run.checkpoints)
    if isinstance(place, CheckpointStore):
        if local_place()[0] == 0:
            place.check()
            place.fetch()
        together.all("checkpoints in the store")


def introduce(opening: Opening, device: torch.device) -> None:
    """What is trained on what."""
    job, peak, data, console = opening.job, opening.peak, opening.data, opening.console
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {job.plan.world} × {device.type}, "
        f"{job.precision_in_words}, peak {peak.each / 1e12:.3g} TFLOP/s each ({peak.origin}); "
        f"{len(data.train):,} tokens to train on, tokenizer {data.meta.tokenizer} ({data.meta.vocab:,} tokens), "
        f"vocabulary {job.model.vocab:,}" + "".join(f"; {words}" for words in beyond_the_split(job.plan)),
        highlight=False,
        soft_wrap=True,
    )
    show_samples(job, data, console)
    if on_gpu(device):  # of CPUs, the line above says it all
        compiling = compiling_in_words(job, device)
        for words in (f"Found {opening.allotted}; {compiling}.", f"Set: {settings_in_words()}"):
            console.print(words, highlight=False, soft_wrap=True, markup=False)


def show_samples(job: PlannedJob, data: Prepared, console: Console) -> None:
    """What is learned of conversations, before anything is: a mask that is wrong is seen here, and nowhere else."""
    if data.meta.chat is None or console.quiet:
        return
    for sample in first_samples(data.train, data.tokenizer, job.sequence):
        words = f"{sample.where}: {sample.learned:,} of {sample.tokens:,} tokens are learned"
        console.print(words, style="bold", highlight=False)
        console.print(colored(sample, console.is_terminal), soft_wrap=True)


def warn(console: Console, words: str) -> None:
    """Say what the user should know, and training goes on."""
    console.print(words, style="yellow", soft_wrap=True, markup=False)
