"""Heddle's transformer as one pipeline rank's chunks: split over tensor, context and expert ranks, without memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from heddle.models.experts import ExpertMLP
from heddle.models.init import initialize_parameter
from heddle.models.lora import adapt
from heddle.models.norms import HeadsNorm
from heddle.models.self_attention import LatentAttention
from heddle.models.transformer import Attention, Dropout, GatedMLP, Layer, Microbatch, Transformer
from heddle.parallel.collectives import all_reduce, sum_everywhere, take_slice
from heddle.parallel.context.attention import share_context
from heddle.parallel.experts.exchange import share_experts
from heddle.parallel.experts.tensor import split_experts
from heddle.parallel.experts.whole import keep_experts_whole
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.parameter_layout import place_of, set_place, split_parameter
from heddle.parallel.tensor.latent import latent_parameters, split_latent
from heddle.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear, column_parallel
from heddle.parallel.tensor.vocabulary import SplitVocabulary, VocabularyParallelEmbedding
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.tune import Tune


class NativeChunks:
    """This pipeline rank's chunks of Heddle's own transformer, split but without memory, and how its weights begin."""

    def __init__(
        self, spec: ModelSpec, plan: Plan, mesh: Mesh, seed: int, tune: Tune | None, frozen_all: bool = False
    ) -> None:
        self.spec, self.seed = spec, seed
        self.chunks = build_chunks(spec, plan, mesh, tune)
        if frozen_all:
            for chunk in self.chunks.values():
                chunk.requires_grad_(False)
        if mesh.tensor.size > 1:
            for chunk in self.chunks.values():
                split_over_tensor(chunk, mesh.tensor, plan.sequence, plan.whole_experts)
        layers = [layer for chunk in self.chunks.values() for layer in chunk.layers.values()]
        if mesh.context.size > 1:
            for layer in layers:
                share_context(layer.attention, mesh, plan.context_exchange)
        # a sample uses experts by its tokens on all ranks
        apart = [mesh.tensor] * plan.whole_experts + [mesh.context] * (mesh.context.size > 1)
        for mlp in (layer.mlp for layer in layers if isinstance(layer.mlp, ExpertMLP)):
            if apart:
                mlp.router.uses = partial(summed_over, axes=apart)
            if mesh.expert.size > 1 or plan.whole_experts:
                share_experts(mlp.experts, mesh.expert)
        for chunk in self.chunks.values():
            mark_tied(chunk, plan)

    def share(self, number: int, _device: torch.device, _dtype: torch.dtype) -> None:
        """Once a chunk has memory: let it share what another one of this rank has."""
        share_tied(self.chunks[number], self.chunks)

    def fill(self, target: Tensor, name: str, shape: torch.Size, offset: tuple[int, ...]) -> None:
        """Give a box of a parameter its initial value."""
        initialize_parameter(target, name, self.spec, self.seed, shape, offset)


def summed_over(x: Tensor, axes: list[Axis]) -> Tensor:
    """The sum over several axes."""
    for axis in axes:
        x = all_reduce(x, axis)
    return x


def build_chunks(spec: ModelSpec, plan: Plan, mesh: Mesh, tune: Tune | None = None) -> dict[int, Transformer]:
    """This pipeline rank's chunks, without memory."""
    chunks = {}
    for number in plan.chunks_of(mesh.pipeline.rank):
        with torch.device("meta"):
            chunks[number] = Transformer(
                spec,
                layers=plan.layers_of(number, spec.layers),
                first=number == 0,
                last=number == plan.chunks - 1,
            )
            if tune is not None:
                adapt(chunks[number], tune)
    return chunks


