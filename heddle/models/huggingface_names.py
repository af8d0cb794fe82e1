"""Where Hugging Face keeps each of our parameters, family by family.

Each of our tensors is a stack of blocks of rows, and each block lies somewhere in one of theirs. One list of blocks
serves both directions, and any slice of either side can be found in the other without reading the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from heddle.models.transformer import Transformer
from heddle.spec.huggingface import family_of
from heddle.spec.model import ModelSpec

Shape = tuple[int, ...]
Slices = tuple[slice, ...]


Modules = dict[str, str | tuple[str, str, str]]


@dataclass(frozen=True)
class Names:
    """A family's modules by ours; {} is the number of a layer. Query, key and value are three modules, or one.

    Where gate and up are the same module, the gate comes first. A norm whose every head has weights of its own is a
    module per head where its name has a {head}.
    """

    body: str  # before every name but that of the output layer; files of the bare body leave it out
    modules: Modules
    conv1d: bool = False  # the linear layers of the body are GPT-2's Conv1D: [in, out], not [out, in]
    buffers: str = "(?!)"  # what old files hold beside parameters: constants that every model makes anew
    by_group: bool = (
        False  # one module of queries, keys and values has them in our order: head by head, or group by group
    )
    per_head: bool = False  # norms of queries and keys are [heads, head size]
    parallel_norms: Modules = field(default_factory=dict)  # modules of models with two norms side by side


def like(base: Names, changes: Modules, **more: Any) -> Names:
    """Names that differ from another family's in some modules."""
    return replace(base, modules=base.modules | changes, **more)


def in_layer(**modules: str | tuple[str, str, str]) -> Modules:
    """Modules of a Llama-like layer by ours: attention_norm = "input_layernorm"; qkv and the like are attention's."""
    whole: Modules = {}
    for ours, theirs in modules.items():
        name = ours.replace("__", ".")
        full = [f"model.layers.{{}}.{each}" for each in ([theirs] if isinstance(theirs, str) else theirs)]
        whole[f"layers.{{}}.{name}"] = full[0] if isinstance(theirs, str) else (full[0], full[1], full[2])
    return whole


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
    buffers=r"transformer\.h\.\d+\.attn\.(attention\.)?(bias|masked_bias|embed_positions)",
)
LLAMA = Names(
    body="model.",
    modules={
        "embed.tokens": "model.embed_tokens",
        **in_layer(
            attention="self_attn",  # whose sinks are its own
            attention_norm="input_layernorm",
            attention__qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            attention__q_norm="self_attn.q_norm",
            attention__k_norm="self_attn.k_norm",
            attention__out="self_attn.o_proj",
            mlp_norm="post_attention_layernorm",
            mlp__gate="mlp.gate_proj",
            mlp__up="mlp.up_proj",
            mlp__down="mlp.down_proj",
        ),
        "norm": "model.norm",
        "head": "lm_head",
    },
    buffers=r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
)
GEMMA2 = like(
    LLAMA,
    in_layer(
        attention_after_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        mlp_after_norm="post_feedforward_layernorm",
    ),
)
ONE_GATE = in_layer(mlp__gate="mlp.gate_up_proj", mlp__up="mlp.gate_up_proj")
NEOX = {
    "attention.qkv": "attention.query_key_value",
    "attention.out": "attention.dense",
    "mlp.up": "mlp.dense_h_to_4h",
    "mlp.down": "mlp.dense_4h_to_h",
}
GPT_NEOX = Names(
    body="gpt_neox.",
    modules={
        "embed.tokens": "gpt_neox.embed_in",
        "layers.{}.attention_norm": "gpt_neox.layers.{}.input_layernorm",
        "layers.{}.mlp_norm": "gpt_neox.layers.{}.post_attention_layernorm",
        **{f"layers.{{}}.{ours}": f"gpt_neox.layers.{{}}.{theirs}" for ours, theirs in NEOX.items()},
        "norm": "gpt_neox.final_layer_norm",
        "head": "embed_out",
    },
    by_group=True,
    buffers=r"gpt_neox\.(layers\.\d+\.attention\.)?(bias|masked_bias|rotary_emb\.inv_freq)",
)
FALCON = Names(
    body="transformer.",
    modules={
        "embed.tokens": "transformer.word_embeddings",
        "layers.{}.attention_norm": "transformer.h.{}.input_layernorm",
        "layers.{}.mlp_norm": "transformer.h.{}.post_attention_layernorm",
        "layers.{}.attention.qkv": "transformer.h.{}.self_attention.query_key_value",
        "layers.{}.attention.out": "transformer.h.{}.self_attention.dense",
        "layers.{}.mlp.up": "transformer.h.{}.mlp.dense_h_to_4h",
        "layers.{}.mlp.down": "transformer.h.{}.mlp.dense_4h_to_h",
        "norm": "transformer.ln_f",
        "head": "lm_head",
    },
    by_group=True,
    parallel_norms={
        "layers.{}.attention_norm": "transformer.h.{}.ln_attn",
        "layers.{}.mlp_norm": "transformer.h.{}.ln_mlp",
    },
)
QKV_OF_GPT = ("transformer.h.{}.attn.q_proj", "transformer.h.{}.attn.k_proj", "transformer.h.{}.attn.v_proj")
AFTER = in_layer(attention_after_norm="post_attention_layernorm", mlp_after_norm="post_feedforward_layernorm")

