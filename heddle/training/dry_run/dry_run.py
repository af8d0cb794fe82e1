"""A training step of a whole cluster on a laptop: real code, tensors that have shapes and no memory.

Ranks that do the same are one *kind*: their chunks have the same layers, recompute the same, begin or end the model
alike, and hold as many rows of the vocabulary. Replicas are alike; the first one, whose shards are the largest where
replicas share, stands for all.

**Run**, for one rank of each kind: `Trainer` itself, with fake tensors and a fake process group of the plan's size.
It builds its part of the model, and takes a step of one microbatch and a step of two: every layer it holds, forward
and backward, the loss, the messages, the gradients' sums, and the update.

**Counted**: a step of m microbatches communicates what the step of one does, and m - 1 times what the step of two
adds to it, because all microbatches have the same shapes. How many activations a rank holds at once follows from the
whole schedule, which is verified, action by action.

**Left out**: initial values, data (tokens are made up), `torch.compile`, and the time that anything takes. Activations
are those of the kernels that this machine's device would run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

from heddle.cost.layers import LayerKind
from heddle.data import Documents, Trained
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.parallel.pipeline.inbox import DEVICE_AHEAD, receives_ahead
from heddle.runtime.device import DTYPES, backend, has_gpus
from heddle.schedule import Kind, Schedule, consumer, incoming, outgoing, producer, rule_of, verify
from heddle.spec.axes import Coordinates
from heddle.spec.job import Job, PlannedJob
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.ranks import places, rank_of
from heddle.training.dry_run.gpu_kernels import gpu_kernels
from heddle.training.dry_run.living import Watching
from heddle.training.dry_run.observe import HeldTensors, Observation, Tallies, Tally, observe_step


class CountedPeak(NamedTuple):
    """Bytes of a stage at its fullest moment."""

    bytes: int  # all of them
    saved: int  # for backwards
    gradients: int  # that have been made by then
    fetched: int  # weights of sharded or offloaded layers


@dataclass(frozen=True)
class KindOfRank:
    """All that is known of the ranks of one kind."""

    tensor: tuple[int, ...]  # their coordinates; every combination of the two is one of them, in every replica
    stages: tuple[int, ...]
    layers: tuple[int, ...]  # of each chunk
    held: HeldTensors
    saved: tuple[int, ...]  # bytes that a microbatch leaves for its backward in each chunk
    peak_stash: tuple[int, ...]  # (chunk, microbatch) pairs that each of the stages holds at once
    peak: CountedPeak  # of the stage that holds most
    away: Mapping[str, int]  # bytes at most on each tier beside the device
    traffic: Tallies  # of a step

    @property
    def bytes(self) -> int:
        """Of all tensors on the device, on that stage at its fullest moment."""
        return self.peak.bytes

    @property
    def temporary(self) -> int:
        """What lives then beside all that has a name: for one operation or one message."""
        held, peak = self.held, self.peak
        named = held.parameter_bytes + held.optimizer_bytes + peak.gradients + peak.fetched + peak.saved
        return self.bytes - named


@dataclass(frozen=True)
class DryRun:
    """What a dry run found."""

    job: PlannedJob
    microbatches: int  # per step, on each rank
    messages: int  # per step, in one replica of one tensor rank
    kinds: tuple[KindOfRank, ...]

    @property
    def plan(self) -> Plan:
        """The plan that was tried."""
        return self.job.plan

    def ranks(self, kind: KindOfRank) -> list[int]:
        """The ranks that a kind stands for."""
        return [
            rank
            for rank, place in enumerate(places(self.plan))
            if place.tensor in kind.tensor and place.pipeline in kind.stages
        ]


def dry_run(job: Job) -> DryRun:
    """Take one step of every kind of rank that a job's plan has; whatever would fail there is a HeddleError here."""
    job = replace(job.planned, train=replace(job.train, compile=False))
    plan = job.plan
    microbatches = plan.microbatches(job.train.global_batch)
    schedule = plan.order_of_work(job.train.global_batch)
    verified = verify(schedule)
    kinds = []
    for tensor, stages in _alike(job.model, plan):
        one, two, usual = _observe(job, tensor[0], stages[0])
        peaks = [_peak(schedule, stage, job, usual) for stage in stages]
        kinds.append(
            KindOfRank(
                tensor=tensor,
                stages=stages,
                layers=tuple(len(layers) for _, _, layers in _chunks(job.model, plan, stages[0])),
                held=two.held,
                saved=two.saved,
                peak_stash=tuple(verified.peak_stash[stage] for stage in stages),
                peak=max(peaks),
                away=_away(schedule, stages, usual, plan),
                traffic=_extended(one.traffic, two.traffic, microbatches - _fewest(plan)),
            )
        )
    return DryRun(job, microbatches, verified.messages, tuple(kinds))