def split_over_tensor(chunk: Transformer, axis: Axis, sequence: bool, whole_experts: bool = False) -> None:
    """Columns of the first product of attention and MLP, rows of the second; vocabulary rows at both ends."""

    def swap(owner: nn.Module, name: str, kind: type[ColumnParallelLinear | RowParallelLinear]) -> None:
        setattr(owner, name, kind(getattr(owner, name), axis, sequence))

    def split_mlp(mlp: nn.Module) -> None:
        swap(mlp, "up", ColumnParallelLinear)
        if isinstance(mlp, GatedMLP):
            swap(mlp, "gate", ColumnParallelLinear)
            mlp.widen = partial(column_parallel, (mlp.gate, mlp.up))  # type: ignore[arg-type, method-assign, assignment]
        swap(mlp, "down", RowParallelLinear)

    for layer in chunk.layers.values():
        assert isinstance(layer, Layer)
        if isinstance(layer.attention, LatentAttention):
            split_latent(layer.attention, axis, sequence)
        else:
            swap(layer.attention, "qkv", ColumnParallelLinear)
        swap(layer.attention, "out", RowParallelLinear)
        split_by_head(layer.attention, axis)
        if not isinstance(layer.mlp, ExpertMLP):
            split_mlp(layer.mlp)
        elif whole_experts:
            keep_experts_whole(layer.mlp, axis, sequence, split_mlp)
        else:
            split_experts(layer.mlp, axis, sequence)
    if chunk.embed is not None:
        chunk.embed.tokens = VocabularyParallelEmbedding(chunk.embed.tokens, axis)  # type: ignore[assignment]
        if sequence:
            chunk.embed.dropout = SlicedDropout(chunk.embed.dropout, axis)  # type: ignore[assignment]
    if chunk.head is not None:
        swap(chunk, "head", ColumnParallelLinear)
        chunk.vocabulary = SplitVocabulary(axis, chunk.spec.vocab, sequence)
    chunk.tie()
    mark_partial(chunk, sequence)


def split_by_head(attention: Attention, axis: Axis) -> None:
    """What else each head has of its own: norms of queries and keys, and scores of looking at nothing."""
    if attention.sinks is not None:
        attention.sinks = split_parameter(attention.sinks, 0, axis.rank, axis.size)
    for norm in (attention.q_norm, attention.k_norm):
        if isinstance(norm, HeadsNorm):
            if norm.weight is not None:
                norm.weight = split_parameter(norm.weight, 0, axis.rank, axis.size)
            if norm.together:
                norm.mean = partial(mean_over_heads, axis=axis)  # type: ignore[method-assign]


def mean_over_heads(x: Tensor, axis: Axis) -> Tensor:
    """The mean over all heads of each token, of which every rank has some, [batch, heads, sequence, head size]."""
    return sum_everywhere(x.mean((1, 3), keepdim=True) / axis.size, axis)


def mark_partial(chunk: Transformer, sequence: bool) -> None:
    """Note which gradients each tensor-parallel rank has only a part of.

    Norms of queries and keys see this rank's heads only. With sequence parallelism all norms, the product that makes
    latents, and the biases added after a row-parallel product, see this rank's tokens only.
    """
    for module in chunk.modules():
        partial: list[nn.Parameter | None] = []
        if isinstance(module, Attention):
            shared = [norm for norm in (module.q_norm, module.k_norm) if not isinstance(norm, HeadsNorm | None)]
            partial += [parameter for norm in shared for parameter in norm.parameters()]
        if sequence and isinstance(module, LatentAttention):
            partial += latent_parameters(module)
        if sequence and isinstance(module, Layer):
            norms = (module.attention_norm, module.attention_after_norm, module.mlp_norm, module.mlp_after_norm)
            partial += [parameter for norm in norms if norm is not None for parameter in norm.parameters()]
        if sequence and isinstance(module, RowParallelLinear):
            partial.append(module.bias)
        if sequence and isinstance(module, Transformer) and module.norm is not None:
            partial += [*module.norm.parameters()]
        for parameter in partial:
            if parameter is not None:
                set_place(parameter, replace(place_of(parameter), partial=frozenset({"tensor"})))


class SlicedDropout(nn.Module):
    """Where sequence parallelism begins: from all tokens to this rank's slice, then dropout of the slice."""

    def __init__(self, dropout: Dropout, axis: Axis) -> None:
        super().__init__()
        self.dropout, self.axis = dropout, axis

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        return self.dropout(take_slice(x, self.axis), batch)


def mark_tied(chunk: Transformer, plan: Plan) -> None:
    """Note the embedding weight that the first and the last stage share."""
    if not chunk.spec.tied or plan.last_rank == 0:
        return
    weights: list[Tensor] = []
    if chunk.embed is not None:
        weights.append(chunk.embed.tokens.weight)
    if chunk.head is not None:
        weights.append(chunk.head.weight)
    for weight in weights:
        set_place(weight, replace(place_of(weight), partial=place_of(weight).partial | {"ends"}))


def share_tied(chunk: Transformer, chunks: dict[int, Transformer]) -> None:
    """Where a rank has both ends of the model in two chunks, a tied output layer is its embedding's weight."""
    first = chunks.get(0)
    if chunk.spec.tied and chunk.head is not None and first is not None and first is not chunk:
        weight = first.embed.tokens.weight  # type: ignore[union-attr]
        chunk.head.weight = weight
        set_place(weight, replace(place_of(weight), uses=2))
