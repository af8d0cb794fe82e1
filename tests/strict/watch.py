"""Sees every kernel of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.strict.program import Load, Synchronize
from tests.strict.recording import check_memory, span_of
from tests.strict.transport import Exchange


class Watch(TorchDispatchMode):
    """Sees every kernel of one rank: which memory it uses, and whether it is the first of its kind."""

    def __init__(self, exchange: Exchange, rank: int) -> None:
        super().__init__()
        self.turn, self.recording = exchange.turn, exchange.recordings[rank]
        self.writes: dict[Any, frozenset[int] | None] = {}

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recording = self.recording
        if FakeTensor in types:
            return func(*args, **kwargs)
        if DTensor in types:
            return NotImplemented  # what it makes of it comes by again, in plain tensors
        written = self.writes.get(func, ())
        if written == ():
            written = self.writes[func] = _written(func)
        if written is None:
            if func.namespace == "c10d":
                self._on_host(func, args)
            return func(*args, **kwargs)
        if func not in recording.kernels:
            recording.kernels.add(func)
            recording.program.append(Load(str(func)))
        if func is torch.ops.aten._local_scalar_dense.default:
            recording.program.append(Synchronize("reads a number"))
        if recording.pending:
            for number, arg in enumerate((*args, *kwargs.values())):
                for x in (arg,) if isinstance(arg, Tensor) else tree_leaves(arg):
                    if isinstance(x, Tensor) and x.device.type == "cpu" and x.numel():
                        check_memory(recording, span_of(x), number in written, func)
        return func(*args, **kwargs)

    def _on_host(self, func: Any, args: Any) -> None:
        """A collective over gloo: hosts wait for each other."""
        boxed = next(arg for arg in args if isinstance(arg, torch.ScriptObject))
        ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(boxed)))
        self.recording.meet(ranks, f"{func._schema.name} over gloo")
        self.turn.give(self.recording.rank)


def _written(func: Any) -> frozenset[int] | None:
    """Which arguments a kernel writes; None for what runs no kernel."""
    if func.namespace == "c10d" or func.is_view or "empty" in func._schema.name:
        return None
    arguments = enumerate(func._schema.arguments)
    return frozenset(i for i, argument in arguments if argument.alias_info is not None and argument.alias_info.is_write)
