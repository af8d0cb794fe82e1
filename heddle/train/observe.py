"""Looking over a rank's shoulder while it takes a step: what it holds, what it keeps, what it says to others.

All is seen from below, in PyTorch's dispatcher, autograd and memory. So the collectives that `fully_shard` starts
by itself are counted as ours are, and a dry run and a real one are counted by the same lines.
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heddle.parallel.data import Bucket, Reducer
from heddle.parallel.mesh import Mesh
from heddle.spec.job import Job
from heddle.train.recorder import NoRecorder
from heddle.train.trainer import Tokens, Trainer

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


class Traffic(TorchDispatchMode):
    """Counts every collective and message that runs inside, by axis of the mesh."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        axes = {name: getattr(mesh, name).group for name in ("tensor", "data", "pipeline", "ends", "world")}
        self.axes = {group.group_name: name for name, group in axes.items() if group is not None}
        self.axes |= {group.group_name: "pipeline" for group in mesh.channels.values()}
        self.tallies: dict[Channel, Tally] = defaultdict(Tally)

    def __torch_dispatch__(
        self, func: Any, _types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "c10d":
            self._count(func, args)
        return func(*args, **(kwargs or {}))

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


class Saved(NoRecorder):
    """Takes a recorder's place, and notes what each microbatch's forward through a chunk saves for its backward.

    Memory counts once however many saved tensors view it, and only where it is first seen. What the first
    microbatch shares with those behind it, weights and tables of positions, is therefore counted with the first;
    ask for a later one.
    """

    def __init__(self) -> None:
        self.size: Counter[tuple[int, int]] = Counter()  # bytes by (chunk, microbatch)
        self.seen: dict[int, torch.UntypedStorage] = {}  # kept alive, so that no address is used twice

    def span(self, *about: object, **_: object) -> AbstractContextManager[None]:
        """Look on while a forward runs."""
        match about:
            case ("compute", "forward", int(chunk), int(microbatch)):
                return self._forward(chunk, microbatch)
        return nullcontext()

    @contextmanager
    def _forward(self, chunk: int, microbatch: int) -> Iterator[None]:
        with saved_tensors_hooks(self._note(chunk, microbatch), lambda kept: kept):
            yield

    def _note(self, chunk: int, microbatch: int) -> Callable[[Tensor], Tensor]:
        def note(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            if storage._cdata not in self.seen:
                self.seen[storage._cdata] = storage
                self.size[chunk, microbatch] += storage.nbytes()
            return x.detach()  # an output that its own node keeps would never be freed

        return note


class Living(TorchDispatchMode):
    """Bytes of all tensors that were made inside and still live, and the most at any time.

    What a kernel takes for itself while it runs is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, _types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor) and leaf.device.type != "meta":
                self._count(_local(leaf).untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address not in self.known:
            self.known.add(address)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._free, address, size)

    def _free(self, address: int, size: int) -> None:
        self.known.discard(address)
        self.now -= size


@dataclass(frozen=True)
class Held:
    """How many parameters a rank holds, and the bytes of all that stays from step to step."""

    parameters: int
    parameter_bytes: int
    gradient_bytes: int  # when the optimizer looks at them
    optimizer_bytes: int  # moments, and full-precision masters where parameters have less


@dataclass(frozen=True)
class Observation:
    """What was seen of one rank in one step."""

    held: Held
    saved: tuple[int, ...]  # bytes that the second microbatch left for its backward in each chunk of the rank
    traffic: Tallies
    temporary: int  # most bytes that came and went in forwards and backwards, beside what they saved


def observe_step(job: Job, tokens: Tokens, mesh: Mesh) -> Observation:
    """Build a rank's part of a job, and take its first step."""
    saved, traffic, living, gradients, temporary = Saved(), Traffic(mesh), Living(), 0, 0
    trainer = Trainer(job, tokens, mesh, saved)

    def before_update(*_: object) -> None:
        nonlocal gradients, temporary
        gradients = gradient_bytes(trainer)
        temporary = living.most - living.now  # what was saved lives until here: whoever counts it keeps it

    trainer.optimizer.adam.register_step_pre_hook(before_update)
    with traffic, living:
        trainer.start_step()  # nobody reads what it tells: a dry run's tensors have no numbers
    parameters = list(trainer.parallel.names)
    moments = [value for state in trainer.optimizer.adam.state.values() for value in state.values()]
    masters = [piece.master for piece in trainer.optimizer.pieces]
    held = Held(
        parameters=sum(_local(parameter).numel() for parameter in parameters),
        parameter_bytes=memory_of(parameters),
        gradient_bytes=gradients,
        optimizer_bytes=memory_of([*moments, *masters], besides=parameters),
    )
    by_chunk = tuple(saved.size[chunk, 1] for chunk in trainer.parallel.chunks)
    return Observation(held, by_chunk, dict(traffic.tallies), temporary)


def gradient_bytes(trainer: Trainer) -> int:
    """Memory of a rank's gradients: as backward left them, and as they were summed."""
    summed = [piece.master.grad for piece in trainer.optimizer.pieces]
    own = [parameter.grad for parameter in trainer.parallel.names]
    reducer = trainer.parallel.gradients
    parts = reducer.parts if isinstance(reducer, Reducer) else []
    buckets = [part.gradients for part in parts if isinstance(part, Bucket)]
    return memory_of(tensor for tensor in (*summed, *own, *buckets) if tensor is not None)


def memory_of(tensors: Iterable[Tensor], besides: Iterable[Tensor] = ()) -> int:
    """Bytes of memory behind some tensors, without what lies behind others."""
    elsewhere = {_local(tensor).untyped_storage()._cdata for tensor in besides}
    storages = {storage._cdata: storage for storage in (_local(tensor).untyped_storage() for tensor in tensors)}
    return sum(storage.nbytes() for address, storage in storages.items() if address not in elsewhere)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
