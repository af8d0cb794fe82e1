"""A rank's part of a training run: its part of the model, its optimizer and its data, and how far they have come."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from heddle.checkpoint.checkpoint import Saver, load_pieces, state_of
from heddle.checkpoint.manifest import Progress
from heddle.checkpoint.source import Source, load_weights
from heddle.checkpoint.staging import Prefetch
from heddle.data import Samples
from heddle.models import Microbatch
from heddle.models.random import token_keys
from heddle.parallel.apply import parallelize
from heddle.parallel.collectives import all_reduce, slice_of
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import forward_only
from heddle.parallel.pipeline.transformer import Pipeline, Shape, Work
from heddle.runtime.device import DTYPES, pick_device
from heddle.runtime.recorder import NoRecorder, Recorder
from heddle.runtime.stop_request import StopRequest
from heddle.schedule import build as build_schedule
from heddle.schedule import verify
from heddle.spec.job import Job
from heddle.train.step.learning_rate import learning_rate
from heddle.train.step.optimizer import Optimizer

Tokens = NDArray[Any]
Stop = bool | StopRequest


class StepResult(NamedTuple):
    """What a step tells, the same on every rank."""

    loss: float
    norm: float  # of the gradient, before clipping
    stop: bool  # whether any rank was asked to stop


class Trainer:
    """Everything that one optimizer step needs and changes, on one rank. One device is the smallest mesh."""

    def __init__(
        self, job: Job, tokens: Tokens, mesh: Mesh | None = None, recorder: Recorder | NoRecorder | None = None
    ) -> None:
        self.job = job = job.planned
        assert job.plan is not None
        self.device = pick_device()
        self.recorder = recorder or NoRecorder()
        self.mesh = self.recorder.watched(mesh or Mesh())
        train, model = job.train, job.model
        self.plan = plan = job.plan
        dtype = DTYPES[train.precision]
        self.parallel = parallelize(model, plan, self.mesh, self.device, dtype, train.seed, train.compile)
        self.optimizer = Optimizer(self.parallel.gradients.pieces, train)
        schedule = build_schedule(plan.schedule, plan.pipeline, plan.microbatches(train.global_batch), plan.virtual)
        verify(schedule)
        shape = Shape(plan.microbatch * job.sequence, model.hidden, dtype, self.device, sliced=plan.sequence)
        chunks = self.parallel.chunks
        self.pipeline = Pipeline(schedule, chunks, self.mesh, shape, self.recorder)
        self.evaluation = Pipeline(forward_only(schedule), chunks, self.mesh, shape, NoRecorder())
        self.samples = Samples(tokens, job.sequence, train.seed)
        # reading goes on beside the GPU's work; on the CPU it would only take cores from it
        self.batches = Prefetch(partial(self._read, self.samples), ahead=self.device.type == "cuda")
        self.saver: Saver | None = None  # that last got the state
        self.step = 0
        self.position = 0  # the number of the next sample

    def train_step(self, stop: Stop = False) -> StepResult:
        """One optimizer step over one global batch. `stop` is looked at when the step is almost over."""
        rate = learning_rate(self.job.train, self.step)
        following = self.position + self.job.train.global_batch
        works = self._works(self.batches.take(self.position, following), self.position, training=True)
        gradients = self.parallel.gradients
        # Replicas add their gradients up; each contributes its share of the mean.
        scale = self.optimizer.scale.value / self.mesh.data.size
        loss = self.pipeline.run(works, scale, gradients)
        with self.recorder.span("optimizer", "gradients"):
            gradients.finish()
        with self.recorder.span("optimizer", "update"):
            total, squared_norm, stops = self._sum_over_ranks(loss, self.optimizer.squared_norm(), bool(stop))
            if self.saver is not None:
                self.saver.copied()  # from here on the state changes
            device_norm = self.optimizer.step(rate, squared_norm)
            gradients.share()
            gradients.clear()
            # the only place where a step waits for its device: all of its work has been given by now
            mean_loss, norm, stopping = torch.stack([total, device_norm, stops]).tolist()
            self.optimizer.settle(norm)
        self.step += 1
        self.position += self.job.train.global_batch
        return StepResult(mean_loss, norm, stopping > 0)

    @torch.no_grad()
    def evaluate(self, tokens: Tokens) -> float | None:
        """Mean loss over the first samples of `tokens`; None where they are fewer than one sample takes.

        Samples are counted in global batches, so that the result does not depend on the plan.
        """
        if len(tokens) <= self.job.sequence:
            return None
        samples = Samples(tokens, self.job.sequence, self.job.train.seed)
        batches = max(1, min(self.job.train.eval_batches, samples.count // self.job.train.global_batch))
        starts = range(0, batches * self.job.train.global_batch, self.job.train.global_batch)
        works = (self._works(self._read(samples, start), start, training=False) for start in starts)
        losses = [self.evaluation.run(work) for work in works]
        return float(self._sum_over_ranks(torch.stack(losses).mean())[0])

    def save(self, saver: Saver) -> None:
        """Begin to write a checkpoint of the present step."""
        scale = self.optimizer.scale
        progress = Progress(self.step, self.position, self.optimizer.updates, scale.value, scale.quiet)
        saver.save(state_of(self.optimizer.pieces, self.optimizer.adam, owned=True), progress, self.job)
        self.saver = saver

    def load(self, checkpoint: Path) -> None:
        """Take up a checkpoint, written under this plan or any other."""
        progress = load_pieces(checkpoint, self.optimizer.pieces, self.optimizer.adam, self.mesh)
        self.parallel.gradients.share()
        self.step, self.position, self.optimizer.updates = progress.step, progress.samples, progress.updates
        self.optimizer.scale.value, self.optimizer.scale.quiet = progress.loss_scale, progress.quiet_steps

    def start_from(self, source: Source) -> None:
        """Take weights from elsewhere in place of new ones; nothing has been learned here yet."""
        load_weights(source, self.optimizer.pieces, self.mesh)
        self.parallel.gradients.share()

    def _first_sample(self, position: int) -> int:
        """Of this replica, in the global batch that starts with sample number `position`."""
        return position + self.mesh.data.rank * (self.job.train.global_batch // self.mesh.data.size)

    def _read(self, samples: Samples, position: int) -> list[tuple[Tensor, Tensor]]:
        """Inputs and targets of this replica's microbatches of a global batch, in host memory that a GPU can copy."""
        size, share = self.plan.microbatch, self.job.train.global_batch // self.mesh.data.size
        first = self._first_sample(position)
        batches = []
        for start in range(first, first + share, size):
            ids, following = (torch.from_numpy(part).flatten() for part in samples.batch(start, size))
            pinned = self.device.type == "cuda"
            batches.append((ids.pin_memory(), following.pin_memory()) if pinned else (ids, following))
        return batches

    def _works(self, batches: list[tuple[Tensor, Tensor]], position: int, training: bool) -> list[Work]:
        """What was read of the global batch that starts with sample number `position`, on its way to the device."""
        works = []
        for number, (inputs, targets) in enumerate(batches):
            ids, following = (part.to(self.device, non_blocking=True) for part in (inputs, targets))
            start = self._first_sample(position) + number * self.plan.microbatch
            keys = self._dropout_keys(start) if training and self.job.model.dropout else None
            works.append(Work(ids, following, Microbatch(sequence=self.job.sequence, keys=keys)))
        return works

    def _dropout_keys(self, start: int) -> Tensor:
        numbers = torch.arange(start, start + self.plan.microbatch, device=self.device)
        keys = token_keys(self.job.train.seed, numbers, self.job.sequence)
        return slice_of(keys, self.mesh.tensor) if self.plan.sequence else keys

    def _sum_over_ranks(self, loss: Tensor, *others: Tensor | bool) -> Tensor:
        """The mean loss over replicas, and sums of other numbers: all in one message."""
        counted = self.mesh.tensor.rank == 0 and self.mesh.pipeline.rank == self.mesh.pipeline.size - 1
        own = loss.double() / self.mesh.data.size if counted else torch.zeros_like(loss, dtype=torch.float64)
        numbers = torch.stack([own, *(torch.as_tensor(other).to(own) for other in others)])
        return all_reduce(numbers, self.mesh.world)
