"""A tier: memory beside the device, with copies that go on while the device computes.

What is needed once and then forgotten, activations, is `put`, and `take`n back into new memory of the device. What
stays, weights and the optimizer's state, has its home there: `reserve` gives a tensor in the tier's own memory.

A dry run's tensors have shapes and no memory; what leaves its device is counted as gone, and nothing is copied.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

PAGE = 4096


class Slot:
    """The memory of one tensor that was put away; given back when nobody needs the slot any more."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size, self.device = size, device  # bytes, and where they came from
        self.region: Any = None  # where the tier keeps them; None in a dry run
        self.away: Any = None  # when they have arrived there, where a device copies beside its work
        self.coming: Any = None  # while they are on their way back
        self.value: Tensor | None = None  # once they were taken: several views of them may be asked for
        self.wait: Callable[[], object] = lambda: None  # until it is put away; for a GPU only its stream does


class Tier(ABC):
    """One kind of memory. Sizes repeat from step to step, so what was given back is used again."""

    name: str

    def __init__(self) -> None:
        self.spare: defaultdict[int, list[object]] = defaultdict(list)  # regions by their bytes
        self.held = 0  # bytes of all slots that somebody still needs

    def put(self, x: Tensor, size: int | None = None) -> Slot:
        """Begin to copy the bytes of a flat tensor, which must not change any more; `Slot.wait` ends it.

        A dry run says how many there are.
        """
        slot = Slot(x.numel() * x.itemsize if size is None else size, x.device)
        self.held += slot.size
        weakref.finalize(slot, self._let_go, slot.size)
        if not isinstance(x, FakeTensor):
            room = -(-slot.size // PAGE) * PAGE
            region = self.spare[room].pop() if self.spare[room] else self._region(room)
            weakref.finalize(slot, self.spare[room].append, region)
            self._write(slot, region, x)
        return slot

    def _let_go(self, size: int) -> None:
        self.held -= size

    def prefetch(self, slot: Slot) -> None:
        """Begin to bring a slot's bytes back. Their memory is taken at once, in a dry run, too."""
        if slot.value is None and slot.coming is None:
            if slot.region is None:
                slot.value = torch.empty(slot.size, dtype=torch.uint8, device=slot.device)
            else:
                self._begin(slot)

    def take(self, slot: Slot) -> Tensor:
        """The bytes of a slot, on its device."""
        self.prefetch(slot)
        if slot.value is None:
            slot.value = self._read(slot)
        return slot.value

    def reserve(self, elements: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Zeros that live in the tier's memory, as a tensor that the CPU can compute with."""
        home = tag(self._home(max(1, elements * dtype.itemsize)), self)
        return home[: elements * dtype.itemsize].view(dtype)

    def add(self, home: Tensor, x: Tensor, first: bool) -> None:
        """Put numbers of the device into what was reserved, or add them to what is there; done when they `arrive`."""
        here = x.to(home.device)
        if first:
            home.copy_(here)
        else:
            home.add_(here)

    def receive(self, home: Tensor, x: Tensor) -> Tensor:
        """Numbers of the device beside what was reserved for others, until the next; done when they `arrive`."""
        return x.to(home.device)

    def give(self, target: Tensor, home: Tensor) -> None:
        """Round what was reserved into memory of the device."""
        target.copy_(home)

    def hides(self, device: torch.device) -> bool:  # noqa: ARG002
        """Whether a device computes on while its bytes come back, so that they are worth fetching early."""
        return False

    def arrive(self) -> None:  # noqa: B027, nothing is under way unless a tier says so
        """Until all that was added is there."""

    @contextmanager
    def beside(self, device: torch.device) -> Iterator[list[Any]]:  # noqa: ARG002
        """What a device copies from what was reserved, and sends on, inside: beside its computation if it can.

        Gives marks, which the computation must `hold` at before it uses what has come.
        """
        yield []

    @abstractmethod
    def expect(self, home: Tensor) -> None:
        """What was reserved will be needed soon."""

    @abstractmethod
    def leave(self, home: Tensor) -> None:
        """What was reserved will not be needed for a while."""

    @abstractmethod
    def _region(self, size: int) -> object: ...

    @abstractmethod
    def _write(self, slot: Slot, region: object, x: Tensor) -> None: ...

    @abstractmethod
    def _begin(self, slot: Slot) -> None: ...

    @abstractmethod
    def _read(self, slot: Slot) -> Tensor: ...

    @abstractmethod
    def _home(self, size: int) -> Tensor: ...


def tag(x: Tensor, tier: Tier) -> Tensor:
    """Note on a tensor's memory that it is not the device's."""
    x.untyped_storage().heddle_tier = tier  # type: ignore[attr-defined]
    return x


def tier_of(x: Tensor) -> Tier | None:
    """The tier in whose memory a tensor lives; None: it is the device's."""
    return getattr(x.untyped_storage(), "heddle_tier", None)
