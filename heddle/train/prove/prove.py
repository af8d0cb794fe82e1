"""Proving a plan: a small model trained under it, and on one device, must learn the same.

Initial weights, data and dropout do not depend on the plan, so whatever differs by more than rounding is a mistake.
How much rounding to expect is measured on one device: its gradients against the same in double precision; its losses
against those of other microbatches, which only changes the order of additions, or, for a job in bf16 or fp16, against
those in full precision. A proof computes in the precision of its job.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from heddle.data import Samples
from heddle.errors import HeddleError
from heddle.models import Microbatch, Transformer, initialize
from heddle.models.random import token_keys
from heddle.parallel.mesh import Mesh
from heddle.parallel.shards import Piece
from heddle.runtime.device import DTYPES
from heddle.runtime.environment import launched_place
from heddle.runtime.launch import join, leave, run_processes
from heddle.schedule.delayed import DelayedSchedule, UpdateRule
from heddle.spec.job import Job, PlannedJob, Train
from heddle.spec.plan import Plan
from heddle.train.prove.collect import Array, ShardBox, assemble, gather_boxes, gradients, local_boxes, weights
from heddle.train.prove.compare import Comparison, Observed, compare, compare_boxes, largest, likely_cause, relative
from heddle.train.prove.conserved import Conserved, observe_codes
from heddle.train.prove.recurrence import Recurrence
from heddle.train.prove.shrink import PROCESSES, Shrunk, shrink
from heddle.train.step.choose import make_trainer
from heddle.train.step.optimizer import Optimizer


@dataclass(frozen=True)
class Proof:
    """What was tried, and how it came out."""

    shrunk: Shrunk
    comparison: Comparison
    loss_rounding: float  # between two serial runs: with other microbatches, or one in fp32 where the job has less
    cause: str | None  # what kind of mistake it looks like, if any
    seconds: float
    conserved: Conserved | None = None  # what codes of gradients promise, where there are some


def prove(job: Job, steps: int = 20) -> Proof | None:
    """Try a job's plan on a model shrunk for it; None on all but the first rank of a launcher."""
    if job.plan is None:
        raise HeddleError(
            "The job has no [plan].",
            "A proof compares a plan with one device.",
            "Add one, for example [plan] with tensor = 2.",
        )
    began = time.monotonic()
    place = launched_place()
    shrunk = shrink(job, steps, max(PROCESSES, place.world if place else 0))
    plan = shrunk.job.plan
    if place is not None:
        mesh = join(plan, place)
        try:
            parallel, conserved = _observe_all(mesh, shrunk)
        finally:
            leave()
    elif plan.world > 1:
        parallel, conserved = run_processes(plan, _observe_all, shrunk)
    else:
        parallel, conserved = _observe_all(Mesh(), shrunk)
    return None if parallel is None else replace(conclude(shrunk, parallel, began), conserved=conserved)


def _observe_all(mesh: Mesh, shrunk: Shrunk) -> tuple[Observed | None, Conserved | None]:
    """One rank's part: the plan without codes, then what its codes promise."""
    observed = observe(mesh, shrunk.job)
    if shrunk.coded is None:
        return observed, None
    return observed, observe_codes(mesh, shrunk.coded, synthetic_tokens(shrunk.coded))


def conclude(shrunk: Shrunk, parallel: Observed, began: float) -> Proof:
    """Hold what a plan showed against one device, here; `began` is when the proof did."""
    small, plan = shrunk.job, shrunk.job.plan
    serial = observe_serial(small) if plan.delayed is None else observe_recurrence(small, plan.delayed)
    full = small.precision == "fp32"
    # rounding is what it is on one device, whenever updates come
    plain = serial if plan.delayed is None else observe_serial(small)
    again = observe_serial(small, microbatch=1) if full else observe_serial(in_full_precision(small))
    loss_rounding = largest(map(relative, again.losses, plain.losses))
    rounding = gradient_rounding(small, plain)
    comparison = compare(parallel, serial, rounding, None if full else loss_rounding)
    return Proof(
        shrunk=shrunk,
        comparison=comparison,
        loss_rounding=loss_rounding,
        cause=None if comparison.equal else likely_cause(comparison, plan, small.model),
        seconds=time.monotonic() - began,
    )


