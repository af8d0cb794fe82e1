"""The training loop, from a job to its last step or to the request to stop; the same on every rank."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from heddle.checkpoint.checkpoint import Saver, checkpoints, newest_good
from heddle.data import Prepared
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.runs.folder import Run, as_begun, check_resumed, open_run, refuse_existing, writing_to
from heddle.runs.lock import RunLock, locked
from heddle.runtime.allotment import check_allotment, settings_in_words
from heddle.runtime.device import free_unused, memory_in_use, on_gpu, peak_flops, pick_device, runs_ahead
from heddle.runtime.environment import launched_place
from heddle.runtime.error_files import restart_count, tell
from heddle.runtime.launch import part_in_failure, run_joined, run_processes
from heddle.runtime.recorder import NoRecorder, Recorder
from heddle.runtime.stop_request import StopRequest
from heddle.runtime.stream import StreamMarks
from heddle.runtime.together import Together, check_shared
from heddle.spec.job import Job, PlannedJob
from heddle.spec.plan import Predicted
from heddle.train.adapt import Adapter
from heddle.train.dry_run.out_of_memory import out_of_memory, ran_out, short_of_memory
from heddle.train.flight import Flight
from heddle.train.links.waiting import with_links
from heddle.train.links.watch import LinkWatch
from heddle.train.metrics import Metrics
from heddle.train.opening import find_weights, open_folder, prepare, shared_folders
from heddle.train.phases import Phase, Phases
from heddle.train.step.choose import make_trainer
from heddle.train.step.trainer import Trainer
from heddle.train.watchdog import Doctor


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    run: Path
    first_step: int  # where it went on from; 0 if not resumed
    step: int
    steps: int
    loss: float  # of the last step
    validation_loss: float | None
    unigram_entropy: float  # nats per token: what knowing only the token frequencies would score
    seconds: float
    step_seconds: float | None  # median, without the first step; None if there was no other
    predicted: Predicted | None  # of the plan that it ended with


@dataclass(frozen=True)
class RunOptions:
    """How a job is to be run."""

    resume: bool = False
    trace: bool = False
    allow_changes: bool = False  # to what a run that is resumed was begun with


def train(job: Job, resume: bool = False, trace: bool = False, allow_changes: bool = False) -> Result | None:
    """Run a job under its plan, on as many processes as that takes; None on all but the first rank of a launcher."""
    orders = RunOptions(resume, trace, allow_changes)
    if resume or restart_count():
        job = as_begun(job)
    plan, place = job.planned.plan, launched_place()
    if place is None:  # whether a launcher started all again is known when they have met
        _check_folder(job, orders)
    if place is not None and place.rank != 0:
        run_joined(plan, place, train_rank, job, orders)
        return None
    with locked(job.run_folder, partial(_warn, Console())) as lock:
        if place is not None:
            return run_joined(plan, place, train_rank, job, orders)
        if plan.world > 1:
            prepare(job, Together(Mesh()), Console())  # once, before anybody starts, so that mistakes are told at once
            return run_processes(plan, train_rank, job, orders, lock, restarts=job.train.restarts)
        return train_rank(Mesh(), job, orders)


def _check_folder(job: Job, orders: RunOptions) -> None:
    """A run that is resumed is there, and another one is not."""
    if restart_count():
        return
    if orders.resume:
        open_run(job.run_folder)
    else:
        refuse_existing(job)


def train_rank(
    mesh: Mesh,
    job: Job,
    orders: RunOptions,
    _lock: RunLock | None = None,
    after_step: Callable[[int], None] = lambda _: None,
) -> Result:
    """One rank's part of a run; `after_step` is told of every step that is done.

    It holds the run's lock as long as it lives, if it gets it.
    """
    base = memory_in_use()
    try:
        return _train_rank(mesh, job, orders, after_step)
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error):
            raise
    # Only here is what the step held let go, with the exception that held it. The bill takes a while, in which the
    # others fail and the launcher ends everybody: that it was memory is said at once, and the end waits for the rest.
    tell(mesh.rank, short_of_memory(mesh))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    part_in_failure(mesh.rank)
    raise out_of_memory(job, mesh, base)


def _train_rank(mesh: Mesh, job: Job, orders: RunOptions, after_step: Callable[[int], None]) -> Result:
    job = job.planned
    phases = Phases(job.train.hang_after)
    with Doctor(mesh, job.plan, phases) as doctor:
        return _watched(mesh, job, orders, after_step, doctor)


def _watched(
    mesh: Mesh, job: PlannedJob, orders: RunOptions, after_step: Callable[[int], None], doctor: Doctor
) -> Result:
    phases, console, device = doctor.phases, Console(quiet=mesh.rank != 0), pick_device()
    together = Together(mesh, phases.tick)
    if mesh.rank == 0:
        _check_folder(job, orders)
    allotted = check_allotment(job, together, device)
    check_shared(shared_folders(job), together)
    data = prepare(job, together, console)
    warn = partial(_warn, console)
    existing = resume = orders.resume
    if restart_count():
        run = Run(job.run_folder)
        existing, resume = run.job_file.exists(), bool(checkpoints(run.checkpoints))
        where = "resuming from the newest checkpoint" if resume else "starting over: there is no checkpoint yet"
        warn(f"A process died; {where} (restart {restart_count()}).")
    if existing and mesh.rank == 0:
        check_resumed(job, data, orders.allow_changes, warn)
    source = None if resume else find_weights(job, data, mesh, warn)
    adapter, run = Adapter(job, together, device), Run(job.run_folder)
    begun: tuple[int, float] | None = None  # at which step, and when
    while True:  # once more where the first steps show that other strategies are better
        trainer = _made(adapter, data, mesh, doctor, orders.trace)
        newest = newest_good(run.checkpoints, mesh, warn) if resume else None  # before anything is written
        with writing_to(run):
            open_folder(adapter.job, data, source, together, existing)
            doctor.opened(run.hang)
        with adapter.making():
            if newest is not None:
                trainer.load(newest)
            elif source is not None:
                trainer.start_from(source)
                console.print(f"Starting from the weights of {source.folder}.", highlight=False, soft_wrap=True)
        if begun is None:
            peak = _introduce(job, trainer.device, len(data.train), allotted, console)
            begun = trainer.step, time.monotonic()
        with writing_to(run):
            flight, validation = _loop(trainer, run, data, peak, console, phases, adapter, after_step)
        if not adapter.changed:
            break
        del trainer, flight  # two of them would need twice the memory
        free_unused()
        adapter.changed, existing, resume, source = False, True, True, None
        phases.begin_anew()
    return Result(
        run=run.folder,
        first_step=begun[0],
        step=trainer.step,
        steps=job.train.steps,
        loss=flight.loss,
        validation_loss=validation,
        unigram_entropy=data.meta.unigram_entropy,
        seconds=time.monotonic() - begun[1],
        step_seconds=flight.step_seconds,
        predicted=adapter.job.predicted,
    )


def _made(adapter: Adapter, data: Prepared, mesh: Mesh, doctor: Doctor, trace: bool) -> Trainer:
    device = adapter.device
    recorder = Recorder(mesh, device) if trace else NoRecorder()
    if not trace and runs_ahead(device) and mesh.world.size > 1:
        recorder = doctor.stream = StreamMarks(mesh, device)
    with adapter.making():
        return make_trainer(adapter.job, data.train, mesh, with_links(recorder, adapter.job, mesh))


def _introduce(job: PlannedJob, device: torch.device, tokens: int, allotted: object, console: Console) -> float:
    """What is trained on what; gives the FLOP/s that utilisation is held against, of all devices together."""
    peak, origin = peak_flops(job.cluster, job.precision, device)
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {job.plan.world} × {device.type}, "
        f"{job.precision_in_words}, peak {peak / 1e12:.3g} TFLOP/s each ({origin}); {tokens:,} tokens to train on",
        highlight=False,
        soft_wrap=True,
    )
    if on_gpu(device):  # of CPUs, the line above says it all
        for words in (f"Found {allotted}.", f"Set: {settings_in_words()}"):
            console.print(words, highlight=False, soft_wrap=True, markup=False)
    return peak * job.plan.world


def _loop(
    trainer: Trainer,
    run: Run,
    data: Prepared,
    peak: float,
    console: Console,
    phases: Phases,
    adapter: Adapter,
    after_step: Callable[[int], None],
) -> tuple[Flight, float | None]:
    """Steps until the last, until asked to stop or to change strategies, and a checkpoint of wherever that is."""
    train = trainer.job.train
    first = trainer.mesh.rank == 0
    saver = Saver(run.checkpoints, adapter.together.mesh, train.keep_last, train.keep_every, phases.tick)
    predicted = trainer.job.predicted.step_seconds if trainer.job.predicted is not None else None
    metrics = Metrics(run.folder, train.steps, train.log_every, console, trainer.step, predicted) if first else None
    validation, saved = None, trainer.step

    def landed(step: int) -> None:
        phases.piece()
        after_step(step)

    flight = Flight(trainer, run, peak, metrics, landed)
    watch = LinkWatch(trainer.job, trainer.mesh, trainer.device, run.folder, partial(_warn, console))
    with metrics or nullcontext(), StopRequest(answer=trainer.mesh.world.size == 1) as stop:
        try:
            while trainer.step < train.steps and not flight.stopped and not adapter.changed:
                phases.enter(Phase.STEP if phases.steps else Phase.FIRST_STEP)
                with adapter.watching():
                    flight.step(stop)
                stop.shared = flight.stopped
                evaluates = trainer.step == train.steps or _due(train.eval_every, trainer.step)
                saves = _due(train.save_every, trainer.step)
                if evaluates or saves:
                    flight.land()
                if evaluates:
                    with phases.during(Phase.EVALUATE):
                        validation = trainer.evaluate(data.validation, phases.piece)
                    if metrics and validation is not None:
                        metrics.evaluation(trainer.step, validation)
                if saves:
                    with phases.during(Phase.SAVE):
                        trainer.save(saver)
                        watch.look()
                    saved = trainer.step
                if adapter.due(flight):
                    with phases.during(Phase.PREPARE):
                        adapter.look(flight, console)
            flight.land()
        except (HeddleError, OSError):
            phases.enter(Phase.SAVE)
            saver.wait()  # what is still being written is the checkpoint to go on from
            raise
        phases.enter(Phase.SAVE)
        if trainer.step > saved:
            trainer.save(saver)
        saver.wait()
    return flight, validation


def _warn(console: Console, words: str) -> None:
    console.print(words, style="yellow", soft_wrap=True, markup=False)


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0
