"""A rank's part of a training run: its part of the model, its optimizer and its data, and how far they have come."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from heddle.checkpoint.checkpoint import Saver, load_pieces, state_of
from heddle.checkpoint.index import read_index
from heddle.checkpoint.kept import kept_state, load_kept
from heddle.checkpoint.manifest import Progress
from heddle.checkpoint.source import WeightSource, load_weights
from heddle.checkpoint.staging import Prefetch
from heddle.data import Samples
from heddle.models import Microbatch
from heddle.models.random import token_keys
from heddle.parallel.apply import parallelize
from heddle.parallel.collectives import Handle, slice_of, start_sum_numbers
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import forward_only
from heddle.parallel.pipeline.transformer import MicrobatchInput, Pipeline, Shape, stage_codes
from heddle.parallel.shards import Kept
from heddle.runtime.device import DTYPES, HostCopy, Mark, on_gpu, pick_device, runs_ahead, synchronize
from heddle.runtime.recorder import NoRecorder, Recorder
from heddle.runtime.stop_request import StopRequest
from heddle.runtime.tiers import Tiers
from heddle.schedule import verify
from heddle.spec.job import Job
from heddle.spec.ranks import places_of
from heddle.trace.lanes import Lane, Phase
from heddle.train.links.waiting import LinkTimes
from heddle.train.outer.outer_step import OuterStep
from heddle.train.sites.site_step import SiteStep, check_sites
from heddle.train.step.learning_rate import learning_rate
from heddle.train.step.optimizer import Optimizer

Tokens = NDArray[Any]
Stop = bool | StopRequest
Kind = TypeVar("Kind", bound=Optimizer)


class StepInFlight:
    """A step that was handed to the device. Only who reads what it tells waits for it."""

    def __init__(self, numbers: Tensor, began: Mark, settle: Callable[[float], None]) -> None:
        """`settle` is told the gradient norm when that is read."""
        self.numbers, self.began, self.settle = HostCopy(numbers), began, settle
        self.result: StepResult | None = None

    def read(self) -> StepResult:
        """What it tells, once it is done."""
        if self.result is None:
            loss, norm, stops = self.numbers.read()
            self.settle(norm)
            self.result = StepResult(loss, norm, stops > 0)
        return self.result

    @property
    def seconds(self) -> float:
        """How long it took the device; known once it was read."""
        return self.numbers.mark.since(self.began)


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
        self.device = pick_device()
        self.recorder = recorder or NoRecorder()
        train, model = job.train, job.model
        self.plan = plan = job.plan
        self.mesh = replace(self.recorder.watched(mesh or Mesh()), places=places_of(plan, job.network))
        dtype = DTYPES[job.precision]
        tiers = Tiers(train.offload_folder)
        self.parallel = parallelize(model, plan, self.mesh, self.device, dtype, train.seed, train.compile, tiers)
        self.optimizer = self.made_optimizer(Optimizer)
        self.outer = self._made_outer()
        self.asked = torch.zeros((), dtype=torch.float64, device=self.device)  # to stop, since replicas last met
        self.own = plan.samples(train.global_batch, self.mesh.data.rank)  # of a global batch
        schedule = plan.order_of_work(train.global_batch, self.mesh.data.rank)
        verify(schedule)
        self.shape = shape = Shape(
            plan.microbatch * job.sequence, model.hidden, dtype, self.device, sliced=plan.sequence
        )
        chunks = self.parallel.chunks
        codes = stage_codes(plan, self.mesh)
        self.pipeline = Pipeline(schedule, chunks, self.mesh, shape, self.recorder, self.parallel.deferred, codes)
        self.evaluation = Pipeline(forward_only(schedule), chunks, self.mesh, shape, NoRecorder())
        self.samples = Samples(tokens, job.sequence, train.seed)
        # reading goes on beside the GPU's work; on the CPU it would only take cores from it
        self.batches = Prefetch(partial(self._read, self.samples), ahead=runs_ahead(self.device))
        self.saver: Saver | None = None  # that last got the state
        self.step = 0
        self.position = 0  # the number of the next sample

    @property
    def in_flight(self) -> int:
        """How many steps may be handed out before one is read."""
        return int(runs_ahead(self.device))

    def made_optimizer(self, kind: Callable[..., Kind]) -> Kind:
        """One for what this rank updates."""
        return kind(self.parallel.gradients.pieces, self.job.train)

    def _made_outer(self) -> OuterStep | SiteStep | None:
        """The step that those take together who learn by themselves in between: replicas, or sites."""
        check_sites(self.job)
        if self.job.train.meeting is not None:
            return SiteStep(self.job, self.mesh, self.optimizer)
        return OuterStep(self.optimizer.pieces, self.mesh, self.job) if self.plan.local_steps else None

    def drain(self) -> None:
        """Wait for what is under way: nothing, unless updates come late."""

    def train_step(self, stop: Stop = False) -> StepResult:
        """One optimizer step over one global batch. `stop` is looked at when the step is almost over."""
        return self.start_step(stop).read()

    def start_step(self, stop: Stop = False) -> StepInFlight:
        """The same, but on a GPU it is only handed out: nothing here waits for the device, unless under fp16.

        It is to be read before the state is saved.
        """
        began = Mark(self.device)
        if isinstance(self.outer, SiteStep) and self.outer.place is None:
            self.outer.join(self.step)
            self._moved_on(self.outer)
        rate = learning_rate(self.job.train, self.step)
        following = self.position + self.job.train.global_batch
        works = self._works(self.batches.take(self.position, following), self.position, training=True)
        gradients = self.parallel.gradients
        # Replicas add their gradients up; each contributes its share of the mean.
        scale = self.optimizer.scale.value * (1 if self.plan.local_steps else self._weight)
        loss = self.pipeline.run(works, scale, gradients)
        with self.recorder.span(Lane.OPTIMIZER, Phase.GRADIENTS):
            gradients.finish()
        with self.recorder.span(Lane.OPTIMIZER, Phase.UPDATE):
            links = self.recorder if isinstance(self.recorder, LinkTimes) else None
            waits = [] if links is None else links.taken()
            sums = self._sum_over_ranks(loss, self.optimizer.squared_norm(), bool(stop), *waits)
            total, squared_norm, stops, *waited = sums.wait().unbind()
            if links is not None:
                links.told(waited)
            if self.saver is not None:
                self.saver.copied()  # from here on the state changes
            norm = self.optimizer.step(rate, squared_norm)
            gradients.share()
            gradients.clear()
        self.step += 1
        if self.outer is not None:
            total, stops = self._meet(self.outer, total, stops)
        self.position += self.job.train.global_batch
        if isinstance(self.outer, SiteStep) and self.outer.due(self.step):
            self._moved_on(self.outer)
        handed = StepInFlight(torch.stack([total, norm, stops]), began, self.optimizer.settle)
        if self.optimizer.scale.enabled:
            handed.read()  # the scale of the next step depends on what came of this one
        return handed

    @torch.no_grad()
    def evaluate(self, tokens: Tokens, tick: Callable[[], None] = lambda: None) -> float | None:
        """Mean loss over the first samples of `tokens`; None where they are fewer than one sample takes.

        Samples are counted in global batches, so that the result does not depend on the plan. `tick` is called after
        each of these.
        """
        if len(tokens) <= self.job.sequence:
            return None
        samples = Samples(tokens, self.job.sequence, self.job.train.seed)
        batches = max(1, min(self.job.train.eval_batches, samples.count // self.job.train.global_batch))
        starts = range(0, batches * self.job.train.global_batch, self.job.train.global_batch)
        losses = []
        with self.outer.shared_weights() if isinstance(self.outer, OuterStep) else nullcontext():
            for start in starts:
                losses.append(self.evaluation.run(self._works(self._read(samples, start), start, training=False)))
                synchronize(self.device)  # no batch is handed out while another waits: their activations would add up
                tick()
        return float(self._sum_over_ranks(torch.stack(losses).mean()).wait()[0])

    def wait_for_weights(self) -> None:
        """Wait until this replica has all weights of the last step: only the model itself waits without being asked."""
        self.parallel.gradients.wait_for_weights()

    def save(self, saver: Saver) -> None:
        """Begin to write a checkpoint of the present step."""
        self.wait_for_weights()
        scale = self.optimizer.scale
        progress = Progress(self.step, self.position, self.optimizer.updates, scale.value, scale.quiet)
        state = state_of(self.optimizer.pieces, self.optimizer.adam, owned=True)
        if isinstance(self.outer, OuterStep):
            self.outer.drain()
            state |= self.outer.agreed()
            state = {} if self.mesh.data.rank else state  # the first replica's are everybody's
        saver.save(state | kept_state(self._kept(), self.mesh.data.rank), progress, self.job)
        self.saver = saver

    def load(self, checkpoint: Path) -> None:
        """Take up a checkpoint, written under this plan or any other."""
        self.wait_for_weights()
        progress = load_pieces(checkpoint, self.optimizer.pieces, self.optimizer.adam, self.mesh)
        self._begin()
        load_kept(checkpoint, self._kept(), self.mesh)
        if isinstance(self.outer, OuterStep):
            self.outer.resumed(read_index(checkpoint).keys())
        self.step, self.position, self.optimizer.updates = progress.step, progress.samples, progress.updates
        self.optimizer.scale.value, self.optimizer.scale.quiet = progress.loss_scale, progress.quiet_steps

    def start_from(self, source: WeightSource) -> None:
        """Take weights from elsewhere in place of new ones; nothing has been learned here yet."""
        load_weights(source, self.optimizer.pieces, self.mesh)
        self._begin()

    def _begin(self) -> None:
        """Go on from masters that were just filled."""
        self.parallel.gradients.share()
        if self.outer is not None:
            self.outer.begin()

    def _kept(self) -> list[Kept]:
        """What a checkpoint holds beside masters and moments."""
        return self.parallel.gradients.kept + (self.outer.kept(self.optimizer) if self.outer is not None else [])

    def _meet(self, outer: OuterStep | SiteStep, loss: Tensor, stops: Tensor) -> tuple[Tensor, Tensor]:
        """Replicas that learn by themselves meet when it is time; only then do they learn that one is to stop."""
        self.asked += stops
        if not outer.due(self.step):
            return loss, torch.zeros_like(stops)
        with self.recorder.span(Lane.DATA, Phase.MEETING):
            outer.step = self.step
            outer.meet()
            return outer.agree(loss, self.asked)

    def _moved_on(self, outer: SiteStep) -> None:
        """Where this site goes on: samples of its own, and if it took another's state, that one's step."""
        assert outer.place is not None
        self.step = outer.step
        self.position = outer.place * outer.every * self.job.train.global_batch
        if self.step >= outer.last:
            outer.close()

    def _first_sample(self, position: int) -> int:
        """Of this replica, in the global batch that starts with sample number `position`."""
        return position + self.own.start

    @property
    def _weight(self) -> float:
        """What this replica's mean counts in that of a global batch."""
        return len(self.own) / self.job.train.global_batch

    def _read(self, samples: Samples, position: int) -> list[tuple[Tensor, Tensor]]:
        """Inputs and targets of this replica's microbatches of a global batch, in host memory that a GPU can copy."""
        size, share = self.plan.microbatch, len(self.own)
        first = self._first_sample(position)
        batches = []
        for start in range(first, first + share, size):
            ids, following = (torch.from_numpy(part).flatten() for part in samples.batch(start, size))
            pinned = on_gpu(self.device)
            batches.append((ids.pin_memory(), following.pin_memory()) if pinned else (ids, following))
        return batches

    def _works(self, batches: list[tuple[Tensor, Tensor]], position: int, training: bool) -> list[MicrobatchInput]:
        """What was read of the global batch that starts with sample number `position`, on its way to the device."""
        works = []
        for number, (inputs, targets) in enumerate(batches):
            ids, following = (part.to(self.device, non_blocking=True) for part in (inputs, targets))
            start = self._first_sample(position) + number * self.plan.microbatch
            keys = self._dropout_keys(start) if training and self.job.model.dropout else None
            works.append(MicrobatchInput(ids, following, Microbatch(sequence=self.job.sequence, keys=keys)))
        return works

    def _dropout_keys(self, start: int) -> Tensor:
        numbers = torch.arange(start, start + self.plan.microbatch, device=self.device)
        keys = token_keys(self.job.train.seed, numbers, self.job.sequence)
        return slice_of(keys, self.mesh.tensor) if self.plan.sequence else keys

    def _sum_over_ranks(self, loss: Tensor, *others: Tensor | float) -> Handle:
        """Begin to add up the mean loss over replicas, and other numbers: all in one message.

        Replicas that learn by themselves each have their own.
        """
        apart = bool(self.plan.local_steps) and torch.is_grad_enabled()
        counted = self.mesh.tensor.rank == 0 and self.mesh.pipeline.rank == self.plan.last_rank
        own = loss.double() * (1 if apart else self._weight)
        own = own if counted else torch.zeros_like(own)
        numbers = torch.stack([own, *(_number(other, own) for other in others)])
        return start_sum_numbers(numbers, self.mesh.replica if apart else self.mesh.world)


def _number(value: Tensor | float, like: Tensor) -> Tensor:
    """As a number on the device; what the host knows is written there by a kernel, for a copy would wait."""
    return value.to(like) if isinstance(value, Tensor) else torch.full_like(like, float(value))
