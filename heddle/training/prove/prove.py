"""Proving a plan: a small model trained under it, and on one device, must learn the same.

Initial weights, data and dropout do not depend on the plan, so whatever differs by more than rounding is a mistake.
How much rounding to expect is measured on one device: its gradients against the same in double precision; its losses
against those of other microbatches, which only changes the order of additions, or, for a job in bf16 or fp16, against
those in full precision. A proof computes in the precision of its job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from heddle.console import plain_console
from heddle.data import Documents, Trained, samples_of
from heddle.errors import listing
from heddle.models import Transformer, initialize
from heddle.models.lora import B, adapt, adapters_off
from heddle.models.nf4 import rounded
from heddle.models.random import fill_normal, token_keys
from heddle.parallel.context.held import Held
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.shards import Piece, boxes_of
from heddle.runtime.device import DTYPES, gpu_count, has_gpus
from heddle.runtime.environment import launched_place
from heddle.runtime.joining import join, leave
from heddle.runtime.launch import run_processes
from heddle.schedule.late import LateSchedule, UpdateRule
from heddle.spec.job import Job, PlannedJob, Train
from heddle.spec.plan import Plan
from heddle.spec.tune import in_four_bits
from heddle.training.planned import plan_to_train
from heddle.training.prove.collect import Array, ShardBox, assemble, gather_boxes, gradients, local_boxes, weights
from heddle.training.prove.compare import Comparison, Observed, compare, compare_boxes, largest, likely_cause, relative
from heddle.training.prove.conserved import Conserved, observe_codes
from heddle.training.prove.own import Outputs, pattern_behind
from heddle.training.prove.own import exact_gradients as own_gradients
from heddle.training.prove.recurrence import Recurrence
from heddle.training.prove.routes import RouteRecorder, gather_routes
from heddle.training.prove.shrink import PROCESSES, Shrunk, shrink
from heddle.training.step.choose import make_trainer
from heddle.training.step.optimizer import Optimizer
from heddle.training.step.trainer import Trainer

SEEDS = 5  # that are tried while experts of equal probability are chosen otherwise


@dataclass(frozen=True)
class Proof:
    """What was tried, and how it came out."""

    shrunk: Shrunk
    comparison: Comparison
    loss_rounding: float  # between two serial runs: with other microbatches, or one in fp32 where the job has less
    cause: str | None  # what kind of mistake it looks like, if any
    seconds: float
    conserved: Conserved | None = None  # what codes of gradients promise, where there are some

    @property
    def compared_with(self) -> str:
        """What the plan was held against: late updates are not those of one device that waits for them."""
        rule = self.shrunk.job.plan.late
        return "one device" if rule is None else f"the recurrence of update = '{rule.name}'"

    @property
    def verdict(self) -> str:
        """What was compared, how that came out, and what of the plan was not compared."""
        left_out = self.shrunk.left_out
        what = "the rest of this plan" if left_out else "this plan"
        without = f", without {listing(left_out)}" if left_out else ""
        if not self.comparison.equal:
            return f"different{without}: {self.cause}."
        said = f"equal{without}: {what} trains like one device."
        if self.shrunk.job.plan.late is not None:
            said = f"equal{without}: {what} trains as {self.compared_with} says, not like one device without delay."
        if left_out:
            said += f" What {listing(left_out)} {'change' if len(left_out) > 1 else 'changes'} was not compared."
        return said


def prove(job: Job, steps: int = 20) -> Proof | None:
    """Try a job's plan on a model shrunk for it; None on all but the first rank of a launcher.

    A job without a plan is planned first, as by every command.
    """
    job, _ = plan_to_train(job, dry_run=True)
    began = time.monotonic()
    place = launched_place()
    shrunk = shrink(job, steps, max(_most_processes(), place.world if place else 0))
    if place is not None:
        mesh = join(shrunk.job.plan, place)
        try:
            parallel, conserved = observe_all(mesh, shrunk)
        finally:
            leave()
        return None if parallel is None else replace(conclude(shrunk, parallel, began), conserved=conserved)
    proof = _proved(shrunk, began)
    for seed in range(job.train.seed + 1, job.train.seed + SEEDS):
        if not proof.comparison.near_tie:
            break
        proof = _proved(_with_seed(shrunk, seed), began)
    return proof


def _proved(shrunk: Shrunk, began: float) -> Proof:
    """On processes of its own."""
    plan = shrunk.job.plan
    if plan.world > 1:
        parallel, conserved = run_processes(plan, observe_all, shrunk)
    else:
        parallel, conserved = observe_all(Mesh(), shrunk)
    return replace(conclude(shrunk, parallel, began), conserved=conserved)


def _with_seed(shrunk: Shrunk, seed: int) -> Shrunk:
    """The same from other weights and samples, where rounding alone sent tokens to other experts."""
    jobs = (shrunk.job, shrunk.coded)
    small, coded = (None if each is None else replace(each, train=replace(each.train, seed=seed)) for each in jobs)
    assert small is not None
    note = f"seed {shrunk.job.train.seed}: rounding sent tokens to other experts, so it is tried with seed {seed}."
    return replace(shrunk, job=small, coded=coded, notes=(*shrunk.notes, note))


def _most_processes() -> int:
    """That fit this machine. With GPUs each needs its own; a single one can prove nothing, and CPUs take its place."""
    if not has_gpus():
        return PROCESSES
    if (gpus := gpu_count()) < 2:
        os.environ["HEDDLE_DEVICE"] = "cpu"
        plain_console().print("One GPU cannot run several ranks: the plan is proved on the CPUs.", highlight=False)
        return PROCESSES
    return min(PROCESSES, gpus)


def observe_all(mesh: Mesh, shrunk: Shrunk) -> tuple[Observed | None, Conserved | None]:
    """One rank's part: the plan without codes, then what its codes promise."""
    observed = observe(mesh, shrunk.job)
    if shrunk.coded is None:
        return observed, None
    return observed, observe_codes(mesh, shrunk.coded, synthetic_tokens(shrunk.coded))