class _WatchedOptimizer(Optimizer):
    """Keeps the gradients of its first step as they are before clipping, without the loss scale."""

    # Gradients overflow fp16 or not depending on the order in which they are added. A step that one run skips and
    # another takes would look like a mistake, so a proof begins with a scale at which none overflows.
    SCALE = 2.0**7

    def __init__(self, pieces: list[Piece], train: Train, *delays: Any) -> None:
        super().__init__(pieces, train, *delays)
        self.scale.value = min(self.scale.value, self.SCALE)
        self.first: list[ShardBox] = []
        self.seen: set[str] = set()  # parameters that have had a gradient; where updates are late, some have it later

    def step(self, rate: float, squared_norm: Tensor) -> Tensor:
        """Update, as ever."""
        new = [piece for piece in self.pieces if piece.name not in self.seen and piece.master.grad is not None]
        self.first += local_boxes(new, self._unscaled)
        self.seen |= {piece.name for piece in new}
        return super().step(rate, squared_norm)

    def _unscaled(self, piece: Piece) -> Tensor | None:
        found = gradients(piece)
        return None if found is None else found / self.scale.value


def observe(mesh: Mesh, job: Job) -> Observed | None:
    """Train a job on this rank and the others of its mesh; what it showed, on the first rank."""
    trainer = make_trainer(job, synthetic_tokens(job), mesh)
    torch.set_float32_matmul_precision("highest")  # TF32 would hide in its rounding what a proof is to find
    watched = trainer.optimizer = trainer.made_optimizer(_WatchedOptimizer)
    start = gather_boxes(local_boxes(watched.pieces, weights), mesh)
    results = [trainer.train_step() for _ in range(job.train.steps)]
    trainer.drain()
    boxes = gather_boxes(watched.first, mesh)
    norms = [r.norm for r in results] if trainer.plan.delayed is None else [norm_of(boxes)]
    return Observed([r.loss for r in results], norms, boxes, start) if mesh.rank == 0 else None


def observe_serial(job: Job, microbatch: int | None = None) -> Observed:
    """Train a job on one device, by default with each step's samples all at once."""
    plan = Plan(microbatch=microbatch or job.train.global_batch)
    train = replace(job.train, delay_correction="none")
    observed = observe(Mesh(), replace(job, plan=plan, train=train))
    assert observed is not None
    return observed


def observe_recurrence(job: PlannedJob, rule: UpdateRule) -> Observed:
    """Train a job whose updates come late on one device, as the papers write it."""
    delayed = DelayedSchedule(rule, job.plan.pipeline, job.plan.microbatches(job.train.global_batch))
    recurrence = Recurrence(job, delayed)
    start = whole_boxes(recurrence.weights())
    found = recurrence.run(synthetic_tokens(job))
    boxes = whole_boxes(found.first)
    return Observed(found.losses, [norm_of(boxes)], boxes, start)


def whole_boxes(tensors: Mapping[str, Tensor]) -> list[ShardBox]:
    """Whole tensors as the boxes of one rank."""
    return [ShardBox(name, tuple(x.shape), (0,) * x.dim(), x.detach().numpy().copy()) for name, x in tensors.items()]


def norm_of(boxes: Iterable[ShardBox]) -> float:
    """Of everything that boxes hold, each number once."""
    return float(sum((values.astype(np.float64) ** 2).sum() for values in assemble(boxes).values()) ** 0.5)


def in_full_precision(job: Job) -> Job:
    """The same job in fp32, from the same initial weights."""
    return job.stating("fp32")


def gradient_rounding(job: Job, serial: Observed) -> float:
    """The rounding error of one device's first gradients: the largest over the parameters, as they are compared."""
    differences = compare_boxes(serial.boxes, exact_gradients(job))
    return max(torch.finfo(torch.float32).eps, largest(d.relative for d in differences.values()))


def exact_gradients(job: Job) -> dict[str, Array]:
    """The gradients of the first step in double precision, from the model and autograd alone.

    They are those at the weights that the job computes with, which every plan rounds alike.
    """
    model, train = Transformer(job.model), job.train
    initialize(model, train.seed)
    model.to(DTYPES[job.precision]).double().tie()
    samples = Samples(synthetic_tokens(job), job.sequence, train.seed).batch(0, train.global_batch)
    ids, targets = (torch.from_numpy(part).flatten() for part in samples)
    keys = token_keys(train.seed, torch.arange(train.global_batch), job.sequence) if job.model.dropout else None
    F.cross_entropy(model(ids, Microbatch(sequence=job.sequence, keys=keys)), targets).backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def synthetic_tokens(job: Job) -> NDArray[Any]:
    """Text with something to learn in it: each token mostly follows from the one before. Every token occurs."""
    vocab, rng = job.model.vocab, np.random.default_rng(job.train.seed)
    count = max(2 * vocab, job.train.steps * job.tokens_per_step) + 1
    noise, other = rng.random(count), rng.permutation(np.arange(count) % vocab)
    tokens = np.empty(count, np.int64)
    tokens[0] = 0
    for i in range(1, count):
        tokens[i] = (5 * tokens[i - 1] + 3) % vocab if noise[i] < 0.7 else other[i]
    return tokens
