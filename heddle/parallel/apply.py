"""The one function that turns the single-device model into this rank's part of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heddle.models.init import initialize_parameter, materialize
from heddle.models.transformer import Attention, Dropout, GatedMLP, Layer, Microbatch, Transformer
from heddle.parallel.collectives import take_slice
from heddle.parallel.memory.recompute import apply_recompute
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.parameter_layout import ParameterLayout, place_of, set_place
from heddle.parallel.replicas.reducer import Reducer
from heddle.parallel.shards import Piece, boxes_of
from heddle.parallel.tensor.deferred import DeferredGradients
from heddle.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear, column_parallel
from heddle.parallel.tensor.vocabulary import SplitVocabulary, VocabularyParallelEmbedding
from heddle.schedule import rule_of
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan

if TYPE_CHECKING:
    from heddle.parallel.replicas.fully_sharded import ShardedParameters


@dataclass(frozen=True)
class Parallel:
    """What one rank holds: its chunks of the model, and what makes gradients whole."""

    chunks: dict[int, Transformer]
    gradients: Reducer | ShardedParameters
    names: dict[Tensor, str]  # of the local parameters, in the whole model
    deferred: DeferredGradients  # where weight gradients wait that a schedule puts off


def parallelize(
    spec: ModelSpec, plan: Plan, mesh: Mesh, device: torch.device, dtype: torch.dtype, seed: int, compiled: bool = False
) -> Parallel:
    """Build this rank's part of the model, with its initial weights.

    The order matters. What is split is split on the meta device, where nothing has memory; only then does each
    rank make its own shard real, and nothing else.
    """
    chunks, deferred = build_chunks(spec, plan, mesh), DeferredGradients()
    if mesh.tensor.size > 1:
        for chunk in chunks.values():
            split_over_tensor(chunk, mesh.tensor, plan.sequence)
    for chunk in chunks.values():
        if plan.pipeline > 1 and rule_of(plan.schedule).splits:
            defer_weight_gradients(chunk, deferred, compiled)
        if compiled:  # first: what is recomputed is then the compiled layer
            compile_layers(chunk)
        apply_recompute(chunk, plan)
    sharded = plan.zero >= 2 and mesh.data.size > 1
    if sharded:
        from heddle.parallel.replicas.fully_sharded import ShardedParameters, shard  # slow to import, and seldom needed

        for chunk in chunks.values():
            shard(chunk, mesh, plan.zero, dtype, device)
    named: dict[int, list[tuple[str, nn.Parameter]]] = {}
    held: set[nn.Parameter] = set()
    for number, chunk in chunks.items():
        # sharded parameters are their own masters; what computes with them casts them
        materialize(chunk, device, torch.float32 if sharded else dtype)
        mark_tied(chunk, plan)
        share_tied(chunk, chunks)
        named[number] = [
            (global_name(spec, name), parameter)
            for name, parameter in chunk.named_parameters()
            if parameter not in held  # the embedding's, where this rank has both ends
        ]
        held |= {parameter for _, parameter in named[number]}
        for name, parameter in named[number]:
            place = place_of(parameter)
            local = parameter.to_local() if sharded else parameter  # type: ignore[attr-defined]
            initialize_parameter(local, name, spec, seed, place.shape, place.offset)
    parameters = [pair for pairs in named.values() for pair in pairs]
    if sharded:
        gradients: Reducer | ShardedParameters = ShardedParameters(chunks.values(), parameters, mesh)
    else:
        gradients = Reducer(named, mesh, plan.zero)
        initialize_masters(gradients.pieces, spec, seed)
    return Parallel(chunks, gradients, {parameter: name for name, parameter in parameters}, deferred)


def compile_layers(chunk: Transformer) -> None:
    """Compile layer by layer: layers that do the same share one graph, however many they are.

    Only what a layer computes is compiled, not the hooks around it: gathering parameters is not for a graph.
    """
    for layer in chunk.layers.values():
        layer.forward = torch.compile(layer.forward)


def initialize_masters(pieces: list[Piece], spec: ModelSpec, seed: int) -> None:
    """Give masters beside low-precision parameters the initial values that those were rounded from.

    A master that was copied from its parameter would be rounded, too, and where parameters are their own masters
    (ZeRO-2 and 3) it would not: the same job would start from other weights under other plans.
    """
    for piece in pieces:
        if piece.target is not None:
            for offset, part in boxes_of(piece, piece.master):
                initialize_parameter(part, piece.name, spec, seed, piece.place.shape, offset)


def build_chunks(spec: ModelSpec, plan: Plan, mesh: Mesh) -> dict[int, Transformer]:
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
    return chunks


def split_over_tensor(chunk: Transformer, axis: Axis, sequence: bool) -> None:
    """Columns of the first product of attention and MLP, rows of the second; vocabulary rows at both ends."""

    def swap(owner: nn.Module, name: str, kind: type[ColumnParallelLinear | RowParallelLinear]) -> None:
        setattr(owner, name, kind(getattr(owner, name), axis, sequence))

    for layer in chunk.layers.values():
        assert isinstance(layer, Layer)
        swap(layer.attention, "qkv", ColumnParallelLinear)
        swap(layer.attention, "out", RowParallelLinear)
        swap(layer.mlp, "up", ColumnParallelLinear)
        if isinstance(layer.mlp, GatedMLP):
            swap(layer.mlp, "gate", ColumnParallelLinear)
            pair = layer.mlp.gate, layer.mlp.up
            layer.mlp.widen = partial(column_parallel, pair)  # type: ignore[arg-type, method-assign, assignment]
        swap(layer.mlp, "down", RowParallelLinear)
    if chunk.embed is not None:
        chunk.embed.tokens = VocabularyParallelEmbedding(chunk.embed.tokens, axis)  # type: ignore[assignment]
        if sequence:
            chunk.embed.dropout = SlicedDropout(chunk.embed.dropout, axis)  # type: ignore[assignment]
    if chunk.head is not None:
        swap(chunk, "head", ColumnParallelLinear)
        chunk.vocabulary = SplitVocabulary(axis, chunk.spec.vocab, sequence)
    chunk.tie()
    mark_partial(chunk, sequence)


def defer_weight_gradients(chunk: Transformer, deferred: DeferredGradients, compiled: bool) -> None:
    """Let the layers' products of weight gradients be put off; by code that is not compiled, which has side effects."""
    for module in list(chunk.layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):  # alone on its axis
                setattr(module, name, child := ColumnParallelLinear(child, Axis(), sequence=False))
            if isinstance(child, ColumnParallelLinear | RowParallelLinear):
                child.deferred = deferred
                if compiled:
                    child.forward = torch.compiler.disable(child.forward)  # type: ignore[method-assign]
        if compiled and isinstance(module, GatedMLP) and "widen" in module.__dict__:
            module.widen = torch.compiler.disable(module.widen)  # type: ignore[method-assign]