def conclude(shrunk: Shrunk, parallel: Observed, began: float) -> Proof:
    """Hold what a plan showed against one device, here; `began` is when the proof did."""
    small, plan = shrunk.job, shrunk.job.plan
    full = small.precision == "fp32"
    plain = observe_serial(small)
    serial = plain if plan.late is None else observe_recurrence(small, plan.late)
    if small.preference is not None:  # what a reference is, no comparison of plans would show
        serial = replace(serial, losses=[exact_first_step(small)[0], *serial.losses[1:]])
    if full:
        loss_rounding = largest(map(relative, observe_serial(small, microbatch=1).losses, plain.losses))
    else:  # late updates make more of a rounding than others do
        exact = in_full_precision(small).planned
        other = observe_serial(exact) if plan.late is None else observe_recurrence(exact, plan.late)
        loss_rounding = largest(map(relative, other.losses, serial.losses))
    rounding = gradient_rounding(small, plain)
    if small.model.own:  # whose loss may round in fp32 whatever its module computes in
        others = observe_serial(small, microbatch=1)
        rounding = max(
            rounding, largest(d.relative for d in compare_boxes(others.boxes, assemble(plain.boxes)).values())
        )
    comparison = compare(parallel, serial, rounding, None if full else loss_rounding, plan.late is not None)
    return Proof(
        shrunk=shrunk,
        comparison=comparison,
        loss_rounding=loss_rounding,
        cause=None if comparison.equal else cause_of(small, comparison, parallel, serial),
        seconds=time.monotonic() - began,
    )


def cause_of(small: PlannedJob, comparison: Comparison, parallel: Observed, serial: Observed) -> str:
    """What kind of mistake the differences look like; of own modules, which pattern."""
    if small.model.own:
        limit = comparison.gradient_limit
        found = pattern_behind(small, parallel.outputs, serial.outputs, comparison.wrong, limit)
        if found is not None:
            return found
    if small.preference is not None and small.tune is not None and comparison.losses[0] > comparison.loss_limit:
        mistaken, _ = exact_first_step(small, adapters_on=True)
        if relative(parallel.losses[0], mistaken) <= comparison.loss_limit:
            return "the loss of step 1 is that of a reference that learns: the reference has its adapters on"
    return likely_cause(comparison, small.plan, small.model, small.data)


