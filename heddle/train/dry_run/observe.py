"""Looking over a rank's shoulder while it takes a step: what it holds, what it keeps, what it says to others.

All is seen from below, in PyTorch's dispatcher, autograd and memory. So a dry run and a real one are counted by the
same lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves

from heddle.parallel.mesh import Mesh
from heddle.parallel.replicas.bucket import Bucket
from heddle.schedule import Kind
from heddle.spec.job import Job
from heddle.spec.ranks import AXES
from heddle.train.dry_run.living import Actions, Around, Living, Watching
from heddle.train.step.trainer import Tokens, Trainer

_NAMES = {
    "c10d::allreduce_": "all-reduce",
    "c10d::_allgather_base_": "all-gather",
    "c10d::_reduce_scatter_base_": "reduce-scatter",
    "c10d::alltoall_base_": "reduce-scatter",  # over gloo
    "c10d::broadcast_": "all-gather",  # over gloo, one for each slice
    "c10d::send": "send",
    "c10d::recv_": "receive",
}
_MESSAGES = {"send", "receive"}


class Channel(NamedTuple):
    """A kind of communication: "all-reduce" over "tensor", "send" along "pipeline"."""

    axis: str
    operation: str


class Tally(NamedTuple):
    """How often, and how many bytes in all.

    The bytes of a collective are those of the whole tensor: what is reduced, what a gather gives, what a
    reduce-scatter takes.
    """

    number: int = 0
    size: int = 0


Tallies = Mapping[Channel, Tally]


class Traffic(Watching):
    """Counts every collective and message that runs inside, by axis of the mesh."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        axes = {name: getattr(mesh, name).group for name in (*AXES, "ends", "world")}
        self.axes = {group.group_name: name for name, group in axes.items() if group is not None}
        self.axes |= {group.group_name: "pipeline" for group in mesh.channels.values()}
        self.tallies: dict[Channel, Tally] = defaultdict(Tally)

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation gives; a message or collective is counted."""
        if func.namespace == "c10d":
            self._count(func, args)
        return func(*args, **kwargs)

    def _count(self, func: Any, args: tuple[Any, ...]) -> None:
        boxed = next(arg for arg in args if isinstance(arg, torch.ScriptObject))  # the group comes before the operator
        group = dist.ProcessGroup.unbox(boxed)
        name = func._schema.name
        channel = Channel(self.axes.get(group.group_name, group.group_name), _NAMES.get(name, name))
        whole = max(leaf.nbytes for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
        if channel.operation in _MESSAGES and channel.axis != "pipeline":
            # a reduce-scatter over gloo: its slices on the way to their owners
            if channel.operation == "receive" or args[2] != (group.rank() == 0):
                return  # the one to the first of the others stands for all
            channel, whole = Channel(channel.axis, "reduce-scatter"), whole * group.size()
        number, size = self.tallies[channel]
        of_a_later_slice = name == "c10d::broadcast_" and args[2] > 0
        self.tallies[channel] = Tally(number + (not of_a_later_slice), size + whole)


@dataclass(frozen=True)
class HeldTensors:
    """How many parameters a rank holds, and the bytes of all that stays from step to step."""

    parameters: int
    parameter_bytes: int
    gradient_bytes: int  # when the optimizer looks at them
    optimizer_bytes: int  # moments, and full-precision masters where parameters have less


class Brief(NamedTuple):
    """Bytes above those that lived before, at the fullest moment of a chunk's actions of one kind."""

    first: int  # of the first microbatch, which makes gradients
    later: int  # of a later one, when gradients are there to be added to
    made: int  # gradients that the first one made, and that stay until the update


@dataclass(frozen=True)
class Observation:
    """What was seen of one rank in one step."""

    held: HeldTensors
    saved: tuple[int, ...]  # bytes that the second microbatch left for its backward in each chunk of the rank
    owed: tuple[int, ...]  # bytes that the first half of its backward left for the second, where it is taken in two
    brief: tuple[dict[Kind, Brief], ...]  # of each chunk
    resident: int  # bytes that live from step to step
    awaited: int  # bytes that are ready all along for the other end's gradient of a tied embedding
    update: int  # bytes beside these at the fullest moment between the last backward and the step's end
    traffic: Tallies


