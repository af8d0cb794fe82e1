"""Looking over a rank's shoulder while it takes a step: what it holds, what it keeps, what it says to others.

All is seen from below, in PyTorch's dispatcher, autograd and memory. So a dry run and a real one are counted by the
same lines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves

from heddle.data import Trained
from heddle.parallel.mesh import Mesh
from heddle.parallel.parameter_layout import place_of
from heddle.parallel.replicas.bucket import Bucket
from heddle.parallel.replicas.sharded import ShardedGroup
from heddle.runtime.tiers import tier_of
from heddle.schedule import Kind
from heddle.spec.axes import AXES, SUMMED
from heddle.spec.job import Job
from heddle.training.dry_run.living import Actions, Around, Living, Watching
from heddle.training.step.trainer import Trainer

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


class CommKind(NamedTuple):
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


GRADIENTS = " × ".join(SUMMED)  # the axes together over which gradients are summed
Tallies = Mapping[CommKind, Tally]


class Traffic(Watching):
    """Counts every collective and message that runs inside, by axis of the mesh."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        axes = {"expert_data": mesh.expert_data.group, GRADIENTS: mesh.gradients.group}
        # later ones win: where one of the two above is one of the axes, it has that one's name
        others = ("context_inner", "context_outer", "shards", "mirrors", "expert", "ends", "world")
        axes |= {name: getattr(mesh, name).group for name in (*AXES, *others)}
        self.axes = {group.group_name: name for name, group in axes.items() if group is not None}
        self.axes |= {group.group_name: "pipeline" for group in mesh.channels.values()}
        self.tallies: dict[CommKind, Tally] = defaultdict(Tally)

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation returns; a message or collective is counted."""
        if func.namespace == "c10d":
            self._count(func, args)
        return func(*args, **kwargs)

    def _count(self, func: Any, args: tuple[Any, ...]) -> None:
        boxed = next(arg for arg in args if isinstance(arg, torch.ScriptObject))  # the group comes before the operator
        group = dist.ProcessGroup.unbox(boxed)
        name = func._schema.name
        channel = CommKind(self.axes.get(group.group_name, group.group_name), _NAMES.get(name, name))
        if channel.axis == "expert":  # what others do by an all-to-all over gloo is one here
            channel = CommKind(channel.axis, "all-to-all")
        whole = max(leaf.nbytes for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
        if channel.operation in _MESSAGES and channel.axis != "pipeline":
            # a reduce-scatter over gloo: its slices on the way to their owners
            if channel.operation == "receive" or args[2] != (group.rank() == 0):
                return  # the one to the first of the others stands for all
            channel, whole = CommKind(channel.axis, "reduce-scatter"), whole * group.size()
        number, size = self.tallies[channel]
        of_a_later_slice = name == "c10d::broadcast_" and args[2] > 0
        self.tallies[channel] = Tally(number + (not of_a_later_slice), size + whole)


@dataclass(frozen=True)
class HeldTensors:
    """How many parameters a rank holds, and the bytes of all that stays from step to step, on the device."""

    parameters: int
    parameter_bytes: int
    gradient_bytes: int  # when the optimizer looks at them
    optimizer_bytes: int  # moments, and full-precision masters where parameters have less
    tier_bytes: Mapping[str, int]  # of all of these, what lives on another tier


class Brief(NamedTuple):
    """Bytes above those that lived before, at the fullest moment of a chunk's actions of one kind."""

    first: int  # of the first microbatch, which makes gradients
    later: int  # of a later one, when gradients are there to be added to
    made: int  # gradients that the first one made, and that stay until the update
    fetched: int = 0  # of the later one's, gathered weights


@dataclass(frozen=True)
class Observation:
    """What was seen of one rank in one step."""

    held: HeldTensors
    saved: tuple[int, ...]  # bytes that the second microbatch left for its backward in each chunk of the rank
    put: tuple[Mapping[str, int], ...]  # bytes that it put away there, by tier
    owed: tuple[int, ...]  # bytes that the first half of its backward left for the second, where it is taken in two
    brief: tuple[dict[Kind, Brief], ...]  # of each chunk
    resident: int  # bytes that live from step to step
    sharded: bool  # whether replicas share layers, so that microbatches differ beyond the second
    gathered: int  # bytes of weights that stay gathered from the first forward of a step to the last backward
    awaited: int  # bytes that are ready all along for the other end's gradient of a tied embedding
    update: int  # bytes beside these at the fullest moment between the last backward and the step's end
    traffic: Tallies