class _WatchedOptimizer(Optimizer):
    """Keeps the gradients of its first step as they are before clipping, without the loss scale."""

    # Gradients overflow fp16 or not depending on the order in which they are added. A step that one run skips and
    # another takes would look like a mistake, so a proof begins with a scale at which none overflows.
    SCALE = 2.0**7

    def __init__(self, pieces: list[Piece], train: Train, *others: Any) -> None:
        super().__init__(pieces, train, *others)
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
    recorder = RouteRecorder()
    trainer = make_trainer(job, synthetic_tokens(job), mesh, recorder, _WatchedOptimizer)
    random_adapters(trainer)
    listening = Outputs(trainer) if job.model.own else None
    torch.set_float32_matmul_precision("highest")  # TF32 would hide in its rounding what a proof is to find
    watched = trainer.optimizer
    assert isinstance(watched, _WatchedOptimizer)
    start = gather_boxes(local_boxes(watched.pieces, weights), mesh)
    hooks = recorder.watch(trainer) if trainer.plan.late is None and not job.train.compile else []
    results = [trainer.train_step()]
    for hook in hooks:
        hook.remove()
    results += [trainer.train_step() for _ in range(job.train.steps - 1)]
    trainer.steps.drain()
    boxes = gather_boxes(watched.first, mesh)
    norms = [r.norm for r in results] if trainer.plan.late is None else [norm_of(boxes)]
    outputs = [] if listening is None else listening.gathered(mesh)
    routes = gather_routes(recorder.routes(trainer), mesh)
    losses = [r.loss for r in results]
    return Observed(losses, norms, boxes, start, outputs, routes) if mesh.rank == 0 else None


def random_adapters(trainer: Trainer) -> None:
    """Let B begin with numbers of its own: where it is zero A has no gradient, and a mistake there would not show."""
    pieces = [piece for piece in trainer.gradients.pieces if piece.name.endswith(B)]
    for piece in pieces:
        for offset, part in boxes_of(piece, piece.master):
            begin_anywhere(part, piece.name, trainer.job.train.seed, piece.place.shape, offset)
        if piece.target is not None:
            piece.target.copy_(piece.master)
    if pieces:
        trainer.gradients.share()


def begin_anywhere(part: Tensor, name: str, seed: int, shape: torch.Size, offset: tuple[int, ...]) -> None:
    """Fill a box of an adapter's B with its part of random numbers that do not depend on the plan."""
    fill_normal(part, name, seed, 0.1, shape, offset)


def observe_serial(job: Job, microbatch: int | None = None) -> Observed:
    """Train a job on one device, by default with each step's samples all at once."""
    plan = Plan(microbatch=microbatch or job.train.global_batch)
    train = replace(job.train, delay_correction="none")
    observed = observe(Mesh(), replace(job, plan=plan, train=train))
    assert observed is not None
    return observed


def observe_recurrence(job: PlannedJob, rule: UpdateRule) -> Observed:
    """Train a job whose updates come late on one device, as the papers write it."""
    late = LateSchedule(rule, job.plan.pipeline, job.plan.microbatches(job.train.global_batch))
    recurrence = Recurrence(job, late)
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
    """The gradients of the first step in double precision, from the model and autograd alone."""
    if job.model.own:
        return own_gradients(job, synthetic_tokens(job))
    return exact_first_step(job)[1]


