"""The bytes of a rank's tensors while it takes a step: what lives at any moment, and what each action adds to it.

Seen from below, in PyTorch's dispatcher, so that what autograd keeps, what is gathered and what lives for one
operation all count. What a kernel takes for itself while it runs does not.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heddle.runtime.recorder import NoRecorder
from heddle.runtime.tiers import Tiers
from heddle.schedule import Kind


class Watching(TorchDispatchMode):
    """Sees every operation, at little cost: a dry run makes thousands of them, and hardly computes.

    PyTorch would wrap what looks on in a guard against being compiled, each time; and it asks for a fake tensor's
    device as by an operation, more often than it does anything else. Nothing is compiled here, and a device is told.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, _types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return args[0].device if func is _DEVICE else self.saw(func, args, kwargs or {})

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation returns."""
        return func(*args, **kwargs)


_DEVICE = torch.ops.prim.device.default


class Living(Watching):
    """Bytes of all tensors that were made inside and still live, and the most at any time since `most` was set."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.fetched = 0  # of the most, memory that is emptied and filled: weights while they are gathered
        self.known: dict[int, int] = {}  # bytes by the address of a storage
        self.elastic: dict[int, weakref.ref[torch.UntypedStorage]] = {}  # those whose size was seen to change

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation returns, counted."""
        self._look_again()  # before anything is made: what shrank since has made room
        made = func(*args, **kwargs)
        for leaf in tree_leaves((made, args)) if func.namespace == "inductor" else tree_leaves(made):
            if isinstance(leaf, Tensor) and leaf.device.type != "meta":
                self._count(leaf.untyped_storage())
        if self.now > self.most:
            self.most, self.fetched = self.now, sum(self.known[address] for address in self.elastic)
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        address = storage._cdata
        if hasattr(storage, "heddle_tier"):  # memory of a tier, not the device's: known at the latest when it is used
            if address in self.known:
                self._resize(address, 0)
            return
        if address not in self.known:
            self.known[address] = 0
            weakref.finalize(storage, self._free, address)
        elif self.known[address] != storage.nbytes():  # what is gathered into is emptied and filled
            self.elastic[address] = weakref.ref(storage)
        self._resize(address, storage.nbytes())

    def _look_again(self) -> None:
        for address, reference in self.elastic.items():
            storage = reference()
            if storage is not None:
                self._resize(address, storage.nbytes())

    def _resize(self, address: int, size: int) -> None:
        self.now += size - self.known[address]
        self.known[address] = size

    def _free(self, address: int) -> None:
        self.now -= self.known.pop(address)
        self.elastic.pop(address, None)


class Around(NamedTuple):
    """The bytes that lived when an action began, at its fullest moment, and when it ended."""

    start: int
    most: int
    end: int
    fetched: int  # of the most, gathered weights


class Actions(NoRecorder):
    """Takes a recorder's place: notes what lives around each forward, backward and update, and what forwards save.

    Memory that is saved counts once however many saved tensors view it, and only where it is first seen. What the first
    microbatch shares with those behind it, weights and tables of positions, is therefore counted with the first;
    ask for a later one.
    """

    def __init__(self, living: Living) -> None:
        self.living = living
        self.around: dict[tuple[str, int, int], Around] = {}  # by kind, chunk and microbatch
        self.saved: Counter[tuple[int, int]] = Counter()  # bytes by chunk and microbatch
        self.seen: set[int] = set()
        self.tiers: Tiers | None = None  # of the rank that is looked at
        self.put: dict[tuple[int, int], Counter[str]] = {}  # bytes that left, by chunk and microbatch

    def span(self, *about: object, **_: object) -> AbstractContextManager[None]:
        """Look on while something runs."""
        match about:
            case ("compute", Kind() as kind, int(chunk), int(microbatch)):
                return self._action(kind, chunk, microbatch, saves=kind.holds > 0)
            case ("optimizer", str(name)):
                return self._action(name, -1, -1)
        return nullcontext()

    @contextmanager
    def _action(self, kind: str, chunk: int, microbatch: int, saves: bool = False) -> Iterator[None]:
        living = self.living
        living.most = start = living.now
        living.fetched = 0
        before = self._away()
        hooks = (
            saved_tensors_hooks(lambda x: self._note(x, chunk, microbatch), lambda kept: kept)
            if saves
            else nullcontext()
        )
        with hooks:
            yield
        self.around[kind, chunk, microbatch] = Around(start, living.most, living.now, living.fetched)
        if saves:
            self.put[chunk, microbatch] = Counter({name: held - before[name] for name, held in self._away().items()})

    def _away(self) -> Counter[str]:
        """Bytes that were put away, by tier."""
        return Counter({name: tier.held for name, tier in self.tiers.made.items()} if self.tiers is not None else {})

    def _note(self, x: Tensor, chunk: int, microbatch: int) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in self.seen:
            self.seen.add(storage._cdata)
            weakref.finalize(storage, self.seen.discard, storage._cdata)
            self.saved[chunk, microbatch] += storage.nbytes()
        return x.detach()  # an output that its own node keeps would never be freed
