"""A PyTorch operator as one big tile: what no kernel of ours covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from heddle.tiles.graph import Tile
from heddle.tiles.values import View


@dataclass
class FallbackOperator:
    """`function(*inputs)` gives the values of `outputs`, in order."""

    name: str
    operator: str  # aten's name
    function: Callable[[Sequence[Tensor]], Sequence[Tensor]]
    inputs: list[View]
    outputs: list[View]
    kind: str = "torch"
    number: int = 0  # among the fallbacks of a module
    placed: list[Any] = field(default_factory=list)

    def tiles(self) -> list[Tile]:
        reads = [(view.buffer, view.whole()) for view in self.inputs]
        writes = [(view.buffer, view.whole()) for view in self.outputs]
        size = sum(4.0 * view.meta.numel() for view in (*self.inputs, *self.outputs))
        return [Tile(None, [self.number], reads, writes, bytes=size)]