def exact_first_step(job: Job, adapters_on: bool = False) -> tuple[float, dict[str, Array]]:
    """The loss and the gradients of the first step in double precision.

    `adapters_on`: what the loss would be if the reference of preferences had its adapters on.

    They are those at the weights that the job computes with, which every plan rounds alike.
    """
    model, train = Transformer(job.model), job.train
    if job.tune is not None:
        adapt(model, replace(job.tune, base=None))
    initialize(model, train.seed)
    if job.tune is not None and job.tune.base == "nf4":  # plain numbers, as they come back from four bits
        for name, parameter in model.named_parameters():
            if in_four_bits(name):
                parameter.data = rounded(parameter.data)
    for name, parameter in model.named_parameters():
        if name.endswith(B):
            begin_anywhere(parameter.data, name, train.seed, parameter.shape, (0, 0))
    model.to(DTYPES[job.storage]).double().tie()
    samples = samples_of(synthetic_tokens(job), job.sequence, train.seed)
    ids, targets = (torch.from_numpy(part).flatten() for part in samples.batch(0, train.global_batch))
    drops = job.model.dropout or (job.tune is not None and job.tune.adapters.dropout)
    keys = token_keys(train.seed, torch.arange(train.global_batch), job.sequence) if drops else None
    batch = Held(job.sequence, Axis(), ids.device).microbatch(samples.lengths_of(range(train.global_batch)))
    logits = model(ids, replace(batch, keys=keys))
    if job.preference is None:
        loss = F.cross_entropy(logits, targets)
    else:
        with torch.no_grad(), adapters_off([] if adapters_on else [model]):
            plain = model(ids, batch)
        lengths = samples.lengths_of(range(train.global_batch))
        loss = preference_loss(job.preference.beta, *(answer_logs(x, targets, lengths) for x in (logits, plain)))
    loss.backward()
    return float(loss.detach()), {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def answer_logs(logits: Tensor, targets: Tensor, lengths: list[list[int]]) -> Tensor:
    """The log-probability of every document, one after the other: of the tokens that are learned of it."""
    logs = -F.cross_entropy(logits, targets, reduction="none").view(len(lengths), -1)
    parts = [row[: sum(own)].split(own) for row, own in zip(logs, lengths, strict=True)]
    return torch.stack([part.sum() for row in parts for part in row])


def preference_loss(beta: float, model: Tensor, reference: Tensor) -> Tensor:
    """The mean over pairs of arXiv 2305.18290, Eq. 7."""
    gains = model - reference
    return -F.logsigmoid(beta * (gains[::2] - gains[1::2])).mean()


def synthetic_tokens(job: Job) -> Trained:
    """What a proof learns from: text, or as of a job with conversations, documents that are learned in part."""
    tokens = synthetic_text(job)
    if job.preference is None and (job.data is None or not job.data.chat):
        return tokens
    return synthetic_documents(job, tokens)


def synthetic_documents(job: Job, tokens: NDArray[Any]) -> Documents:
    """Documents of all lengths, of which one is learned almost whole and the next hardly at all.

    Nobody who averages over samples, microbatches or replicas rather than over targets gets the same loss.
    """
    rng = np.random.default_rng(job.train.seed + 1)
    lengths: list[int] = []
    longest = job.sequence + 6 if job.preference is None else job.sequence // 2 + 3  # of which most fit, and not all
    while sum(lengths) < len(tokens):
        lengths.append(min(int(rng.integers(2, longest)), len(tokens) - sum(lengths)))
    share = np.repeat(rng.choice([0.05, 0.3, 0.95], len(lengths)), lengths)
    learned = (rng.random(len(tokens)) < share).astype(np.uint8)
    learned[np.cumsum(lengths) - 1] = 1
    pack, pairs = job.data is not None and job.data.pack, job.preference is not None
    whole = len(lengths) - len(lengths) % 2 if pairs else len(lengths)
    end = sum(lengths[:whole])
    return Documents(tokens[:end], learned[:end], np.array(lengths[:whole]), end=0, pack=pack, pairs=pairs)


def synthetic_text(job: Job) -> NDArray[Any]:
    """Text with something to learn in it: each token mostly follows from the one before. Every token occurs."""
    vocab, rng = job.model.vocab, np.random.default_rng(job.train.seed)
    count = max(2 * vocab, job.train.steps * job.tokens_per_step) + 1
    noise, other = rng.random(count), rng.permutation(np.arange(count) % vocab)
    tokens = np.empty(count, np.int64)
    tokens[0] = 0
    for i in range(1, count):
        tokens[i] = (5 * tokens[i - 1] + 3) % vocab if noise[i] < 0.7 else other[i]
    return tokens
