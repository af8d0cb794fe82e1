"""Where each number of our parameters lies in Hugging Face's tensors.

Each of our tensors is a stack of blocks of rows, and each block lies somewhere in one of theirs. One list of blocks
serves both directions, and any slice of either side can be found in the other without reading the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from heddle.models.huggingface_names import FUSED_EXPERTS, FUSED_KEYS, Names, like, names_of
from heddle.models.transformer import Transformer
from heddle.spec.model import ModelSpec

Shape = tuple[int, ...]
Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Block:
    """Some rows of one of our tensors, and where they lie in one of theirs."""

    row: int  # the first of our rows
    rows: int
    name: str  # of their tensor
    start: int  # the first of their rows, or of their columns where they have it transposed
    transposed: bool = False
    head: int | None = None  # the row of theirs that holds it, where theirs has one more dim
    single: bool = False  # one matrix of a stack of ours, which theirs is
    inner: int = 0  # of a stack in both, the first of their rows in each matrix
    turned: bool = False  # of a stack in both, their matrices are transposed
    woven: int | None = None  # which of each two of their last numbers are ours: the first or the second

    def view(self, theirs: Tensor) -> Tensor:
        """The block as rows of ours, in the memory of their tensor."""
        if self.single:
            return theirs[None]
        if self.head is not None:
            return theirs[self.head]
        theirs = self.ours(theirs)
        return (theirs.T if self.transposed else theirs)[self.start : self.start + self.rows]

    def ours(self, theirs: Tensor) -> Tensor:
        """Of a stack, the numbers that are ours, in our order."""
        if self.woven is not None:
            theirs = theirs[..., self.woven :: 2]
        return theirs.mT if self.turned else theirs

    def place(self, part: Slices) -> Slices | tuple[int, slice]:
        """Where a part of the block, given in our rows and columns counted from its corner, lies in their tensor."""
        first, *others = part
        if self.single:
            return tuple(others)
        if self.head is not None:
            return self.head, first
        if self.inner:
            others[0] = slice(self.inner + others[0].start, self.inner + others[0].stop)
        if self.turned:
            others.reverse()
        if self.woven is not None:  # both of each two are read
            others[-1] = slice(2 * others[-1].start, 2 * others[-1].stop)
        moved = (slice(self.start + first.start, self.start + first.stop), *others)
        return moved[::-1] if self.transposed else moved


@dataclass(frozen=True)
class Mapped:
    """One of our parameters, as blocks of theirs."""

    shape: Shape
    blocks: tuple[Block, ...]


def parameter_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """The parameters of a whole model by global name, in the model's order; a tied output layer is the embedding."""
    # A description may state any number of layers: one is built for each kind that differs.
    first = dict(zip(reversed(spec.shape_of), reversed(range(spec.layers)), strict=True))
    with torch.device("meta"):
        model = Transformer(spec, layers=first.values())
    kinds = {
        kind: {name: tuple(parameter.shape) for name, parameter in model.layers[str(index)].named_parameters()}
        for kind, index in first.items()
    }
    shapes: dict[str, Shape] = {}
    for name, parameter in model.named_parameters():
        if not name.startswith("layers."):
            shapes[name] = tuple(parameter.shape)
        elif "layers.0." + next(iter(kinds[spec.shape_of[0]])) not in shapes:
            parts = ((index, part) for index, kind in enumerate(spec.shape_of) for part in kinds[kind].items())
            shapes |= {f"layers.{index}.{part}": shape for index, (part, shape) in parts}
    return shapes


def layout(spec: ModelSpec, held: Collection[str] = ()) -> dict[str, Mapped]:
    """Every parameter of a model, in the model's order, and where Hugging Face keeps it.

    Experts are written one by one, and looked for all in one tensor where a file holds such tensors.
    """
    names = names_of(spec)
    if not names.woven and any(FUSED_KEYS.fullmatch(name) for name in held):
        names = like(names, FUSED_EXPERTS)
    shapes = parameter_shapes(spec)
    return {name: Mapped(shape, tuple(_blocks(spec, names, name, shape))) for name, shape in shapes.items()}


def their_shapes(mapped: dict[str, Mapped]) -> dict[str, Shape]:
    """The tensors that Hugging Face has for a model, in the order of ours."""
    shapes: dict[str, Shape] = {}
    for ours in mapped.values():
        for block in ours.blocks:
            rows = block.start + block.rows  # the last block of a tensor ends where the tensor ends
            shape = (rows, *ours.shape[1:]) if block.head is None else (block.head + 1, block.rows)
            if block.single:
                shape = ours.shape[1:]
            elif block.inner:
                shape = (rows, block.inner + ours.shape[1], *ours.shape[2:])
            if block.turned:
                shape = (shape[0], shape[2], shape[1])
            if block.woven is not None:
                shape = (*shape[:-1], 2 * shape[-1])
            shapes[block.name] = max(shapes.get(block.name, ()), shape[::-1] if block.transposed else shape)
    return shapes