def _alike(model: ModelSpec, plan: Plan) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tensor coordinates and stages of the ranks of each kind."""
    rows = -(-model.vocab // plan.tensor)
    tensors, stages = defaultdict(list), defaultdict(list)
    for tensor in range(plan.tensor):
        tensors[min(rows, max(0, model.vocab - tensor * rows))].append(tensor)  # the last ones hold padding
    for stage in range(plan.pipeline):
        stages[tuple(_chunks(model, plan, stage))].append(stage)
    everyone = [list(range(plan.tensor))]
    return [
        (tuple(group), tuple(some))
        for chunks, some in stages.items()
        for group in (tensors.values() if any(first or last for first, last, _ in chunks) else everyone)
    ]


def _chunks(model: ModelSpec, plan: Plan, stage: int) -> list[tuple[bool, bool, tuple[LayerKind, ...]]]:
    """What tells the chunks of a stage from others: whether they begin or end the model, and what layers they have."""
    return [
        (
            chunk == 0,
            chunk == plan.chunks - 1,
            tuple(
                LayerKind(model.shape_of[layer], plan.memory_of(layer)) for layer in plan.layers_of(chunk, model.layers)
            ),
        )
        for chunk in plan.chunks_of(stage)
    ]


def _observe(job: PlannedJob, tensor: int, stage: int) -> tuple[Observation, Observation, Observation]:
    """One rank's steps of one and of two microbatches, and one whose actions hold what those of the job's step do.

    That is the one of two, unless replicas share layers: then there is one that is neither the first, nor the last, nor
    the one that ends the first one's sums.
    """
    plan = job.plan
    tokens = _made_up(job)
    on_gpu = job.cluster is not None and not job.cluster.device.host

    def step(microbatches: int) -> Observation:
        train = replace(job.train, global_batch=plan.data * plan.microbatch * microbatches)
        alike = replace(job, train=train, plan=replace(plan.named, shares=()))
        with (
            FakeTensorMode(allow_non_fake_inputs=True),
            _Shortcuts(),
            gpu_kernels() if on_gpu and not has_gpus() else nullcontext(),
        ):
            seen = observe_step(alike, tokens, mesh)
        return replace(seen, saved=tuple(map(sum, zip(seen.saved, _kept_inputs(job, stage), strict=True))))

    rank = rank_of(plan, Coordinates(tensor=tensor, pipeline=stage))
    fewest = _fewest(plan)
    with _fake_mesh(plan, rank, backend(on_gpu)) as mesh, _refusing(mesh):
        one, two = step(fewest), step(fewest + 1)
        number = plan.microbatches(job.train.global_batch)
        if not two.sharded or fewest > 1 or number == 2:
            return one, two, two
        other = one if number == 1 else step(fewest + 3)
        on = [{kind: brief for kind, brief in each.items() if kind.direction > 0} for each in two.brief]
        return one, two, replace(two, brief=tuple(back | way for back, way in zip(other.brief, on, strict=True)))


def _made_up(job: PlannedJob) -> Trained:
    """Tokens for one sample: of preferences, two answers that fill it."""
    if job.preference is None:
        return np.zeros(job.sequence + 1, np.uint8)
    lengths = np.array([job.sequence // 2 + 1, job.sequence - job.sequence // 2 + 1])
    tokens = np.zeros(lengths.sum(), np.uint8)
    return Documents(tokens, np.ones_like(tokens), lengths, end=0, pairs=True)


def _kept_inputs(job: PlannedJob, stage: int) -> Iterator[int]:
    """Bytes that a microbatch leaves in each chunk of a stage whose first layer lets all go that it saves.

    What another stage sent is kept for as long, by the executor and not by autograd.
    """
    plan = job.plan
    for first, _, layers in _chunks(job.model, plan, stage):
        keeps = not first and bool(layers) and layers[0].leaves
        yield keeps * _message(job)


def _message(job: PlannedJob) -> int:
    """Bytes of a microbatch between stages: what is received is gathered from slices."""
    whole = job.plan.tokens(job.sequence) * job.model.hidden * DTYPES[job.storage].itemsize
    return whole // job.plan.tensor if job.plan.sequence else whole


def _fewest(plan: Plan) -> int:
    """Microbatches of the shorter of the two steps: one, unless the schedule asks for more."""
    return rule_of(plan.named.schedule).least_microbatches(plan.pipeline)


@contextmanager
def _fake_mesh(plan: Plan, rank: int, backend: str) -> Iterator[Mesh]:
    """A place in a mesh whose other processes do not exist: whatever is said to them is at once done.

    Collectives are done as over `backend`: some take other ways, and other memory, through gloo.
    """
    if plan.world > 1:
        dist.init_process_group("fake", rank=rank, world_size=plan.world)
    try:
        mesh = build_mesh(plan, rank, plan.world)
        assert mesh is not None
        with patch.object(dist, "get_backend", lambda _group=None: backend):
            yield mesh
    finally:
        if plan.world > 1:
            dist.destroy_process_group()


class _Shortcuts(Watching):
    """Two things that fake tensors cannot do, or not quickly.

    Who reads a number from a tensor that has none gets one that makes the optimizer clip and update. And what lies
    on the meta device stays there: it has no memory that a fake tensor would save.
    """

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation returns, and a number where it has none."""
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return 1e6
        device = kwargs.get("device") or (args[0].device if args and isinstance(args[0], Tensor) else None)
        if device is not None and torch.device(device).type == "meta":
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


