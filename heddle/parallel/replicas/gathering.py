"""Weights of sharded layers are gathered when a chunk's forward or backward comes to them, some layers ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from heddle.models.chunk import Chunk
from heddle.parallel.replicas.sharded import FrozenGroup, ShardedGroup


class Gathering:
    """Gathers the weights of a chunk's layers when they are needed, some layers ahead."""

    def __init__(self, chunk: Chunk, groups: Mapping[str, Sequence[ShardedGroup]], ahead: int) -> None:
        """`groups` are those of each part of the chunk, by its name; with one end tied, of the other."""
        parts = chunk.parts()
        ends = int(parts[0].backward)  # the first place is for the model's beginning, also where that is elsewhere
        self.units = [*[()] * ends, *(groups.get(part.name, ()) for part in parts)]
        self.ahead = ahead
        for number, part in enumerate(parts, ends):
            if self.units[number]:
                part.first.register_forward_pre_hook(self._enter(number))
                part.last.register_forward_hook(self._leave(number, part.backward))

    def _enter(self, number: int) -> Callable[..., None]:
        frozen = [group for group in self.units[number] if isinstance(group, FrozenGroup)]

        def after_backward(_gradient: Tensor) -> None:
            for group in frozen:
                group.release()

        def before_forward(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            self._ready(number, range(number + 1, number + 1 + self.ahead))
            if frozen and torch.is_grad_enabled() and inputs[0].requires_grad:
                inputs[0].register_hook(after_backward)

        return before_forward

    def _leave(self, number: int, backward: bool) -> Callable[..., None]:
        def before_backward(_gradient: Tensor) -> None:
            self._ready(number, range(number - 1, max(0, number - 1 - self.ahead), -1))

        def after_forward(_module: nn.Module, _inputs: Any, output: Any) -> None:
            for group in self.units[number]:
                if not (group.kept and torch.is_grad_enabled()):
                    group.release()
            made = output if isinstance(output, Tensor) else next(x for x in tree_leaves(output) if x is not None)
            if backward and made.requires_grad:
                made.register_hook(before_backward)

        return after_forward

    def _ready(self, number: int, following: range) -> None:
        for group in self.units[number]:
            group.ready()
        for other in following:
            for group in self.units[other] if 0 <= other < len(self.units) else ():
                group.fetch()
        beyond = following.stop
        for group in self.units[beyond] if 0 <= beyond < len(self.units) else ():
            group.home.expect(group.shard)
