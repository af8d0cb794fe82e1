"""Where Hugging Face keeps each of our parameters: GPT-2, and Llama with its relatives Mistral, Qwen2 and Qwen3.

Each of our tensors is a stack of blocks of rows, and each block lies somewhere in one of theirs. One list of blocks
serves both directions, and any slice of either side can be found in the other without reading the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heddle.models.transformer import Transformer
from heddle.spec.model import ModelSpec

FIRST = "layers.0."

Shape = tuple[int, ...]
Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Names:
    """A family's modules by ours; {} is the number of a layer. Query, key and value are three modules, or one."""

    body: str  # before every name but that of the output layer; files of the bare body leave it out
    modules: dict[str, str | tuple[str, str, str]]
    conv1d: bool = False  # the linear layers of the body are GPT-2's Conv1D: [in, out], not [out, in]
    buffers: str = "(?!)"  # what old files hold beside parameters: constants that every model makes anew


GPT2 = Names(
    body="transformer.",
    modules={
        "embed.tokens": "transformer.wte",
        "embed.positions": "transformer.wpe",
        "layers.{}.attention_norm": "transformer.h.{}.ln_1",
        "layers.{}.attention.qkv": "transformer.h.{}.attn.c_attn",
        "layers.{}.attention.out": "transformer.h.{}.attn.c_proj",
        "layers.{}.mlp_norm": "transformer.h.{}.ln_2",
        "layers.{}.mlp.up": "transformer.h.{}.mlp.c_fc",
        "layers.{}.mlp.down": "transformer.h.{}.mlp.c_proj",
        "norm": "transformer.ln_f",
        "head": "lm_head",
    },
    conv1d=True,
    buffers=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
)
LLAMA = Names(
    body="model.",
    modules={
        "embed.tokens": "model.embed_tokens",
        "layers.{}.attention_norm": "model.layers.{}.input_layernorm",
        "layers.{}.attention.qkv": (
            "model.layers.{}.self_attn.q_proj",
            "model.layers.{}.self_attn.k_proj",
            "model.layers.{}.self_attn.v_proj",
        ),
        "layers.{}.attention.q_norm": "model.layers.{}.self_attn.q_norm",
        "layers.{}.attention.k_norm": "model.layers.{}.self_attn.k_norm",
        "layers.{}.attention.out": "model.layers.{}.self_attn.o_proj",
        "layers.{}.mlp_norm": "model.layers.{}.post_attention_layernorm",
        "layers.{}.mlp.gate": "model.layers.{}.mlp.gate_proj",
        "layers.{}.mlp.up": "model.layers.{}.mlp.up_proj",
        "layers.{}.mlp.down": "model.layers.{}.mlp.down_proj",
        "norm": "model.norm",
        "head": "lm_head",
    },
    buffers=r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
)


@dataclass(frozen=True)
class Block:
    """Some rows of one of our tensors, and where they lie in one of theirs."""

    row: int  # the first of our rows
    rows: int
    name: str  # of their tensor
    start: int  # the first of their rows, or of their columns where they have it transposed
    transposed: bool = False

    def view(self, theirs: Tensor) -> Tensor:
        """The block as rows of ours, in the memory of their tensor."""
        return (theirs.T if self.transposed else theirs)[self.start : self.start + self.rows]

    def place(self, part: Slices) -> Slices:
        """Where a part of the block, given in our rows and columns counted from its corner, lies in their tensor."""
        first, *others = part
        moved = (slice(self.start + first.start, self.start + first.stop), *others)
        return moved[::-1] if self.transposed else moved


@dataclass(frozen=True)
class Mapped:
    """One of our parameters, as blocks of theirs."""

    shape: Shape
    blocks: tuple[Block, ...]


def parameter_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """The parameters of a whole model by global name, in the model's order; a tied output layer is the embedding."""
    with torch.device("meta"):
        model = Transformer(replace(spec, layers=1))  # all are alike, and a description may state any number of them
    own = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    layer = {name.removeprefix(FIRST): shape for name, shape in own.items() if name.startswith(FIRST)}
    shapes: dict[str, Shape] = {}
    for name, shape in own.items():
        if not name.startswith(FIRST):
            shapes[name] = shape
        elif name == FIRST + next(iter(layer)):
            shapes |= {f"layers.{n}.{part}": each for n in range(spec.layers) for part, each in layer.items()}
    return shapes


def names_of(spec: ModelSpec) -> Names:
    """The names of a model's family: learned positions are GPT-2's, all others name their parameters like Llama."""
    return GPT2 if spec.positions == "learned" else LLAMA


def layout(spec: ModelSpec) -> dict[str, Mapped]:
    """Every parameter of a model, in the model's order, and where Hugging Face keeps it."""
    names = names_of(spec)
    shapes = parameter_shapes(spec)
    return {name: Mapped(shape, tuple(_blocks(spec, names, name, shape))) for name, shape in shapes.items()}


def their_shapes(mapped: dict[str, Mapped]) -> dict[str, Shape]:
    """The tensors that Hugging Face has for a model, in the order of ours."""
    shapes: dict[str, Shape] = {}
    for ours in mapped.values():
        for block in ours.blocks:
            rows = block.start + block.rows  # the last block of a tensor ends where the tensor ends
            shape = (rows, *ours.shape[1:])
            shapes[block.name] = max(shapes.get(block.name, ()), shape[::-1] if block.transposed else shape)
    return shapes


def find(name: str, held: Collection[str], names: Names) -> str | None:
    """The name under which a file holds a tensor: with what stands before the body's names, or without."""
    options = (name, name.removeprefix(names.body))
    return next((option for option in options if option in held), None)


def is_buffer(name: str, names: Names) -> bool:
    """Whether a tensor of a file is a constant that need not be read."""
    return any(re.fullmatch(names.buffers, option) for option in (name, names.body + name))


def _blocks(spec: ModelSpec, names: Names, name: str, shape: Shape) -> Iterator[Block]:
    module, _, kind = name.rpartition(".")
    layer = re.match(r"layers\.(\d+)\.", module)
    theirs = names.modules[re.sub(r"^layers\.\d+\.", "layers.{}.", module)]
    transposed = names.conv1d and layer is not None and len(shape) == 2
    full = [f"{each.format(layer and layer[1])}.{kind}" for each in ([theirs] if isinstance(theirs, str) else theirs)]
    if module.endswith("attention.qkv"):
        yield from _by_group(spec, full, transposed)
    else:
        yield Block(0, shape[0], full[0], 0, transposed)


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