@contextmanager
def _refusing(mesh: Mesh) -> Iterator[None]:
    """What PyTorch has against a rank's step becomes the plan's error."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise HeddleError(
            f"Rank {mesh.rank} ({mesh}) cannot take a step: {error}",
            "A dry run runs the training code, so training would fail here, too.",
            "Try other degrees for the axis that this shape is split over.",
        ) from error


def _extended(one: Tallies, two: Tallies, further: int) -> Tallies:
    """Traffic of a step of so many further microbatches, from a step and one with a microbatch more."""
    return {
        channel: Tally(
            one[channel].number + further * (two[channel].number - one[channel].number),
            one[channel].size + further * (two[channel].size - one[channel].size),
        )
        for channel in one
    }


def _away(schedule: Schedule, stages: Sequence[int], seen: Observation, plan: Plan) -> dict[str, int]:
    """The most bytes that one of the stages keeps on each tier: what lives there, and what microbatches put there."""
    most: Counter[str] = Counter()
    for stage in stages:
        held = Counter(seen.held.tier_bytes)
        most |= held
        for kind, chunk, _ in schedule.ranks[stage]:
            for name, size in seen.put[chunk // plan.pipeline].items():
                held[name] += kind.holds * size
            most |= held
    return dict(most)


def _peak(schedule: Schedule, stage: int, job: PlannedJob, seen: Observation) -> CountedPeak:
    """A stage's fullest moment.

    What each action does was seen once; here all of the stage's follow each other. Beside what they hold there are the
    tokens of the whole step, the messages that are awaited, and those that were sent and not yet used.
    """
    plan = job.plan
    tokens = plan.tokens(job.sequence)
    whole = tokens * job.model.hidden * DTYPES[job.storage].itemsize
    message = _message(job)
    inputs = 2 * 8 * tokens * schedule.microbatches
    arrivals = (incoming(schedule, action) for action in schedule.ranks[stage])
    expected = Counter(arrival.source for arrival in arrivals if arrival is not None)  # and not yet taken
    on_gpu = job.cluster is not None and not job.cluster.device.host
    ahead = {source: DEVICE_AHEAD if on_gpu else receives_ahead(schedule, source, stage) for source in expected}
    level = seen.resident + seen.gathered + inputs + seen.awaited
    order = [{action: place for place, action in enumerate(actions)} for actions in schedule.ranks]
    sent: list[tuple[int, int]] = []  # to whom, and at which of its actions it is used
    saved = 0
    made = sum(brief.made for chunk in seen.brief for brief in chunk.values())
    gradients = max(0, seen.held.gradient_bytes - made)  # that are there before a backward makes any
    peak = CountedPeak(seen.resident + seen.update, 0, seen.held.gradient_bytes, 0)
    begun: set[tuple[Kind, int]] = set()
    for action in schedule.ranks[stage]:
        kind, chunk, _ = action
        mine = chunk // plan.pipeline
        brief = seen.brief[mine][kind]
        arrived = incoming(schedule, action)
        if arrived is not None:  # and shows how far its sender has come, as in the executor
            made_by = producer(schedule, action)
            assert made_by is not None
            reached = order[arrived.source][made_by]
            sent = [(rank, used) for rank, used in sent if rank != arrived.source or used > reached]
            expected[arrived.source] -= 1  # what it takes is now part of the action
        awaited = sum(min(ahead[source], number) for source, number in expected.items())
        beside = message * (len(sent) + (arrived is not None)) + awaited * whole // plan.tensor
        first = (kind, chunk) not in begun
        begun.add((kind, chunk))
        now = level + saved + beside + (brief.first if first else brief.later)
        # what a forward saves, it has saved by its end
        kept = saved + max(0, kind.holds) * seen.saved[mine]
        peak = max(peak, CountedPeak(now, kept, min(gradients, seen.held.gradient_bytes), brief.fetched))
        saved += kind.holds * seen.saved[mine] + kind.owes * seen.owed[mine]
        level += brief.made if first else 0
        gradients += brief.made if first else 0
        user, leaving = consumer(schedule, action), outgoing(schedule, action)
        if user is not None and leaving is not None:
            sent.append((leaving.destination, order[leaving.destination][user]))
    return peak