# experts one by one, as most files have them, or all in one tensor, gate above up
EXPERTS = in_layer(
    mlp__router="mlp.gate",
    mlp__experts__gate="mlp.experts.{expert}.gate_proj",
    mlp__experts__up="mlp.experts.{expert}.up_proj",
    mlp__experts__down="mlp.experts.{expert}.down_proj",
    mlp__shared__gate="mlp.shared_expert.gate_proj",
    mlp__shared__up="mlp.shared_expert.up_proj",
    mlp__shared__down="mlp.shared_expert.down_proj",
    mlp__shared_gate="mlp.shared_expert_gate",
)
FUSED_EXPERTS = in_layer(
    mlp__router="mlp.gate",
    mlp__experts__gate="mlp.experts.gate_up_proj",
    mlp__experts__up="mlp.experts.gate_up_proj",
    mlp__experts__down="mlp.experts.down_proj",
)
FUSED_KEYS = re.compile(r"(model\.)?layers\.\d+\.mlp\.experts\.(gate_up_proj|down_proj)")

# whoever is not here has Llama's
NAMES: dict[str, Names] = {
    "gpt2": GPT2,
    "gpt_bigcode": replace(GPT2, conv1d=False, by_group=True),
    "gpt_neo": like(
        replace(GPT2, conv1d=False),
        {
            "layers.{}.attention.qkv": (
                "transformer.h.{}.attn.attention.q_proj",
                "transformer.h.{}.attn.attention.k_proj",
                "transformer.h.{}.attn.attention.v_proj",
            ),
            "layers.{}.attention.out": "transformer.h.{}.attn.attention.out_proj",
        },
    ),
    "gptj": like(
        replace(GPT2, conv1d=False),
        {
            "layers.{}.attention.qkv": QKV_OF_GPT,
            "layers.{}.attention.out": "transformer.h.{}.attn.out_proj",
            "layers.{}.mlp.up": "transformer.h.{}.mlp.fc_in",
            "layers.{}.mlp.down": "transformer.h.{}.mlp.fc_out",
        },
    ),
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2,
    "vaultgemma": GEMMA2,
    "olmo2": like(LLAMA, AFTER),
    "olmo3": like(LLAMA, AFTER),
    "exaone4": like(LLAMA, AFTER),
    "phi": like(
        LLAMA,
        in_layer(
            attention__q_norm="self_attn.q_layernorm",
            attention__k_norm="self_attn.k_layernorm",
            attention__out="self_attn.dense",
            mlp__up="mlp.fc1",
            mlp__down="mlp.fc2",
        )
        | {"norm": "model.final_layernorm"},
    ),
    "phi3": like(LLAMA, in_layer(attention__qkv="self_attn.qkv_proj") | ONE_GATE),
    "stablelm": like(
        LLAMA,
        in_layer(
            attention__q_norm="self_attn.q_layernorm.norms.{head}",
            attention__k_norm="self_attn.k_layernorm.norms.{head}",
        ),
    ),
    "starcoder2": like(LLAMA, in_layer(mlp__up="mlp.c_fc", mlp__down="mlp.c_proj")),
    "cohere": replace(LLAMA, per_head=True),
    "gpt_neox": GPT_NEOX,
    "falcon": FALCON,
    "glm": like(LLAMA, ONE_GATE),
    "glm4": like(
        LLAMA,
        ONE_GATE | in_layer(attention_after_norm="post_self_attn_layernorm", mlp_after_norm="post_mlp_layernorm"),
    ),
    "persimmon": like(
        LLAMA,
        in_layer(
            attention__qkv="self_attn.query_key_value",
            attention__out="self_attn.dense",
            attention__q_norm="self_attn.q_layernorm",
            attention__k_norm="self_attn.k_layernorm",
            mlp__up="mlp.dense_h_to_4h",
            mlp__down="mlp.dense_4h_to_h",
        )
        | {"norm": "model.final_layernorm"},
        by_group=True,
    ),
    "mixtral": like(
        LLAMA,
        in_layer(
            mlp__router="block_sparse_moe.gate",
            mlp__experts__gate="block_sparse_moe.experts.{expert}.w1",
            mlp__experts__up="block_sparse_moe.experts.{expert}.w3",
            mlp__experts__down="block_sparse_moe.experts.{expert}.w2",
        ),
    ),
    "qwen2_moe": like(LLAMA, EXPERTS),
    "qwen3_moe": like(LLAMA, EXPERTS),
    "olmoe": like(LLAMA, EXPERTS),
    "hunyuan_v1_dense": like(
        LLAMA, in_layer(attention__q_norm="self_attn.query_layernorm", attention__k_norm="self_attn.key_layernorm")
    ),
}


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

    def view(self, theirs: Tensor) -> Tensor:
        """The block as rows of ours, in the memory of their tensor."""
        if self.single:
            return theirs[None]
        if self.head is not None:
            return theirs[self.head]
        return (theirs.T if self.transposed else theirs)[self.start : self.start + self.rows]

    def place(self, part: Slices) -> Slices | tuple[int, slice]:
        """Where a part of the block, given in our rows and columns counted from its corner, lies in their tensor."""
        first, *others = part
        if self.single:
            return tuple(others)
        if self.head is not None:
            return self.head, first
        if self.inner:
            others[0] = slice(self.inner + others[0].start, self.inner + others[0].stop)
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


