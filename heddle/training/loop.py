"""The training loop, from a job to its last step or to the request to stop; the same on every rank."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from heddle.checkpoint.checkpoint import Saver
from heddle.checkpoint.places import place_of, restore_run
from heddle.console import plain_console
from heddle.data import Prepared
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.runs.folder import Run, as_begun, writing_to
from heddle.runs.lock import RunLock, locked
from heddle.runs.machine import machine_of
from heddle.runtime.device import free_unused, memory_in_use, pick_device, repeatable, runs_ahead
from heddle.runtime.environment import launched_place, local_place
from heddle.runtime.error_files import restart_count, write_error
from heddle.runtime.heap import Heap
from heddle.runtime.joining import part_in_failure, run_joined
from heddle.runtime.launch import run_processes
from heddle.runtime.recorder import NoRecorder, Recorder
from heddle.runtime.stop_request import StopRequest
from heddle.runtime.stream import StreamMarks
from heddle.runtime.together import Together
from heddle.spec.job import Job
from heddle.spec.plan import Predicted
from heddle.training.adapt import Adapter
from heddle.training.dry_run.out_of_memory import out_of_memory, ran_out, short_of_memory
from heddle.training.expert_use import UseCounter
from heddle.training.flight import Flight
from heddle.training.links.waiting import with_links
from heddle.training.links.watch import LinkWatch
from heddle.training.loggers import Functions, check_loggers, loggers_of
from heddle.training.metrics import Metrics
from heddle.training.opening import Opening, RunOptions, check_folder, opened, prepare, warn
from heddle.training.outcome import Best, RunEnding, check_sendable
from heddle.training.phases import Phases, RunPhase
from heddle.training.replan import Replanner
from heddle.training.step.choose import make_trainer
from heddle.training.step.trainer import Trainer
from heddle.training.watchdog import Watchdog


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


def train(
    job: Job,
    resume: bool = False,
    trace: bool = False,
    allow_changes: bool = False,
    functions: Functions | None = None,
    auto_resume: bool = False,
) -> Result | None:
    """Run a job under its plan, on as many processes as that takes; None on all but the first rank of a launcher."""
    check_loggers(job.train.log)
    options = RunOptions(resume, trace, auto_resume, allow_changes, functions=functions)
    goes_on = resume or auto_resume or restart_count() > 0
    with RunEnding(job, partial(warn, plain_console())) as ended:
        if goes_on and local_place()[0] == 0:
            restore_run(job, job.run_folder)
        if goes_on:
            job = as_begun(job)
        plan, place = job.planned.plan, launched_place()
        if place is None:  # whether a launcher started all again is known when they have met
            check_folder(job, options)
        if place is not None and place.rank != 0:
            run_joined(plan, place, train_rank, refit=Replanner(job, options))
            return None
        options = replace(options, machine=machine_of(job, Run(job.run_folder)))
        with locked(job.run_folder, partial(warn, plain_console())) as lock:
            if place is not None:
                return ended.with_(run_joined(plan, place, train_rank, refit=Replanner(job, options)))
            if plan.world > 1:
                check_sendable(options.functions)
                # once, before anybody starts, so that mistakes are told at once
                prepare(job, Together(Mesh()), plain_console())
                refit = Replanner(job, options)
                return ended.with_(run_processes(plan, train_rank, lock, restarts=job.train.restarts, refit=refit))
            return ended.with_(train_rank(Mesh(), job, options))


def train_rank(
    mesh: Mesh,
    job: Job,
    options: RunOptions,
    _lock: RunLock | None = None,
    after_step: Callable[[int], None] = lambda _: None,
) -> Result:
    """One rank's part of a run; `after_step` is called with the number of every step that is done.

    It holds the run's lock as long as it lives, if it gets it.
    """
    job, base = job.planned, memory_in_use()
    console, device, begun = plain_console(quiet=mesh.rank != 0), pick_device(), None
    try:
        with repeatable(job.train.deterministic), Watchdog(mesh, job.plan, Phases(job.train.hang_after)) as watchdog:
            together = Together(mesh, watchdog.phases.tick)
            opening = opened(job, options, together, device, console)
            adapter = Adapter(job, together, device, opening.machine)
            while True:  # once more where the first steps show that other strategies are better
                trainer = _made(adapter, opening.data, mesh, watchdog, options.trace)
                opening.begin(trainer, adapter, watchdog)
                begun = begun or (trainer.step, time.monotonic())
                with writing_to(opening.run):
                    flight, validation = _loop(
                        trainer, opening, console, watchdog.phases, adapter, after_step, options.functions
                    )
                if not adapter.changed:
                    break
                del trainer, flight  # two of them would need twice the memory
                free_unused()
                opening, adapter.changed = opening.again, False
                watchdog.phases.begin_anew()
            return Result(
                run=opening.run.folder,
                first_step=begun[0],
                step=trainer.step,
                steps=job.train.steps,
                loss=flight.loss,
                validation_loss=validation,
                unigram_entropy=opening.data.meta.unigram_entropy,
                seconds=time.monotonic() - begun[1],
                step_seconds=flight.step_seconds,
                predicted=adapter.job.predicted,
            )
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error):
            raise
    # Only here is what the step held let go, with the exception that held it. The breakdown takes a while, in which the
    # others fail and the launcher ends everybody: that it was memory is said at once, and the end waits for the rest.
    write_error(mesh.rank, short_of_memory(mesh))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    part_in_failure(mesh.rank)
    raise out_of_memory(job, mesh, base)


def _made(adapter: Adapter, data: Prepared, mesh: Mesh, watchdog: Watchdog, trace: bool) -> Trainer:
    device = adapter.device
    recorder = Recorder(mesh, device) if trace else NoRecorder()
    if not trace and runs_ahead(device) and mesh.world.size > 1:
        recorder = watchdog.stream = StreamMarks(mesh, device)
    with adapter.making():
        return make_trainer(adapter.job, data.train, mesh, with_links(recorder, adapter.job, mesh))


def _loop(
    trainer: Trainer,
    opening: Opening,
    console: Console,
    phases: Phases,
    adapter: Adapter,
    after_step: Callable[[int], None],
    functions: Functions | None = None,
) -> tuple[Flight, float | None]:
    """Steps until the last, until asked to stop or to change strategies, and a checkpoint of wherever that is."""
    train = trainer.job.train
    run, peak, first = opening.run, opening.peak, trainer.mesh.rank == 0
    saver = Saver(
        run.checkpoints,
        adapter.together.mesh,
        train.keep_last,
        train.keep_every,
        phases.tick,
        place_of(trainer.job, run.checkpoints),
    )
    predicted = trainer.job.predicted.step_seconds if trainer.job.predicted is not None else None
    metrics = (
        Metrics(
            run.folder,
            train.steps,
            train.log_every,
            console,
            trainer.step,
            predicted,
            peak.exceeded,
            loggers_of(trainer.job, run.folder, partial(warn, console), functions),
        )
        if first
        else None
    )
    best = Best(run.folder, train, trainer.step, adapter.together)
    saver.best = best.step
    validation, saved, heap = None, trainer.step, Heap(trainer.device)

    def landed(step: int) -> None:
        phases.piece()
        heap.after_step()
        after_step(step)

    flight = Flight(trainer, run, peak.flops, metrics, landed)
    uses = UseCounter(trainer, run.folder)
    trainer.outer.meeting = partial(phases.during, RunPhase.MEETING)
    watch = LinkWatch(trainer.job, trainer.mesh, trainer.device, run.folder, partial(warn, console))
    with metrics or nullcontext(), StopRequest(answer=trainer.mesh.world.size == 1) as stop:
        try:
            while trainer.step < train.steps and not (flight.stopped or adapter.changed or best.over()):
                phases.enter(RunPhase.STEP if phases.steps else RunPhase.FIRST_STEP)
                with adapter.watching():
                    flight.step(stop)
                stop.shared = flight.stopped
                evaluates = trainer.step == train.steps or _due(train.eval_every, trainer.step)
                saves = _due(train.save_every, trainer.step)
                counts = uses.layers and (_due(train.log_every, trainer.step) or trainer.step == train.steps)
                if evaluates or saves or counts:
                    flight.land()
                if counts and (found := uses.take()) is not None and metrics:
                    uses.write(found)
                    metrics.experts(found)
                if evaluates:
                    with phases.during(RunPhase.EVALUATE):
                        validation = trainer.evaluate(opening.data.validation, phases.piece)
                    if metrics and validation is not None:
                        metrics.evaluation(trainer.step, validation)
                    if validation is not None and best.better(trainer.step, validation, writes=first):
                        saver.best, saves = trainer.step, saves or train.keep_best
                    if best.over():
                        console.print(best.in_words, highlight=False, soft_wrap=True)
                if saves:
                    with phases.during(RunPhase.SAVE):
                        trainer.save(saver)
                        watch.look()
                    saved = trainer.step
                if adapter.due(flight):
                    with phases.during(RunPhase.PREPARE):
                        adapter.look(flight, console)
            flight.land()
        except (HeddleError, OSError):
            phases.enter(RunPhase.SAVE)
            saver.wait()  # what is still being written is the checkpoint to go on from
            raise
        phases.enter(RunPhase.SAVE)
        if trainer.step > saved:
            trainer.save(saver)
        saver.wait()
    return flight, validation


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0
