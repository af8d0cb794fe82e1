"""Where shards of weights, masters and gradients live: on the device, or on a tier that keeps the optimizer's state."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class Home(Protocol):
    """Memory for what stays from step to step, on the device or on another tier."""

    def reserve(self, elements: int, dtype: torch.dtype = ...) -> Tensor: ...
    def beside(self, device: torch.device) -> AbstractContextManager[list[Any]]: ...
    def expect(self, home: Tensor) -> None: ...
    def leave(self, home: Tensor) -> None: ...


class Keeper(Home, Protocol):
    """A tier that has the optimizer's state: masters and gradients are with it."""

    def add(self, home: Tensor, x: Tensor, first: bool) -> None: ...
    def arrive(self) -> None: ...


class OnDevice:
    """The usual home."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def reserve(self, elements: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Zeros."""
        return torch.zeros(elements, dtype=dtype, device=self.device)

    def beside(self, device: torch.device) -> AbstractContextManager[list[Any]]:  # noqa: ARG002
        """It need not be brought."""
        return nullcontext([])

    def expect(self, home: Tensor) -> None:
        """It is there."""

    def leave(self, home: Tensor) -> None:
        """It stays."""


@dataclass(frozen=True)
class ShardMemory:
    """Where the shards of a group live."""

    device: torch.device  # that computes
    dtype: torch.dtype  # that it computes with
    home: Home  # of the share of weights
    keeper: Keeper | None = None  # of masters and gradients; None: they are where the weights are, and on the device
    even: int = 1  # what parameters and shares begin at a multiple of

    @property
    def apart(self) -> bool:
        """Whether masters are not the share of weights itself: of other precision, or where the host cannot update."""
        on_gpu = isinstance(self.home, OnDevice) and self.device.type != "cpu"
        return self.keeper is not None and (self.dtype != torch.float32 or on_gpu)
