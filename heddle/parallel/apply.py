"""The one function that turns the single-device model into this rank's part of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from heddle.models.chunk import Chunk
from heddle.models.experts import ExpertMLP
from heddle.models.init import materialize
from heddle.models.norms import HeadsNorm
from heddle.models.self_attention import LatentAttention
from heddle.models.transformer import GatedMLP, Layer, Transformer
from heddle.parallel.compile_cache import keep_torch_private
from heddle.parallel.memory.offload import Tiers, move_optimizer, no_tiers, offload_activations, optimizer_tier
from heddle.parallel.memory.recompute import apply_recompute
from heddle.parallel.mesh import Axis, Mesh, by_itself
from heddle.parallel.native_chunks import NativeChunks
from heddle.parallel.own import OwnChunks
from heddle.parallel.ownership import replicas_of, sums_of
from heddle.parallel.parameter_layout import place_of
from heddle.parallel.quantized import fill_quantized
from heddle.parallel.replicas.compressed import EXACT as UNCODED
from heddle.parallel.replicas.compressed import gradient_codes
from heddle.parallel.replicas.gathering import Gathering
from heddle.parallel.replicas.reducer import Reducer
from heddle.parallel.replicas.shard_memory import OnDevice, ShardMemory
from heddle.parallel.replicas.sharded import FrozenGroup, Pending, ShardedGroup
from heddle.parallel.shards import Piece, boxes_of, frozen_piece
from heddle.parallel.tensor.deferred import DeferredGradients
from heddle.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear, column_parallel
from heddle.parallel.tensor.products import EXACT, Products
from heddle.schedule import rule_of
from heddle.spec.model import ModelSpec
from heddle.spec.own import OwnModel
from heddle.spec.plan import Plan
from heddle.spec.tune import Tune


@dataclass(frozen=True)
class Parallel:
    """What one rank holds: its chunks of the model, and what makes gradients whole."""

    chunks: dict[int, Chunk]
    gradients: Reducer
    names: dict[Tensor, str]  # of the local parameters, in the whole model
    deferred: DeferredGradients  # where weight gradients wait that a schedule puts off
    frozen: list[Piece]  # what this rank holds and nobody updates, in the precision it computes with


def parallelize(
    spec: ModelSpec,
    plan: Plan,
    mesh: Mesh,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    compiled: bool = False,
    tiers: Tiers = no_tiers,
    tune: Tune | None = None,
    products: Products = EXACT,
    frozen_all: bool = False,
    even: int = 1,
) -> Parallel:
    """Build this rank's part of the model, with its initial weights; with `frozen_all`, of one that never learns.

    What a replica updates begins at a multiple of `even`.

    The order matters. What is split is split on the meta device, where nothing has memory; only then does each
    rank make its own shard real, and nothing else.
    """
    deferred = DeferredGradients()
    build = OwnChunks if isinstance(spec, OwnModel) else NativeChunks
    made: OwnChunks | NativeChunks = build(spec, plan, mesh, seed, tune, frozen_all)  # type: ignore[arg-type]
    chunks: dict[int, Chunk] = {**made.chunks}
    for chunk in chunks.values():
        if isinstance(chunk, Transformer):
            send_in_chunks(chunk, plan.tensor_chunks)
            compute_with(chunk, products)
    for chunk in chunks.values():
        if plan.pipeline > 1 and rule_of(plan.schedule).splits:
            assert isinstance(chunk, Transformer)
            defer_weight_gradients(chunk, deferred, compiled)
        if compiled:  # first: what is recomputed is then the compiled layer
            if isinstance(chunk, Transformer):
                keep_exchanges_apart(chunk)
            compile_layers(chunk)
        apply_recompute(chunk, plan, compiled)
        offload_activations(chunk, plan, tiers)
    held: set[nn.Parameter] = set()
    levels, pending = partial(zero_of, spec, plan, mesh), Pending()
    named, sharded = {}, {}
    frozen: list[Piece] = []
    for number, chunk in chunks.items():
        groups = shard(chunk, spec, plan, mesh, (device, dtype, tiers, even), pending)
        sharded[number] = groups
        own = {parameter for group in groups for parameter in group.parameters}
        materialize(chunk, device, dtype, {old: new for group in groups for old, new in group.made.items()})
        made.share(number, device, dtype)
        pairs = list(chunk.named_weights())
        # but for the embedding's, where the first rank has both ends
        whole = [(name, parameter) for name, parameter in pairs if parameter not in own | held]
        named[number] = [(name, parameter) for name, parameter in whole if parameter.requires_grad]
        frozen += [frozen_piece(name, parameter) for name, parameter in whole if not parameter.requires_grad]
        frozen += [piece for group in groups for piece in group.frozen]
        held |= {parameter for _, parameter in whole}
        for name, parameter in named[number]:
            place = place_of(parameter)
            made.fill(parameter, name, place.shape, place.offset)
    # replicas with local steps sum nothing; what they exchange instead, in codes or not, is
    # heddle.training.outer's to say
    summed = by_itself(mesh) if plan.local_steps else mesh
    codes = UNCODED if plan.local_steps else gradient_codes(plan, mesh.gradients, mesh)
    homes = partial(optimizer_tier, plan, spec)
    gradients = Reducer(named, summed, levels, sharded, codes, homes, even)
    gradients.wait_before_use(chunks)
    initialize_masters(gradients.pieces, made.fill)
    initialize_frozen(frozen, made.fill)
    gradients.move(partial(move_optimizer, plan=plan, model=spec, tiers=tiers))
    names: dict[Tensor, str] = {
        parameter: name for chunk in chunks.values() for name, parameter in chunk.named_weights()
    }
    return Parallel(chunks, gradients, names, deferred, frozen)


Fill = Callable[[Tensor, str, torch.Size, tuple[int, ...]], None]  # initial values of a box, by name, shape and offset


def zero_of(model: ModelSpec, plan: Plan, mesh: Mesh, name: str) -> int:
    """How much of a parameter replicas shard: as its layer says, at both ends of the model as the plan does.

    The last norm is too small to be worth gathering. What is outside of the blocks of somebody else's module is needed
    all the while: it stays gathered for a step.
    """
    unit = model.unit_of(name)
    if unit.isdecimal() and plan.memory_of(int(unit)).tier("weights"):
        return 3  # one replica, too, gathers its weights when they are used
    level = plan.memory_of(int(unit)).zero if unit.isdecimal() else min(plan.zero, 2 if model.own else 3)
    replicas = mesh.expert_data if ".mlp.experts." in name else mesh.gradients
    return min(level, 1) if unit == "norm" or replicas.size == 1 else level


def shard(
    chunk: Chunk,
    model: ModelSpec,
    plan: Plan,
    mesh: Mesh,
    memory: tuple[torch.device, torch.dtype, Tiers, int],
    pending: Pending,
) -> list[ShardedGroup]:
    """Shard what ZeRO-2 and 3 are for, while the chunk still lies on the meta device."""
    alike: dict[tuple[str, Axis, tuple[Axis, ...], bool, bool], list[tuple[str, nn.Parameter]]] = {}
    part_of = {parameter: part.name for part in reversed(chunk.parts()) for parameter in part.parameters}
    for name, parameter in chunk.named_weights():
        if zero_of(model, plan, mesh, name) >= (2 if parameter.requires_grad else 3):  # only ZeRO-3 shards frozen ones
            part, packed = part_of[parameter], not parameter.is_floating_point()
            key = part, replicas_of(parameter, mesh), sums_of(parameter, mesh), parameter.requires_grad, packed
            alike.setdefault(key, []).append((name, parameter))
    device, dtype, tiers, even = memory
    units: dict[str, list[ShardedGroup]] = {}
    for (unit, replicas, sums, learns, _), named in alike.items():
        name = named[0][0]
        weights = plan.memory_of(int(unit)).tier("weights") if unit.isdecimal() else None
        home = OnDevice(device) if weights is None else tiers(weights)
        state = optimizer_tier(plan, model, name)
        where = ShardMemory(device, dtype, home, None if state is None else tiers(state), even)
        kind = ShardedGroup if learns else FrozenGroup
        group = kind(named, replicas, sums, mesh, zero_of(model, plan, mesh, name), where, pending)
        units.setdefault(unit, []).append(group)
    Gathering(chunk, units, plan.prefetch)
    return [group for groups in units.values() for group in groups]


def compile_layers(chunk: Chunk) -> None:
    """Compile layer by layer: layers that do the same share one graph, however many they are.

    Only what a layer computes is compiled, not the hooks around it: gathering parameters is not for a graph.
    """
    keep_torch_private()
    for layer in chunk.layers.values():
        layer.forward = torch.compile(layer.forward)


def keep_exchanges_apart(chunk: Transformer) -> None:
    """Keep what layers exchange with other ranks out of graphs, with whoever watches it: no graph can hold it.

    Left to the compiler, the marks of the watch would be traced: a GPU's events would be made anew for every graph, and
    kept for ever.
    """
    apart = torch.compiler.disable
    for module in (part for layer in chunk.layers.values() for part in layer.modules()):
        if isinstance(module, ColumnParallelLinear | RowParallelLinear) and module.axis.size > 1:
            module.forward = apart(module.forward)  # type: ignore[method-assign]
        if isinstance(module, GatedMLP) and isinstance(module.gate, ColumnParallelLinear) and module.gate.axis.size > 1:
            module.widen = apart(module.widen)  # type: ignore[method-assign]
        if isinstance(module, HeadsNorm) and "mean" in module.__dict__:
            module.mean = apart(module.mean)  # type: ignore[method-assign]
        if isinstance(module, ExpertMLP):
            module.enter, module.leave = apart(module.enter), apart(module.leave)
            module.router.uses = apart(module.router.uses)
        if isinstance(module, LatentAttention):
            module.enter = apart(module.enter)


def initialize_masters(pieces: list[Piece], fill: Fill) -> None:
    """Give masters beside low-precision parameters the initial values that those were rounded from.

    A master that was copied from its parameter would be rounded, too, and where parameters are made from masters
    (ZeRO-2 and 3) it would not: the same job would start from other weights under other plans.
    """
    for piece in pieces:
        if piece.target is not None or piece.source:
            for offset, part in boxes_of(piece, piece.master):
                fill(part, piece.name, piece.place.shape, offset)
        if piece.target is not None and piece.source:
            piece.target.copy_(piece.master)


def initialize_frozen(pieces: list[Piece], fill: Fill) -> None:
    """Give what nobody updates its initial values; weights that a run starts from come in their place."""
    for piece in pieces:
        if piece.nf4 is not None:

            def read(values: Tensor, shape: torch.Size, offset: tuple[int, ...], name: str = piece.name) -> None:
                fill(values, name, shape, offset)

            fill_quantized(piece, read)
            continue
        piece.master.zero_()  # what only pads a vocabulary is multiplied, if only by zero
        for offset, part in boxes_of(piece, piece.master):
            fill(part, piece.name, piece.place.shape, offset)


def send_in_chunks(chunk: Transformer, chunks: int) -> None:
    """Let the layers' products go on beside what they exchange; the output layer's are in chunks of their own."""
    for module in (part for layer in chunk.layers.values() for part in layer.modules()):
        if isinstance(module, ColumnParallelLinear | RowParallelLinear):
            module.chunks = chunks


def compute_with(chunk: Transformer, products: Products) -> None:
    """Let the layers' linear modules compute their products in another way; the output layer and experts do not."""
    if products.exact:
        return
    for layer in chunk.layers.values():
        assert isinstance(layer, Layer)
        for owner, names in ((layer.attention, layer.attention.linears), (layer.mlp, ("gate", "up", "down"))):
            for name in names if not isinstance(owner, ExpertMLP) else ():
                linear = getattr(owner, name, None)
                if isinstance(linear, nn.Linear):  # alone on its axis
                    setattr(owner, name, linear := ColumnParallelLinear(linear, Axis(), sequence=False))
                if linear is not None:
                    linear.products = products
        if isinstance(layer.mlp, GatedMLP):  # both round the same input
            pair = layer.mlp.gate, layer.mlp.up
            layer.mlp.widen = partial(column_parallel, pair)  # type: ignore[arg-type, method-assign, assignment]


def defer_weight_gradients(chunk: Transformer, deferred: DeferredGradients, compiled: bool) -> None:
    """Let the layers' products of weight gradients be put off; by code that is not compiled, which has side effects."""
    for module in [module for layer in chunk.layers.values() for module in layer.modules()]:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):  # alone on its axis
                setattr(module, name, child := ColumnParallelLinear(child, Axis(), sequence=False))
            if isinstance(child, ColumnParallelLinear | RowParallelLinear):
                child.deferred = deferred
                if compiled:
                    child.forward = torch.compiler.disable(child.forward)  # type: ignore[method-assign]
        if compiled and isinstance(module, GatedMLP) and "widen" in module.__dict__:
            module.widen = torch.compiler.disable(module.widen)  # type: ignore[method-assign]