def observe_step(job: Job, tokens: Trained, mesh: Mesh) -> Observation:
    """Build a rank's part of a job, and take its first step."""
    traffic, living = Traffic(mesh), Living()
    actions, gradients = Actions(living), list[Tensor]()

    def before_update(*_: object) -> None:
        gradients[:] = gradients_of(trainer)

    with living:
        trainer = Trainer(job, tokens, mesh, actions)
        actions.tiers = trainer.tiers
        trainer.optimizer.adam.register_step_pre_hook(before_update)
        trainer.outer.stay_away()
        trainer.pipeline.warm = True  # there are no kernels to load
        with traffic:
            trainer.start_step()  # nobody reads what it tells: a dry run's tensors have no numbers
        trainer.wait_for_weights()
    gradient_bytes, away = memory_of(gradients), Counter(memory_by_tier(gradients))
    gradients.clear()
    groups = trainer.parallel.gradients.groups
    sharded = {parameter for group in groups for parameter in group.parameters}
    whole = [parameter for parameter in trainer.parallel.names if parameter not in sharded]
    parameters = [*whole, *(group.shard for group in groups)]
    moments = [value for state in trainer.optimizer.adam.state.values() for value in state.values()]
    masters = [piece.master for piece in trainer.optimizer.pieces]
    away.update(memory_by_tier([*parameters, *moments, *masters]))
    held = HeldTensors(
        parameters=sum(p.numel() for p in whole) + sum(p.master.numel() for group in groups for p in group.pieces),
        parameter_bytes=memory_of(parameters),
        gradient_bytes=gradient_bytes,
        optimizer_bytes=memory_of([*moments, *masters], besides=parameters),
        tier_bytes=dict(away),
    )
    chunks, around = list(trainer.parallel.chunks), actions.around
    own = {chunk: free_gradients(trainer, chunk) for chunk in chunks}
    shards = trainer.parallel.gradients.sharded
    return Observation(
        held=held,
        saved=tuple(actions.saved[chunk, 1] for chunk in chunks),
        put=tuple(actions.put.get((chunk, 1), {}) for chunk in chunks),
        owed=tuple(_owed(actions, chunk, mesh.gradients.size == 1) for chunk in chunks),
        brief=tuple(
            _made_once(
                {
                    kind: _brief(actions, kind, chunk, shards.get(chunk, ()), len(chunks) == 1)
                    for kind in _kinds(actions, chunk)
                },
                own[chunk],
            )
            for chunk in chunks
        ),
        resident=living.now,
        sharded=any(group.replicas.size > 1 for group in groups),
        gathered=sum(map(_kept, shards.values())),
        awaited=sum(bucket.pair.room for bucket in _buckets(trainer) if bucket.pair is not None),
        update=max(around[kind, -1, -1].most for kind in ("gradients", "update")) - living.now,
        traffic=dict(traffic.tallies),
    )


def _kept(groups: Sequence[ShardedGroup]) -> int:
    """Bytes of weights that ZeRO-2 gathers once per step."""
    return sum(group.whole.numel() * group.whole.itemsize for group in groups if group.kept)


def _brief(actions: Actions, kind: Kind, chunk: int, groups: Sequence[ShardedGroup], alone: bool) -> Brief:
    """Of the first microbatch that a chunk saw, and of one that adds to the gradients that the first one made.

    The last one also lets go of weights that stay gathered over a step. And what the first one left to sum is summed in
    the course of the second: the third, if there is one, does what all behind it do. `alone`: no other chunk of the
    rank comes between.
    """
    seen = _seen(actions, kind, chunk)
    if kind.direction > 0 or len(seen) == 1:
        return Brief(seen[-1].most - seen[-1].start, seen[-1].most - seen[-1].start, 0, seen[-1].fetched)
    first, later = seen[0], seen[min(2, len(seen) - 1)]
    # What the first one freed less than the later one is what it made.
    usual = later.end - later.start + (_kept(groups) if later is seen[-1] else 0)
    made = first.end - first.start - usual
    made += seen[1].end - seen[1].start - usual if len(seen) > 2 and alone else _due(groups)
    return Brief(first.most - first.start, later.most - later.start, max(0, made), later.fetched)


