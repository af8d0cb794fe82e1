"""ZeRO-2 and ZeRO-3 by PyTorch's own `fully_shard`: gradients, and with 3 parameters too, live in shards.

Shards are of the first dim over the data axis, on top of whatever box tensor parallelism gave this rank.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from heddle.models.transformer import Transformer
from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh
from heddle.parallel.parameter_layout import ParameterLayout, place_of, set_place
from heddle.parallel.shards import Piece, make_piece

Named = list[tuple[str, nn.Parameter]]


def shard(chunk: Transformer, mesh: Mesh, zero: int, dtype: torch.dtype, device: torch.device) -> None:
    """Shard a chunk that still lies on the meta device, layer by layer."""
    places = {name: place_of(parameter) for name, parameter in chunk.named_parameters()}
    assert mesh.data.group is not None
    with unset_fake_temporarily():  # a dry run's tensors have no numbers, but ranks are numbers
        replicas = DeviceMesh.from_group(mesh.data.group, device.type, mesh_dim_names=("data",))
    policy = MixedPrecisionPolicy(param_dtype=None if dtype == torch.float32 else dtype, reduce_dtype=torch.float32)
    for layer in chunk.layers.values():
        fully_shard(layer, mesh=replicas, mp_policy=policy, reshard_after_forward=zero == 3)
    fully_shard(chunk, mesh=replicas, mp_policy=policy, reshard_after_forward=zero == 3)
    for module in chunk.modules():
        if isinstance(module, FSDPModule):
            # replicas add their gradients up, as in the other modes; gloo knows no other scaled sum
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    for name, parameter in chunk.named_parameters():
        place = places[name]
        rows = -(-parameter.shape[0] // mesh.data.size) * mesh.data.rank
        offset = (place.offset[0] + min(rows, parameter.shape[0]), *place.offset[1:])
        set_place(parameter, ParameterLayout(place.shape, offset, split=place.split, partial=place.partial))


class ShardedParameters:
    """What one replica updates when every replica keeps a shard: its shards, which are their own masters."""

    def __init__(self, chunks: Iterable[Transformer], parameters: Named, mesh: Mesh) -> None:
        self.tensor = mesh.tensor
        for module in (module for chunk in chunks for module in chunk.modules() if isinstance(module, FSDPModule)):
            # A first use moves shards that need padding to their final memory; masters must not be taken before.
            module.unshard()
            module.reshard()
        self.held: list[tuple[nn.Parameter, Piece]] = []
        for name, parameter in parameters:
            assert isinstance(parameter, DTensor)
            local = parameter.to_local().detach()
            set_place(local, place_of(parameter))
            if local.numel():
                self.held.append((parameter, make_piece(name, local, 0, local.numel(), mesh, sharded=True)))
        self.pieces = [piece for _, piece in self.held]

    def expect(self, microbatches: int) -> None:
        """Nothing to prepare: `fully_shard` sums after every backward."""

    def finish(self) -> None:
        """Let the masters see their shards of the gradients."""
        for parameter, piece in self.held:
            assert isinstance(parameter.grad, DTensor)
            gradient = parameter.grad.to_local()
            if piece.place.partial:
                all_reduce(gradient, self.tensor)
            piece.master.grad = gradient.reshape(-1)

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter, piece in self.held:
            parameter.grad = piece.master.grad = None

    def share(self) -> None:
        """Nothing to do: parameters are gathered when they are used."""