def names_of(spec: ModelSpec) -> Names:
    """The names of a model's family."""
    names = NAMES.get(family_of(spec), LLAMA)
    if names.parallel_norms and spec.branches == "parallel-norms":
        return like(names, names.parallel_norms)
    return names


def layout(spec: ModelSpec, held: Collection[str] = ()) -> dict[str, Mapped]:
    """Every parameter of a model, in the model's order, and where Hugging Face keeps it.

    Experts are written one by one, and looked for all in one tensor where a file holds such tensors.
    """
    names = names_of(spec)
    if any(FUSED_KEYS.fullmatch(name) for name in held):
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
    layer = re.match(r"layers\.(\d+)\.", name)
    if len(shape) == 3 and layer is not None:
        yield from _experts(names, name.removeprefix(layer[0]), layer[1], shape)
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
    if module.endswith("attention.qkv") and not (names.by_group and len(full_names) == 1):
        yield from _by_group(spec, full_names, transposed)
    else:
        joined = module.endswith("mlp.up") and names.modules.get("layers.{}.mlp.gate") == theirs and spec.gated
        yield Block(0, shape[0], full_names[0], shape[0] * joined, transposed)


def _experts(names: Names, name: str, layer: str, shape: Shape) -> Iterator[Block]:
    """A stack of the experts' matrices: each a tensor of theirs, or all of them in one."""
    theirs = str(names.modules[f"layers.{{}}.{name}"])
    if "{expert}" in theirs:
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
