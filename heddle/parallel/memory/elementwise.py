"""Recompute what lies between matrix products: norms, activations, rotary positions, dropout, sums.

What products and attention made is kept, and in the backward pass the layer runs once more around it: whatever is dear
hands out what it made the first time. A product also needs its input for the gradient of its weight, and attention its
queries, keys and values; these come from that second run.

PyTorch's own selective checkpointing does the same operator by operator. It sees neither what ranks exchange in place
nor where a product of several operators begins and ends; modules know both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from heddle.models.experts import ExpertMLP
from heddle.models.transformer import MLP, GatedMLP, Layer, Microbatch


class _Saved(torch.autograd.Function):
    """Saves tensors as a product would, for whoever watches what is saved; nothing ever goes back through it."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return anchor.view_as(anchor)

    @staticmethod
    def backward(_ctx: Any, *_gradients: Tensor) -> tuple[Any, ...]:
        raise AssertionError("nothing hangs on it")


class SavedTensors:
    """Tensors that are there again in the backward pass; each is handed out as often as it was asked for, then gone."""

    def __init__(self, tensors: list[Tensor] | None = None) -> None:
        self.node: Any = None
        self.values: dict[int, Tensor] = {}
        self.uses: dict[int, int] = {}
        if tensors is not None:
            self.save(tensors)

    def save(self, tensors: list[Tensor]) -> None:
        """Give them to whatever looks after saved tensors here."""
        anchor = torch.empty(0, requires_grad=True)
        with torch.enable_grad():
            self.node = _Saved.apply(anchor, *tensors).grad_fn

    def expect(self, place: int) -> None:
        """Somebody will want this one."""
        self.uses[place] = self.uses.get(place, 0) + 1

    def forget_unused(self) -> None:
        """Let go of them where nobody wants any: autograd holds on to whoever packs for it."""
        self.node = self.node if self.uses else None

    def take(self, place: int) -> Tensor:
        """One of them."""
        if self.node is not None:
            self.values = {i: x for i, x in enumerate(self.node.saved_tensors) if self.uses.get(i)}
            self.node = None
        self.uses[place] -= 1
        return self.values[place] if self.uses[place] else self.values.pop(place)


class SavedView(NamedTuple):
    """What autograd holds in place of a tensor: which one it will be a view of, and how it lies in its memory."""

    source: SavedTensors
    place: int
    layout: tuple[torch.Size, tuple[int, ...], int | torch.SymInt]

    @classmethod
    def of(cls, x: Tensor, source: SavedTensors, place: int) -> SavedView:
        """Of that tensor, by its place among those that are saved."""
        source.expect(place)
        return cls(source, place, (x.shape, x.stride(), x.storage_offset()))

    def tensor(self) -> Tensor:
        """It, in the backward pass."""
        return self.source.take(self.place).as_strided(*self.layout)


class Made(NamedTuple):
    """What a call made: where it is kept, or where nobody reads it, its shape."""

    value: SavedView | torch.Size
    learns: bool  # whether a gradient goes back through it

    def again(self, like: Tensor) -> Tensor:
        """The same, as something that is given."""
        value = like.new_empty(self.value) if isinstance(self.value, torch.Size) else self.value.tensor()
        return value.detach().requires_grad_(self.learns)


