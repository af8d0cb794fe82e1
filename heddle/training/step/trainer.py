"""A rank's part of a training run: its part of the model, its optimizer and its data, and how far they have come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from heddle.checkpoint.adapters import load_frozen, load_peft
from heddle.checkpoint.checkpoint import Saver, load_pieces, state_of
from heddle.checkpoint.kept import kept_state, load_kept
from heddle.checkpoint.manifest import Progress
from heddle.checkpoint.source import WeightSource, load_weights
from heddle.checkpoint.staging import Prefetch
from heddle.data import AnySamples, Trained, has_samples, samples_of
from heddle.parallel.apply import parallelize
from heddle.parallel.collectives import Handle, start_sum_numbers
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.ownership import has_own_loss
from heddle.parallel.pipeline.executor import forward_only
from heddle.parallel.pipeline.transformer import MicrobatchInput, Pipeline, Shape, stage_codes
from heddle.parallel.shards import Kept
from heddle.parallel.tensor.products import EXACT, Float8Products, Products
from heddle.runtime.device import (
    DTYPES,
    Mark,
    multiplies_float8,
    pick_device,
    runs_ahead,
    synchronize,
)
from heddle.runtime.recorder import NoRecorder
from heddle.runtime.tiers import Tiers
from heddle.schedule import verify
from heddle.spec.job import Job
from heddle.spec.ranks import places_of
from heddle.spec.rules.optimizer import MOMENT_BLOCK
from heddle.spec.tune import ADAPTER
from heddle.trace.lanes import Lane, Phase
from heddle.training.outer.outer import Outer, Reached
from heddle.training.outer.outer_step import OuterStep
from heddle.training.sites.site_step import SiteStep, check_sites
from heddle.training.step.compiled import compiles
from heddle.training.step.correction import delay_of
from heddle.training.step.counts import CountedSum, Counts
from heddle.training.step.feed import Batch, Feed
from heddle.training.step.in_flight import StepInFlight, StepResult, Steps, Stop
from heddle.training.step.learning_rate import learning_rate
from heddle.training.step.muon import Muon
from heddle.training.step.optimizer import Optimizer
from heddle.training.step.reference import Reference
from heddle.training.step.rewards import Rewards


class Trainer:
    """Everything that one optimizer step needs and changes, on one rank. One device is the smallest mesh."""

    def __init__(
        self,
        job: Job,
        tokens: Trained,
        mesh: Mesh | None = None,
        recorder: NoRecorder | None = None,
        optimizer: type[Optimizer] = Optimizer,
    ) -> None:
        self.job = job = job.planned
        self.device = pick_device()
        self.recorder = recorder or NoRecorder()
        train, model = job.train, job.model
        self.plan = plan = job.plan
        self.mesh = replace(self.recorder.watched(mesh or Mesh()), places=places_of(plan, job.network))
        dtype = DTYPES[job.storage]
        self.tiers = Tiers(train.offload_folder)
        self.compiled = compiles(job, self.device)
        how = self.compiled, self.tiers, job.tune, self._products()
        build = partial(parallelize, model, plan, self.mesh, self.device, dtype, train.seed, *how)
        build = partial(build, even=MOMENT_BLOCK if train.optimizer == "adamw8bit" else 1)
        self.parallel = build()
        self.gradients = self.parallel.gradients
        pieces, muon = self.gradients.pieces, None
        if train.optimizer == "muon":
            muon = Muon(pieces, self.gradients.held(), self.mesh.tensor, job)
        self.optimizer = optimizer(pieces, train, delay_of(job), muon, model.balance_rate)
        self.outer = self._made_outer()
        self.steps: Steps = self
        schedule = plan.order_of_work(train.global_batch, self.mesh.data.rank)
        verify(schedule)
        tokens_held = plan.tokens(job.sequence)
        self.shape = shape = Shape(tokens_held, model.hidden, dtype, self.device, sliced=plan.sequence)
        chunks = self.parallel.chunks
        codes = stage_codes(plan, self.mesh)
        self.pipeline = Pipeline(schedule, chunks, self.mesh, shape, self.recorder, self.parallel.deferred, codes)
        self.evaluation = Pipeline(forward_only(schedule), chunks, self.mesh, shape, NoRecorder())
        self.reference: Reference | None = None
        if job.preference is not None:
            copied = partial(build, frozen_all=True) if job.tune is None else None
            self.reference = Reference(schedule, self.parallel, self.mesh, shape, copied)
        self.rewards = Rewards(job.preference is not None)
        self.feed = Feed(job, tokens, self.mesh, self.device, self.rewards.noted.append)
        # reading goes on beside the GPU's work; on the CPU it would only take cores from it
        self.batches = Prefetch(partial(self.feed.read, self.feed.samples), ahead=runs_ahead(self.device))
        self.counts = Counts(self.parallel.chunks.values()) if model.own else None
        self.saver: Saver | None = None  # that last got the state
        self.step = 0
        self.position = 0  # the number of the next sample

    @property
    def in_flight(self) -> int:
        """How many steps may be handed out before one is read."""
        return int(runs_ahead(self.device))

    def _products(self) -> Products:
        """How the layers multiply."""
        if self.job.precision != "fp8":
            return EXACT
        return Float8Products(self.job.train.fp8_scaling, multiplies_float8(self.device))

    def _made_outer(self) -> Outer:
        """The step that replicas, or sites, take together after their local steps."""
        check_sites(self.job)
        sites, apart = self.job.train.meeting is not None, bool(self.plan.local_steps)
        if not sites and not apart:
            return Outer()
        return (SiteStep if sites else OuterStep)(self.job, self.mesh, self.optimizer, self.recorder, self.device)

    def train_step(self, stop: Stop = False) -> StepResult:
        """One optimizer step over one global batch. `stop` is looked at when the step is almost over."""
        return self.steps.start_step(stop).read()

    def start_step(self, stop: Stop = False) -> StepInFlight:
        """The same, but on a GPU it is only handed out: nothing here waits for the device, unless under fp16.

        It is to be read before the state is saved.
        """
        began = Mark(self.device)
        self.step, self.position = self.outer.before_step(Reached(self.step, self.position))
        loss = self.pipeline.run(self.next_works(), self.scale, self.gradients)
        with self.recorder.span(Lane.OPTIMIZER, Phase.GRADIENTS):
            self.gradients.finish()
        with self.recorder.span(Lane.OPTIMIZER, Phase.UPDATE):
            sums = self.sum_over_ranks(loss, self.optimizer.squared_norm(), bool(stop), *self.recorder.taken())
            total, squared_norm, stops, *waited = sums.wait().unbind()
            self.recorder.told(waited)
            norm = self.update(learning_rate(self.job.train, self.step), squared_norm)
            self.gradients.clear()
        reached = Reached(self.step + 1, self.position + self.job.train.global_batch)
        (self.step, self.position), total, stops = self.outer.after_step(reached, total, stops)
        numbers = torch.stack([total, norm, stops, *self.rewards.told])
        return self._handed(StepInFlight(numbers, began, self.optimizer.settle))

    def next_works(self) -> list[MicrobatchInput]:
        """This replica's microbatches of the next step; those of the step after it begin to be read."""
        if self.saver is not None and self.gradients.kept:
            self.saver.copied()  # what codes could not say yet is saved, too, and the backward changes it
        batches = self.batches.take(self.position, self.position + self.job.train.global_batch)
        return self._works(batches, self.position, self.feed.samples, training=True)

    @property
    def scale(self) -> float:
        """What the loss of a microbatch is multiplied by: replicas add up gradients, each its share of the mean."""
        return self.optimizer.scale.value * (1 / self.plan.context if self.plan.local_steps else self.weight)

    def update(self, rate: float, squared_norm: Tensor) -> Tensor:
        """Update this rank's pieces, and begin to share them; the gradient norm."""
        if self.saver is not None:
            self.saver.copied()  # from here on the state changes
        norm = self.optimizer.step(rate, squared_norm)
        self.gradients.share()
        return norm

    def _handed(self, step: StepInFlight) -> StepInFlight:
        if self.optimizer.scale.enabled:
            step.read()  # the scale of the next step depends on what came of this one
        return step

    def drain(self) -> None:
        """Nothing is under way: every step was over when it was handed out."""

    def evaluate(self, tokens: Trained, tick: Callable[[], None] = lambda: None) -> float | None:
        """Mean loss over the first samples of `tokens`; None where they are fewer than one sample takes.

        Samples are counted in global batches, so that the result does not depend on the plan. `tick` is called after
        each of these.
        """
        self.steps.drain()
        if not has_samples(tokens, self.job.sequence):
            return None
        samples, size = samples_of(tokens, self.job.sequence, self.job.train.seed), self.job.train.global_batch
        batches = max(1, min(self.job.train.eval_batches, samples.count // size))
        starts = range(0, batches * size, size)
        # the mean is over targets, not over batches
        counts = torch.tensor([samples.targets(start, size) or 1 for start in starts], dtype=torch.float64)
        losses, weighed = [], list[Tensor]()
        with torch.no_grad(), self.outer.shared_weights():
            for start in starts:
                works = self._works(self.feed.read(samples, start), start, samples, training=False)
                losses.append(self.evaluation.run(works))
                if self.counts is not None:
                    weighed.append(self.counts.taken(self.device))
                synchronize(self.device)  # no batch is handed out while another waits: their activations would add up
                tick()
            mean = (torch.stack(losses).double() * (counts / counts.sum()).to(self.device)).sum()
            if self.counts is not None:
                self.counts.put((torch.stack(weighed) * (counts / counts.sum()).to(self.device)).sum())
            return float(self.sum_over_ranks(mean).wait()[0])

    def wait_for_weights(self) -> None:
        """Wait until this replica has all weights of the last step: only the model itself waits without being asked."""
        self.gradients.wait_for_weights()

    def save(self, saver: Saver) -> None:
        """Begin to write a checkpoint of the present step."""
        self.steps.drain()
        self.wait_for_weights()
        scale = self.optimizer.scale
        progress = Progress(self.step, self.position, self.optimizer.updates, scale.value, scale.quiet)
        state = self.outer.saved(state_of(self.optimizer.pieces, self.optimizer.adam, owned=True))
        saver.save(state | kept_state(self._kept(), self._replicas.rank), progress, self.job)
        self.saver = saver

    def load(self, checkpoint: Path) -> None:
        """Take up a checkpoint, written under this plan or any other."""
        self.wait_for_weights()
        progress = load_pieces(checkpoint, self.optimizer.pieces, self.optimizer.adam, self.mesh)
        self._begin()
        load_kept(checkpoint, self._kept(), self._replicas, self.mesh)
        self.step, self.position, self.optimizer.updates = progress.step, progress.samples, progress.updates
        self.optimizer.scale.value, self.optimizer.scale.quiet = progress.loss_scale, progress.quiet_steps
        self.outer.resumed(checkpoint)

    def start_from(self, source: WeightSource) -> None:
        """Take weights from elsewhere in place of new ones; nothing has been learned here yet."""
        pieces = [piece for piece in self.optimizer.pieces if f".{ADAPTER}." not in piece.name]
        load_weights(source, pieces, self.mesh)
        self.take_frozen(source)
        self._begin()

    def take_frozen(self, source: WeightSource) -> None:
        """Take what nobody updates from where it came from: a checkpoint has it by name alone."""
        frozen = [*self.parallel.frozen, *([] if self.reference is None else self.reference.frozen)]
        if frozen:
            load_frozen(source, frozen, self.mesh)

    def take_adapters(self, folder: Path) -> None:
        """Begin with adapters of PEFT's."""
        assert self.job.tune is not None
        load_peft(folder, self.job.model, self.job.tune.adapters, self.optimizer.pieces)
        self._begin()

    def _begin(self) -> None:
        """Go on from masters that were just filled."""
        self.gradients.share()
        self.outer.begin()

    @property
    def _replicas(self) -> Axis:
        """Those of whom each may keep something of its own: who sums gradients, or who meets now and then."""
        return self.mesh.data if self.plan.local_steps else self.mesh.gradients

    def _kept(self) -> list[Kept]:
        """What a checkpoint holds beside masters and moments."""
        return self.gradients.kept + self.outer.kept()

    @property
    def weight(self) -> float:
        """What the mean over this rank's tokens counts in that of a global batch."""
        return len(self.feed.own) / self.job.train.global_batch / self.plan.context

    def _works(self, batches: list[Batch], position: int, samples: AnySamples, training: bool) -> list[MicrobatchInput]:
        works = self.feed.works(batches, position, samples, training)
        return works if self.reference is None else self.reference.added(works)

    def sum_over_ranks(self, loss: Tensor, *others: Tensor | float) -> Handle:
        """Begin to add up the mean loss over replicas, and other numbers: all in one message.

        Replicas with local steps each have their own.
        """
        apart = bool(self.plan.local_steps) and torch.is_grad_enabled()
        own = loss.double() * (1 / self.plan.context if apart else self.weight)
        own = own if has_own_loss(self.mesh) else torch.zeros_like(own)
        if self.counts is not None:
            others = *others, self.counts.taken(self.device) * (self.weight if has_own_loss(self.mesh) else 0.0)
        training = torch.is_grad_enabled()
        if training:
            share = (1 / self.plan.context if apart else self.weight) if has_own_loss(self.mesh) else 0.0
            others = *others, *self.rewards.taken(self.device, share)
        numbers = torch.stack([own, *(_number(other, own) for other in others)])
        handle = start_sum_numbers(numbers, self.mesh.replica if apart else self.mesh.world)
        handle = self.rewards.summed(handle) if training else handle
        return handle if self.counts is None else CountedSum(handle, self.optimizer)


def _number(value: Tensor | float, like: Tensor) -> Tensor:
    """As a number on the device; what the host knows is written there by a kernel, for a copy would wait."""
    return value.to(like) if isinstance(value, Tensor) else torch.full_like(like, float(value))