def _kinds(actions: Actions, chunk: int) -> list[Kind]:
    """The kinds of a chunk's actions, in the order in which they were first seen."""
    known = {str(kind): kind for kind in Kind}
    return list(dict.fromkeys(known[kind] for kind, of, _ in actions.around if of == chunk))


def _made_once(briefs: dict[Kind, Brief], own: int) -> dict[Kind, Brief]:
    """Where some backwards are taken in two and others are not, the first of all makes the gradients."""
    back = [kind for kind in briefs if kind.direction < 0]
    if len(back) < 2:
        return briefs
    return {kind: brief._replace(made=own if kind is back[0] else 0) for kind, brief in briefs.items()}


def free_gradients(trainer: Trainer, chunk: int) -> int:
    """Bytes of a chunk's gradients that are not there before a step's first backward makes them."""
    free = {parameter for part in trainer.parallel.gradients.free for parameter in part.parameters}
    owned = [parameter for parameter in trainer.parallel.chunks[chunk].parameters() if parameter in free]
    return sum(parameter.numel() * 4 for parameter in owned if not (chunk == 0 and place_of(parameter).uses > 1))


def _due(groups: Sequence[ShardedGroup]) -> int:
    """Bytes of the share of gradients whose sum is under way after a backward, which ends with the first of a chunk."""
    first = groups[0] if groups else None
    return first.share * 4 if first is not None and first.replicas.size > 1 and first.keeper is None else 0


def _owed(actions: Actions, chunk: int, alone: bool) -> int:
    """What a microbatch's backward put off: the bytes that are free once it is done.

    Of the last one where it is `alone`, because the first makes gradients; else of the first, because the last begins
    their sums.
    """
    late = [seen[-1 if alone else 0] for kind in Kind if kind.owes < 0 and (seen := _seen(actions, kind, chunk))]
    return sum(seen.start - seen.end for seen in late)


def _seen(actions: Actions, kind: Kind, chunk: int) -> list[Around]:
    """A chunk's actions of one kind, by microbatch."""
    return [seen for (name, of, _), seen in sorted(actions.around.items()) if (name, of) == (kind, chunk)]


def gradients_of(trainer: Trainer) -> list[Tensor]:
    """A rank's gradients: as backward left them, and as they were summed."""
    summed = [piece.master.grad for piece in trainer.optimizer.pieces]
    own = [parameter.grad for parameter in trainer.parallel.names]
    buckets = [bucket.gradients for bucket in _buckets(trainer)]
    return [tensor for tensor in (*summed, *own, *buckets) if tensor is not None]


def _buckets(trainer: Trainer) -> list[Bucket]:
    return [part for part in trainer.parallel.gradients.parts if isinstance(part, Bucket)]


def memory_of(tensors: Iterable[Tensor], besides: Iterable[Tensor] = ()) -> int:
    """Bytes of the device's memory behind some tensors, without what lies behind others."""
    elsewhere = {tensor.untyped_storage()._cdata for tensor in besides}
    here = (tensor.untyped_storage() for tensor in tensors if tier_of(tensor) is None)
    storages = {storage._cdata: storage for storage in here}
    return sum(storage.nbytes() for address, storage in storages.items() if address not in elsewhere)


def memory_by_tier(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Bytes of memory behind some tensors on other tiers."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for tensor in tensors:
        tier, storage = tier_of(tensor), tensor.untyped_storage()
        if tier is not None:
            found[tier.name][storage._cdata] = storage.nbytes()
    return {name: sum(sizes.values()) for name, sizes in found.items()}
