"""Offload: what of a layer leaves the device between its uses, applied from outside.

Activations go when the forward pass saves them for the backward, and come back some layers before they are needed. The
optimizer's state has its home on the tier, and is updated there; masters go with it, and gradients of sharded layers.
Not a bit changes on the way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import saved_tensors_hooks

from heddle.models.chunk import Chunk
from heddle.models.transformer import Microbatch
from heddle.parallel.shards import Piece
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan

SMALLEST = 4096  # bytes: what is smaller costs more to move than it takes


class OffloadTier(Protocol):
    """Memory beside the device; see heddle.runtime.tiers."""

    def put(self, x: Tensor, size: int | None = None) -> Any: ...
    def prefetch(self, slot: Any) -> None: ...
    def take(self, slot: Any) -> Tensor: ...
    def hides(self, device: torch.device) -> bool: ...
    def reserve(self, elements: int, dtype: torch.dtype = ...) -> Tensor: ...
    def beside(self, device: torch.device) -> AbstractContextManager[list[Any]]: ...
    def expect(self, home: Tensor) -> None: ...
    def leave(self, home: Tensor) -> None: ...
    def add(self, home: Tensor, x: Tensor, first: bool) -> None: ...
    def arrive(self) -> None: ...


Tiers = Callable[[str], OffloadTier]


def no_tiers(name: str) -> OffloadTier:
    """Of a model that is built and not trained."""
    raise AssertionError(f"no offload tier {name!r}")


class OffloadedTensor:
    """What autograd keeps in place of a tensor that left: where its memory went, and how it lay in it."""

    def __init__(self, slot: Any, x: Tensor) -> None:
        self.slot, self.dtype = slot, x.dtype
        self.layout = x.shape, x.stride(), x.storage_offset()


def whole_of(x: Tensor) -> Tensor:
    """All of the memory behind a tensor, as bytes; a dry run's has none, and what views it would never be let go."""
    if isinstance(x, FakeTensor):
        return x
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


class PutAway:
    """What a layer has put away of one microbatch, and what the layer before it has."""

    def __init__(self, slots: Sequence[Any], tier: OffloadTier, before: PutAway | None) -> None:
        self.slots, self.tier = [weakref.ref(slot) for slot in slots], tier
        self.before = before

    def prefetch(self, ahead: int) -> None:
        """Begin to bring it back, the end first, where the backward begins; then what so many layers before it have."""
        for slot in reversed(self.slots):
            found = slot()
            if found is not None:
                self.tier.prefetch(found)
        if ahead and self.before is not None:
            self.before.prefetch(ahead - 1)


class Leaving:
    """What is on its way out of a chunk's layers: it is waited for at the end of the next one that puts something away.

    So copies go on beside the next layer's computation, and the memory of one layer, at most, is held for them.
    """

    def __init__(self) -> None:
        self.slots: list[Any] = []

    def put(self, slots: list[Any]) -> None:
        """Wait for those before, and remember these."""
        before, self.slots = self.slots, slots
        for slot in before:
            slot.wait()


class OffloadedLayer:
    """Lets all that a layer saves for its backward leave the device, its weights apart."""

    def __init__(
        self, layer: nn.Module, tier: OffloadTier, leaving: Leaving, before: OffloadedLayer | None, ahead: int
    ) -> None:
        self.layer, self.tier, self.leaving, self.ahead = layer, tier, leaving, ahead
        self.before = before  # the last layer that does the same
        self.passed: PutAway | None = None  # in the last forward
        self.compute: Callable[..., Tensor] = layer.forward
        self.staying: set[int] = set()  # memory that other things share
        self.known: dict[int, tuple[weakref.ref[Any], Any]] = {}  # slots of this pass, by the memory they are for
        self.slots: list[Any] = []  # all of them: an address may be used again

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        """Takes the place of the layer's own."""
        if not torch.is_grad_enabled():
            return self.compute(x, batch)
        tables = [table for pair in (batch.rope or {}).values() for table in pair]
        shared = [*self.layer.parameters(), *tables, *([] if batch.keys is None else [batch.keys])]
        if x.is_leaf:
            shared.append(x)  # what another stage sent is kept until its gradient is sent back
        self.staying, self.known, self.slots = {one.untyped_storage()._cdata for one in shared}, {}, []
        with saved_tensors_hooks(self._pack, self._unpack):
            y = self.compute(x, batch)
        self.leaving.put(self.slots)
        if not self.tier.hides(y.device):
            self.leaving.put([])
        # a chunk's layers compute one after the other: the last that the layer before has seen is this microbatch
        self.passed = passed = PutAway(self.slots, self.tier, None if self.before is None else self.before.passed)
        y.register_hook(self._before_backward(passed))
        self.known, self.slots = {}, []
        return y

    def _before_backward(self, passed: PutAway) -> Callable[[Tensor], None]:
        """Begin to bring back all of it, if that has not begun, and what the backwards of layers before will need."""

        def gradient_arrived(gradient: Tensor) -> None:
            self.leaving.put([])
            passed.prefetch(self.ahead if self.tier.hides(gradient.device) else 0)

        return gradient_arrived

    def _pack(self, x: Tensor) -> Tensor | OffloadedTensor:
        storage = x.untyped_storage()
        if storage.nbytes() < SMALLEST or storage._cdata in self.staying:
            return x.detach() if x.grad_fn is not None else x
        before = self.known.get(storage._cdata)
        if before is None or before[0]() is not storage:  # the address may be that of another, which is gone
            self.known[storage._cdata] = before = weakref.ref(storage), self.tier.put(whole_of(x), storage.nbytes())
            self.slots.append(before[1])
        return OffloadedTensor(before[1], x)

    def _unpack(self, kept: Tensor | OffloadedTensor) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        return self.tier.take(kept.slot).view(kept.dtype).as_strided(*kept.layout)


def offload_activations(chunk: Chunk, plan: Plan, tiers: Tiers) -> None:
    """Let the input, or all that is saved, leave with each layer that the plan says it of."""
    leaving, before = Leaving(), None
    for index, layer in chunk.layers.items():
        memory = plan.memory_of(int(index))
        tier = memory.tier("input") or memory.tier("activations")
        if tier is not None:
            before = OffloadedLayer(layer, tiers(tier), leaving, before, plan.prefetch)
            layer.forward = before.forward


def optimizer_tier(plan: Plan, model: ModelSpec, name: str) -> str | None:
    """Where the optimizer's state of a parameter lives: as its layer says, at the model's ends as the plan does."""
    if (unit := model.unit_of(name)).isdecimal():
        return plan.memory_of(int(unit)).tier("optimizer")
    return next((word.partition(":")[2] for word in plan.offload if word.startswith("optimizer:")), None)


def move_optimizer(pieces: Sequence[Piece], plan: Plan, model: ModelSpec, tiers: Tiers) -> list[Piece]:
    """The same pieces, with a tier for those whose state leaves the device.

    Masters beside low-precision weights go with it. The update runs on the host: beside a GPU all masters do. Sharded
    pieces were made where they live.
    """
    moved = []
    for piece in pieces:
        name = optimizer_tier(plan, model, piece.name)
        if name is None or piece.tier is not None:
            moved.append(piece)
            continue
        tier = tiers(name)
        if piece.target is not None or piece.master.device.type != "cpu":
            home = tier.reserve(piece.master.numel())
            home.copy_(piece.master)
            target = piece.master if piece.target is None else piece.target
            piece = replace(piece, master=home, target=target)
        moved.append(replace(piece, tier=tier))
    return moved