def mark_partial(chunk: Transformer, sequence: bool) -> None:
    """Note which gradients each tensor-parallel rank has only a part of.

    Norms of queries and keys see this rank's heads only. With sequence parallelism all norms, and the biases added
    after a row-parallel product, see this rank's tokens only.
    """
    for module in chunk.modules():
        partial: list[nn.Parameter | None] = []
        if isinstance(module, Attention) and module.q_norm is not None and module.k_norm is not None:
            partial += [module.q_norm.weight, module.k_norm.weight]
        if sequence and isinstance(module, Layer):
            partial += [*module.attention_norm.parameters(), *module.mlp_norm.parameters()]
        if sequence and isinstance(module, RowParallelLinear):
            partial.append(module.bias)
        if sequence and isinstance(module, Transformer) and module.norm is not None:
            partial += [*module.norm.parameters()]
        for parameter in partial:
            if parameter is not None:
                set_place(parameter, ParameterLayout(parameter.shape, (0,) * parameter.dim(), partial=True))


def mark_tied(chunk: Transformer, plan: Plan) -> None:
    """Note the embedding weight that the first and the last stage share; the last one's is the copy."""
    if not chunk.spec.tied or plan.last_rank == 0:
        return
    weights = []
    if chunk.embed is not None:
        weights.append((chunk.embed.tokens.weight, False))
    if chunk.head is not None:
        weights.append((chunk.head.weight, True))
    for weight, copy in weights:
        set_place(weight, replace(place_of(weight), tied=True, copy=copy))


def share_tied(chunk: Transformer, chunks: dict[int, Transformer]) -> None:
    """Where a rank has both ends of the model in two chunks, a tied output layer is its embedding's weight."""
    first = chunks.get(0)
    if chunk.spec.tied and chunk.head is not None and first is not None and first is not chunk:
        weight = first.embed.tokens.weight  # type: ignore[union-attr]
        chunk.head.weight = weight
        set_place(weight, replace(place_of(weight), uses=2))


def global_name(spec: ModelSpec, name: str) -> str:
    """The name a parameter has in the whole model: a tied output layer is the embedding."""
    return "embed.tokens.weight" if spec.tied and name == "head.weight" else name


class SlicedDropout(nn.Module):
    """Where sequence parallelism begins: from all tokens to this rank's slice, then dropout of the slice."""

    def __init__(self, dropout: Dropout, axis: Axis) -> None:
        super().__init__()
        self.dropout, self.axis = dropout, axis

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        return self.dropout(take_slice(x, self.axis), batch)