class LayerPass:
    """What one microbatch's way through a layer made that is not made again."""

    def __init__(self, weights: set[int]) -> None:
        self.weights = weights  # memory that is there anyway
        self.kept: list[Tensor] = []
        self.known: dict[int, int] = {}  # its memory, and its place
        self.saved = SavedTensors()
        self.calls: deque[tuple[list[Made], bool]] = deque()  # what each made, and whether that is a tuple

    def compute(self, function: Callable[..., Any], read: bool, arguments: tuple[Any, ...]) -> Any:
        """Call it, and keep what it makes, and what it saves but for its inputs: these will be there again."""
        inputs: dict[int, SavedTensors] = {}  # by their memory, which several may share
        for x in _given(arguments):
            inputs.setdefault(x.untyped_storage()._cdata, SavedTensors([x]))

        def pack(x: Tensor) -> Tensor | SavedView:
            memory = x.untyped_storage()._cdata
            if memory in self.weights:
                return x if x.grad_fn is None else x.detach()
            return SavedView.of(x, inputs[memory], 0) if memory in inputs else self.keep(x)

        def unpack(held: Tensor | SavedView) -> Tensor:
            return held if isinstance(held, Tensor) else held.tensor()

        with saved_tensors_hooks(pack, unpack):
            made = function(*arguments)
        for each in inputs.values():
            each.forget_unused()
        every = made if isinstance(made, tuple) else (made,)
        held = [Made(self.keep(x) if read else x.shape, x.requires_grad) for x in every]
        self.calls.append((held, isinstance(made, tuple)))
        return made

    def keep(self, x: Tensor) -> SavedView:
        """Hold on to a tensor, once however many views there are of it."""
        memory = x.untyped_storage()._cdata
        if memory not in self.known:
            self.known[memory] = len(self.kept)
            self.kept.append(x.detach())
        return SavedView.of(x, self.saved, self.known[memory])

    def finish(self) -> None:
        """The forward is over: what is kept is saved outside of the layer, where offload sees it."""
        self.saved.save(self.kept)
        self.kept, self.known = [], {}

    def repeat(self, arguments: tuple[Any, ...]) -> Any:
        """What the next call made the first time; its inputs are saved now."""
        for x in _given(arguments):
            SavedTensors([x])
        held, several = self.calls.popleft()
        made = tuple(each.again(x) for each in held)
        return made if several else made[0]


def _given(arguments: tuple[Any, ...]) -> list[Tensor]:
    """Tensors among them that are not weights."""
    return [x for x in arguments if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]


class ElementwiseLayer:
    """A layer whose backward runs its forward once more, without its products and its attention."""

    def __init__(self, layer: Layer, compiled: bool) -> None:
        self.layer, self.compiled = layer, compiled
        self.compute: Callable[..., Tensor] = layer.forward
        self.now: LayerPass | None = None
        self.again = False  # whether it is run once more
        for owner, name, read in dear(layer):
            setattr(owner, name, self._once(getattr(owner, name), read))

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        """Takes the place of the layer's own."""
        if not torch.is_grad_enabled():
            return self.compute(x, batch)
        way = LayerPass({weight.untyped_storage()._cdata for weight in self.layer.parameters()})

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return self._during(way, again=False), self._during(way, again=True)

        y: Tensor = checkpoint(
            self.compute, x, batch, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
        )
        way.finish()
        return y

    @contextmanager
    def _during(self, way: LayerPass, again: bool) -> Iterator[None]:
        self.now, self.again = way, again
        try:
            yield
        finally:
            self.now = None

    def _once(self, function: Callable[..., Any], read: bool) -> Callable[..., Any]:
        """A function that is called in the first run alone."""

        def once(*arguments: Any) -> Any:
            if self.now is None:
                return function(*arguments)
            return self.now.repeat(arguments) if self.again else self.now.compute(function, read, arguments)

        return torch.compiler.disable(once) if self.compiled else once


def dear(layer: Layer) -> Iterator[tuple[nn.Module, str, bool]]:
    """The methods of a layer that make its products and its attention; and whether a backward reads what they make.

    What is added to the residual stream is read where a norm comes behind it: of the branch itself, or of the sum.
    """
    attention = layer.attention
    for name in attention.linears:
        reads = layer.attention_after_norm is not None or not layer.parallel
        yield getattr(attention, name), "forward", name != "out" or reads
    yield attention, "attend", True
    dense: nn.Module | None = layer.mlp
    reads = layer.mlp_after_norm is not None
    if isinstance(dense, ExpertMLP):
        yield dense.router, "scores", True
        yield dense.experts, "multiply", True
        if dense.shared_gate is not None:
            yield dense.shared_gate, "forward", True
        reads = reads or dense.shared_gate is not None
        dense = dense.shared
    if isinstance(dense, GatedMLP):
        yield dense, "widen", True
        yield dense.down, "forward", reads
    elif isinstance(dense, MLP):
        yield dense.up, "forward", True
        yield dense.down, "forward", reads