def _blocks(spec: ModelSpec, names: Names, name: str, shape: Shape) -> Iterator[Block]:
    module, _, kind = name.rpartition(".")
    layer = re.match(r"layers\.(\d+)\.", name)
    if layer is not None and (names.woven or len(shape) == 3) and ".mlp.experts." in name:
        yield from _experts(names, name.removeprefix(layer[0]), layer[1], shape)
        return
    whole = re.sub(r"^layers\.\d+(?=\.)", "layers.{}", name)
    if whole in names.modules and layer is not None:  # a parameter with a name of its own
        yield Block(0, shape[0], str(names.modules[whole]).format(layer[1]), 0)
        return
    ours = re.sub(r"^layers\.\d+(?=\.)", "layers.{}", module)
    theirs = names.modules[ours]
    transposed = names.conv1d and layer is not None and len(shape) == 2
    number = layer and layer[1]
    each_head = (names.per_head or "{head}" in theirs) and module.endswith(("q_norm", "k_norm"))
    if each_head and spec.qk_norm_over == "each":
        for head in range(shape[0] // spec.head_size):
            full = f"{str(theirs).format(number, head=head)}.{kind}"
            yield Block(head * spec.head_size, spec.head_size, full, 0, head=head if names.per_head else None)
        return
    full_names = [f"{part.format(number)}.{kind}" for part in ([theirs] if isinstance(theirs, str) else theirs)]
    if module.endswith("attention.down"):
        rows = spec.q_latent, spec.kv_latent + spec.rotary_size
        starts = 0, spec.q_latent
        yield from (Block(*each, 0) for each in zip(starts, rows, full_names, strict=True) if each[1])
    elif module.endswith("attention.qkv") and names.cores:
        yield from _by_core(spec, full_names[0], names.cores)
    elif module.endswith("attention.qkv") and not (names.by_group and len(full_names) == 1):
        yield from _by_group(spec, full_names, transposed)
    else:
        joined = module.endswith("mlp.up") and names.modules.get("layers.{}.mlp.gate") == theirs and spec.gated
        yield Block(0, shape[0], full_names[0], shape[0] * joined, transposed)


def _experts(names: Names, name: str, layer: str, shape: Shape) -> Iterator[Block]:
    """A stack of the experts' matrices: each a tensor of theirs, or all of them in one."""
    theirs = str(names.modules[f"layers.{{}}.{name}"])
    if names.woven:
        part = {"gate": 0, "up": 1}.get(name.split(".")[-1].removesuffix("_bias"))
        yield Block(0, shape[0], theirs.format(layer), 0, turned=len(shape) == 3, woven=part)
    elif "{expert}" in theirs:
        for expert in range(shape[0]):
            yield Block(expert, 1, f"{theirs.format(layer, expert=expert)}.weight", 0, single=True)
    else:
        joined = name.endswith(".up")  # below the gate
        yield Block(0, shape[0], theirs.format(layer), 0, inner=shape[1] * joined)


def _by_group(spec: ModelSpec, theirs: list[str], transposed: bool) -> Iterator[Block]:
    """Our rows go key/value head by key/value head: its queries, its key, its value. Theirs are all queries, all keys,
    all values: one below the other in a single tensor, or in three.
    """
    q, kv = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
    tensors, starts = (theirs * 3, (0, q, q + kv)) if len(theirs) == 1 else (theirs, (0, 0, 0))
    sizes = (spec.group * spec.head_size, spec.head_size, spec.head_size)
    row = 0
    for group in range(spec.kv_heads):
        for name, start, rows in zip(tensors, starts, sizes, strict=True):
            yield Block(row, rows, name, start + group * rows, transposed)
            row += rows


def _by_core(spec: ModelSpec, name: str, cores: int) -> Iterator[Block]:
    """Theirs are for each core its queries, its values, its keys."""
    size, heads = spec.head_size, spec.heads // cores
    for head in range(spec.heads):
        core, place = divmod(head, heads)
        for row, part in enumerate((0, 2, 1)):
            start = ((3 * core + part) * heads + place) * size
            yield Block((3 * head + row) * size, size, name, start)
