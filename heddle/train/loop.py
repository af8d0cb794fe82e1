"""The training loop, from a job to its last step or to the request to stop; the same on every rank."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch.distributed as dist
from rich.console import Console

from heddle.checkpoint.checkpoint import Saver, checkpoints, newest_good
from heddle.checkpoint.source import Source, check_model, check_tokenizer, differences, find_source
from heddle.data import Prepared, check_vocab, prepared_for
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.runs.folder import Run, check_resumed, clear, create_run, open_run, refuse_existing, resume_run, writing_to
from heddle.runs.lock import RunLock, locked
from heddle.runs.metrics import StepMetrics
from heddle.runtime.device import memory_gib, peak_flops, pick_device, synchronize
from heddle.runtime.environment import launched_place
from heddle.runtime.error_files import restart_count
from heddle.runtime.launch import leave, run_joined, run_processes
from heddle.runtime.recorder import NoRecorder, Recorder, measured_bubble
from heddle.runtime.stop_request import StopRequest
from heddle.spec.job import Job
from heddle.train.dry_run.out_of_memory import memory_in_use, out_of_memory, ran_out
from heddle.train.metrics import Metrics
from heddle.train.step.learning_rate import learning_rate
from heddle.train.step.trainer import StepResult, Trainer
from heddle.train.watchdog import Doctor, forget


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    run: Path
    first_step: int  # where it went on from; 0 if not resumed
    step: int
    steps: int
    loss: float  # of the last step
    validation_loss: float | None
    unigram_entropy: float  # nats a token: what knowing only the token frequencies would score
    seconds: float
    step_seconds: float | None  # median, without the first step; None if there was no other


@dataclass(frozen=True)
class Orders:
    """How a job is to be run."""

    resume: bool = False
    trace: bool = False
    allow_changes: bool = False  # to what a run that is resumed was begun with


def train(job: Job, resume: bool = False, trace: bool = False, allow_changes: bool = False) -> Result | None:
    """Run a job under its plan, on as many processes as that takes; None on all but the first rank of a launcher."""
    orders = Orders(resume, trace, allow_changes)
    if not restart_count():
        if resume:
            open_run(job.run_folder)
        else:
            refuse_existing(job)
    plan, place = job.planned.plan, launched_place()
    assert plan is not None
    if place is not None and place.rank != 0:
        run_joined(plan, place, train_rank, job, orders)
        return None
    with locked(job.run_folder, partial(_warn, Console())) as lock:
        if place is not None:
            return run_joined(plan, place, train_rank, job, orders)
        if plan.world > 1:
            _prepare(job, Mesh())  # once, before anybody starts, so that mistakes are told at once
            return run_processes(plan, train_rank, job, orders, lock, restarts=job.train.restarts)
        return train_rank(Mesh(), job, orders)


def train_rank(mesh: Mesh, job: Job, orders: Orders, _lock: RunLock | None = None) -> Result:
    """One rank's part of a run. It holds the run's lock as long as it lives, if it gets it."""
    base = memory_in_use()
    try:
        return _train_rank(mesh, job, orders)
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error):
            raise
    # Only here is what the step held let go, with the exception that held it.
    leave()
    raise out_of_memory(job, mesh, base)


def _train_rank(mesh: Mesh, job: Job, orders: Orders) -> Result:
    job = job.planned
    assert job.plan is not None
    data = _prepare(job, mesh)
    console = Console(quiet=mesh.rank != 0)
    warn = partial(_warn, console)
    existing = resume = orders.resume
    if restart_count():
        run = Run(job.run_folder)
        existing, resume = run.job_file.exists(), bool(checkpoints(run.checkpoints))
        where = "going on from the newest checkpoint" if resume else "beginning again, for there is no checkpoint yet"
        warn(f"A process died; {where} (restart {restart_count()}).")
    if existing and mesh.rank == 0:
        check_resumed(job, data, orders.allow_changes, warn)
    source = None if resume else _source(job, data, mesh, warn)
    recorder = Recorder(mesh, pick_device()) if orders.trace else NoRecorder()
    trainer = Trainer(job, data.train, mesh, recorder)
    run = Run(job.run_folder)
    with writing_to(run):
        _open_run(job, data, mesh, existing)
    saver = Saver(run.checkpoints, mesh, job.train.keep_last, job.train.keep_every)
    if resume:
        trainer.load(newest_good(run.checkpoints, mesh, warn))
    elif source is not None:
        trainer.start_from(source)
        console.print(f"Starting from the weights of {source.folder}.", highlight=False, soft_wrap=True)
    peak, origin = peak_flops(job.cluster, job.train.precision, trainer.device)
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {job.plan.world} × {trainer.device.type}, "
        f"{job.train.precision}, peak {peak / 1e12:.3g} TFLOP/s each ({origin}); "
        f"{len(data.train):,} tokens to learn from",
        highlight=False,
        soft_wrap=True,
    )
    first_step, started = trainer.step, time.monotonic()
    with writing_to(run):
        loss, validation, times = _loop(trainer, saver, run, data, peak * job.plan.world, console)
    return Result(
        run=run.folder,
        first_step=first_step,
        step=trainer.step,
        steps=job.train.steps,
        loss=loss,
        validation_loss=validation,
        unigram_entropy=data.meta.unigram_entropy,
        seconds=time.monotonic() - started,
        step_seconds=statistics.median(times[1:]) if len(times) > 1 else None,
    )


def _prepare(job: Job, mesh: Mesh) -> Prepared:
    """The tokens, made and checked by the first rank, opened by the others."""
    if mesh.rank != 0:
        dist.barrier(group=mesh.world.group)
    data = prepared_for(job.data)
    check_vocab(data, job.model.vocab)
    if mesh.rank == 0 and mesh.world.size > 1:
        dist.barrier(group=mesh.world.group)
    return data


def _source(job: Job, data: Prepared, mesh: Mesh, warn: Callable[[str], None]) -> Source | None:
    """The weights that the job starts from, found and checked before anything is made."""
    if job.train.start_from is None:
        return None
    source = find_source(Path(job.train.start_from), mesh, warn)
    check_model(source, job.model)
    if mesh.rank == 0:
        check_tokenizer(source, data)
    if words := differences(source, job.model):
        warn(f"[model] is not quite that of {source.folder}: {words}.")
    return source


def _open_run(job: Job, data: Prepared, mesh: Mesh, existing: bool) -> None:
    if mesh.rank == 0:
        if restart_count() and not existing:  # whoever made the folder died before it was complete
            clear(Run(job.run_folder))
        run = resume_run(job, data) if existing else create_run(job, data)
        forget(run.hang)
    if mesh.world.size > 1:
        dist.barrier(group=mesh.world.group)


def _loop(
    trainer: Trainer, saver: Saver, run: Run, data: Prepared, peak: float, console: Console
) -> tuple[float, float | None, list[float]]:
    """Steps until the last or until asked to stop, and a checkpoint of wherever that is; seconds of each step."""
    train = trainer.job.train
    first = trainer.mesh.rank == 0
    predicted = trainer.job.predicted.step_seconds if trainer.job.predicted is not None else None
    metrics = Metrics(run.folder, train.steps, train.log_every, console, trainer.step, predicted) if first else None
    loss, validation, saved, stopped = math.nan, None, trainer.step, False
    times: list[float] = []
    doctor = Doctor(run.hang, trainer.mesh, trainer.plan, train.hang_after)
    with metrics or nullcontext(), StopRequest(answer=trainer.mesh.world.size == 1) as stop, doctor:
        try:
            while trainer.step < train.steps and not stopped:
                (loss, _, stopped), seconds = _step(trainer, run, peak, metrics, stop)
                times.append(seconds)
                stop.shared = stopped
                if trainer.step == train.steps or _due(train.eval_every, trainer.step):
                    validation = trainer.evaluate(data.validation)
                    if metrics and validation is not None:
                        metrics.evaluation(trainer.step, validation)
                if _due(train.save_every, trainer.step):
                    trainer.save(saver)
                    saved = trainer.step
                doctor.beat()
        except (HeddleError, OSError):
            saver.wait()  # what is still being written is the checkpoint to go on from
            raise
        if trainer.step > saved:
            trainer.save(saver)
        saver.wait()
    return loss, validation, times


def _step(
    trainer: Trainer, run: Run, peak: float, metrics: Metrics | None, stop: StopRequest
) -> tuple[StepResult, float]:
    job, scale = trainer.job, trainer.optimizer.scale
    rate = learning_rate(job.train, trainer.step)
    began = time.perf_counter()
    result = trainer.train_step(stop)
    synchronize(trainer.device)
    seconds = time.perf_counter() - began
    # Under fp16 an overflowing gradient only lowers the scale; a loss that is no number ends any run.
    if not math.isfinite(result.loss) or not (math.isfinite(result.norm) or scale.enabled):
        raise HeddleError(
            f"Step {trainer.step} has loss {result.loss} and gradient norm {result.norm}.",
            "Training cannot go on from numbers that are not finite; any checkpoint is from before them.",
            "Lower [train] learning_rate, lengthen warmup or set clip; then --resume --allow-changes, or begin anew.",
        )
    bubble = None
    if isinstance(trainer.recorder, Recorder):
        bubble = measured_bubble(trainer.recorder.write(run.traces, trainer.step), trainer.mesh)
    if metrics:
        metrics.step(
            StepMetrics(
                step=trainer.step,
                loss=result.loss,
                learning_rate=rate,
                gradient_norm=result.norm,
                seconds=seconds,
                tokens_per_second=job.tokens_per_step / seconds,
                mfu=job.model.flops(job.train.global_batch, job.sequence) / seconds / peak,
                memory_gib=memory_gib(trainer.device),
                loss_scale=scale.value if scale.enabled else None,
                bubble=bubble,
            )
        )
    return result, seconds


def _warn(console: Console, words: str) -> None:
    console.print(words, style="yellow", soft_wrap=True, markup=False)


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0
