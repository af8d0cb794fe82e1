"""The training loop, from a job to its last step or to the request to stop."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from heddle.errors import HeddleError
from heddle.spec.job import Job
from heddle.train.data import Prepared, check_vocab, prepared_for
from heddle.train.device import memory_gib, peak_flops, synchronize
from heddle.train.interrupt import StopRequest
from heddle.train.learning_rate import learning_rate
from heddle.train.metrics import Metrics, StepMetrics
from heddle.train.run import Run, create_run, refuse_existing, resume_run
from heddle.train.trainer import Trainer


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    run: Path
    step: int
    steps: int
    loss: float  # of the last step
    validation_loss: float | None
    unigram_entropy: float  # nats a token: what knowing only the token frequencies would score
    seconds: float


def train(job: Job, console: Console, resume: bool = False) -> Result:
    """Run a job from its first step to its last, or on from its newest checkpoint."""
    if not resume:
        refuse_existing(job)
    data = prepared_for(job.data)
    check_vocab(data, job.model.vocab)
    trainer = Trainer(job, data.train)
    run = resume_run(job) if resume else create_run(job)
    if resume:
        trainer.load(run.checkpoints)
    else:
        data.tokenizer.save(run.tokenizer)
    peak, source = peak_flops(job.cluster, job.train.precision, trainer.device)
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {trainer.device}, {job.train.precision}, "
        f"peak {peak / 1e12:.3g} TFLOP/s ({source}); {len(data.train):,} tokens to learn from",
        highlight=False,
        soft_wrap=True,
    )
    started = time.monotonic()
    loss, validation = _loop(trainer, run, data, peak, console)
    return Result(
        run=run.folder,
        step=trainer.step,
        steps=job.train.steps,
        loss=loss,
        validation_loss=validation,
        unigram_entropy=data.meta.unigram_entropy,
        seconds=time.monotonic() - started,
    )


def _loop(trainer: Trainer, run: Run, data: Prepared, peak: float, console: Console) -> tuple[float, float | None]:
    """Steps until the last or until asked to stop, and a checkpoint of wherever that is."""
    train = trainer.job.train
    metrics = Metrics(run.folder, train.steps, train.log_every, console, trainer.step)
    loss, validation, saved = math.nan, None, trainer.step
    with metrics, StopRequest() as stop:
        while trainer.step < train.steps and not stop:
            loss = _step(trainer, peak, metrics)
            done = trainer.step == train.steps
            if done or _due(train.eval_every, trainer.step):
                validation = trainer.evaluate(data.validation)
                if validation is not None:
                    metrics.evaluation(trainer.step, validation)
            if _due(train.save_every, trainer.step):
                trainer.save(run.checkpoints)
                saved = trainer.step
        if trainer.step > saved:
            trainer.save(run.checkpoints)
    return loss, validation


def _step(trainer: Trainer, peak: float, metrics: Metrics) -> float:
    job, scale = trainer.job, trainer.optimizer.scale
    rate = learning_rate(job.train, trainer.step)
    began = time.perf_counter()
    loss, norm = trainer.train_step()
    synchronize(trainer.device)
    seconds = time.perf_counter() - began
    # Under fp16 an overflowing gradient only lowers the scale; a loss that is no number ends any run.
    if not math.isfinite(loss) or not (math.isfinite(norm) or scale.enabled):
        raise HeddleError(
            f"Step {trainer.step} has loss {loss} and gradient norm {norm}.",
            "Training cannot go on from numbers that are not finite; the newest checkpoint is from before them.",
            "Lower [train] learning_rate, lengthen warmup or set clip; then go on with --resume.",
        )
    metrics.step(
        StepMetrics(
            step=trainer.step,
            loss=loss,
            learning_rate=rate,
            gradient_norm=norm,
            seconds=seconds,
            tokens_per_second=job.tokens_per_step / seconds,
            mfu=job.model.flops(job.train.global_batch, job.sequence) / seconds / peak,
            memory_gib=memory_gib(trainer.device),
            loss_scale=scale.value if scale.enabled else None,
        )
    )
    return loss


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0