def observe_step(job: Job, tokens: Tokens, mesh: Mesh) -> Observation:
    """Build a rank's part of a job, and take its first step."""
    traffic, living, gradients = Traffic(mesh), Living(), 0
    actions = Actions(living)

    def before_update(*_: object) -> None:
        nonlocal gradients
        gradients = gradient_bytes(trainer)

    with living:
        trainer = Trainer(job, tokens, mesh, actions)
        trainer.optimizer.adam.register_step_pre_hook(before_update)
        trainer.pipeline.warm = True  # there are no kernels to load
        with traffic:
            trainer.start_step()  # nobody reads what it tells: a dry run's tensors have no numbers
        trainer.wait_for_weights()
    groups = trainer.parallel.gradients.groups
    sharded = {parameter for group in groups for parameter in group.parameters}
    whole = [parameter for parameter in trainer.parallel.names if parameter not in sharded]
    parameters = [*whole, *(group.shard for group in groups)]
    moments = [value for state in trainer.optimizer.adam.state.values() for value in state.values()]
    masters = [piece.master for piece in trainer.optimizer.pieces]
    held = HeldTensors(
        parameters=sum(p.numel() for p in whole) + sum(p.master.numel() for group in groups for p in group.pieces),
        parameter_bytes=memory_of(parameters),
        gradient_bytes=gradients,
        optimizer_bytes=memory_of([*moments, *masters], besides=parameters),
    )
    chunks, around = list(trainer.parallel.chunks), actions.around
    return Observation(
        held=held,
        saved=tuple(actions.saved[chunk, 1] for chunk in chunks),
        owed=tuple(_owed(actions, chunk) for chunk in chunks),
        brief=tuple(
            {kind: _brief(actions, kind, chunk) for kind in Kind if _seen(actions, kind, chunk)} for chunk in chunks
        ),
        resident=living.now,
        awaited=sum(bucket.pair.room for bucket in _buckets(trainer) if bucket.pair is not None),
        update=max(around[kind, -1, -1].most for kind in ("gradients", "update")) - living.now,
        traffic=dict(traffic.tallies),
    )


def _brief(actions: Actions, kind: Kind, chunk: int) -> Brief:
    """Of the last microbatch that a chunk saw, and of the first where that made gradients."""
    seen = _seen(actions, kind, chunk)
    first, later = seen[0] if kind.direction <= 0 else seen[-1], seen[-1]
    # What the first one freed less than the later one is what it made.
    made = (first.end - first.start) - (later.end - later.start)
    return Brief(first.most - first.start, later.most - later.start, max(0, made))


def _owed(actions: Actions, chunk: int) -> int:
    """What the last microbatch's backward put off: the bytes that are free once it is done."""
    late = [seen[-1] for kind in Kind if kind.owes < 0 and (seen := _seen(actions, kind, chunk))]
    return sum(seen.start - seen.end for seen in late)


def _seen(actions: Actions, kind: Kind, chunk: int) -> list[Around]:
    """A chunk's actions of one kind, by microbatch."""
    return [seen for (name, of, _), seen in sorted(actions.around.items()) if (name, of) == (kind, chunk)]


def gradient_bytes(trainer: Trainer) -> int:
    """Memory of a rank's gradients: as backward left them, and as they were summed."""
    summed = [piece.master.grad for piece in trainer.optimizer.pieces]
    own = [parameter.grad for parameter in trainer.parallel.names]
    buckets = [bucket.gradients for bucket in _buckets(trainer)]
    return memory_of(tensor for tensor in (*summed, *own, *buckets) if tensor is not None)


def _buckets(trainer: Trainer) -> list[Bucket]:
    return [part for part in trainer.parallel.gradients.parts if isinstance(part, Bucket)]


def memory_of(tensors: Iterable[Tensor], besides: Iterable[Tensor] = ()) -> int:
    """Bytes of memory behind some tensors, without what lies behind others."""
    elsewhere = {tensor.untyped_storage()._cdata for tensor in besides}
    storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storage.nbytes() for address, storage in storages.items() if address not in elsewhere)
