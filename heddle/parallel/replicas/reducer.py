"""Data parallelism: gradients summed in buckets while the last backward still runs, optimizer state sharded (ZeRO-1).

Buckets (`bucket.py`) start their sums by themselves. With ZeRO-1 updated parameters are gathered while the next forward
pass already runs: each part of the model waits for its own parameters, just before it uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from heddle.models.chunk import Chunk
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.ownership import replicas_of, sums_of
from heddle.parallel.parameter_layout import place_of
from heddle.parallel.replicas.bucket import Bucket, Named
from heddle.parallel.replicas.compressed import EXACT, GradientCodes
from heddle.parallel.replicas.matrices import HeldParameter, held_in_ranges
from heddle.parallel.replicas.sharded import FrozenGroup, ShardedGroup
from heddle.parallel.shards import FreeParameters, Piece

# A bucket of 32 MiB of fp32 is long enough to use a link well and short enough to overlap. But each of d replicas sends
# and receives pieces of 1/d of it, and those have to be long enough, too: 4 MiB each, so that bandwidth and not latency
# decides. From eight replicas on the bucket therefore grows with them (Megatron: max(40 M, 1 M × d) elements).
BUCKET_ELEMENTS = 8 << 20
PIECE_ELEMENTS = 1 << 20


class Reducer:
    """Makes the gradients of a rank's chunks whole, and knows what the rank updates."""

    def __init__(
        self,
        chunks: dict[int, Named],
        mesh: Mesh,
        levels: Callable[[str], int],
        sharded: dict[int, list[ShardedGroup]] | None = None,
        codes: GradientCodes = EXACT,
        homes: Callable[[str], str | None] = lambda _name: None,
        even: int = 1,
    ) -> None:
        """`chunks` names the parameters of each chunk that replicas hold whole, in the order of the model.

        `levels` says how much of each they shard, `sharded` has those of which each holds a share. `codes` are those
        in which sums of gradients are sent. `homes` says where each one's optimizer state lives. What a replica updates
        begins at a multiple of `even`.
        """
        self.sharded = sharded or {}
        self.buckets: dict[int, list[Bucket]] = {}
        self.free: list[FreeParameters] = []
        for chunk, parameters in chunks.items():
            self.buckets[chunk] = []
            for (replicas, sums, zero, *_), named in _alike(parameters, mesh, levels, homes, apart=any(codes)).items():
                if replicas.size == 1 and not sums and named[0][1].dtype == torch.float32:
                    self.free.append(FreeParameters(named, mesh))
                    continue
                # backward goes through the model from its end: buckets fill one after the other
                for group in _grouped(named[::-1], bucket_elements(replicas.size)):
                    code = codes[mesh.ends in sums]
                    self.buckets[chunk].append(Bucket(group, replicas, list(sums), mesh, zero, code, even))
        self.groups = [group for groups in self.sharded.values() for group in groups]
        self.parts: list[FreeParameters | Bucket | ShardedGroup] = [
            *self.free,
            *(bucket for buckets in self.buckets.values() for bucket in buckets),
            *self.groups,
        ]
        self.pieces = [piece for part in self.parts for piece in part.pieces]
        self.kept = [kept for buckets in self.buckets.values() for bucket in buckets for kept in bucket.kept]
        in_order = [pair for chunk in sorted(chunks) for pair in chunks[chunk]]
        order = {parameter: number for number, (_, parameter) in enumerate(in_order)}
        buckets = [bucket for buckets in self.buckets.values() for bucket in buckets]
        self.first_used_first = sorted(buckets, key=lambda each: min(order[p] for _, p in each.parameters))

    def held(self) -> Iterator[HeldParameter]:
        """Every parameter that is updated on this stage, and who has which part of it: the same on all its ranks."""
        for part in self.parts:
            if isinstance(part, FrozenGroup):
                continue
            if isinstance(part, ShardedGroup):
                named = zip(part.names, part.parameters, strict=True)
                yield from held_in_ranges(named, part.starts, part.share, part.replicas)
            elif isinstance(part, Bucket) and part.zero:
                yield from held_in_ranges(part.parameters, part.starts, part.share, part.replicas)
            else:
                yield from (HeldParameter(each.name, each.local, each.place, Axis()) for each in part.pieces)

    def move(self, moved: Callable[[list[Piece]], list[Piece]]) -> None:
        """Let what is updated live elsewhere."""
        for part in self.parts:
            part.pieces = moved(part.pieces)
        self.pieces = [piece for part in self.parts for piece in part.pieces]

    def expect(self, microbatches: int) -> None:
        """A step of so many microbatches begins."""
        for bucket in self.first_used_first:
            bucket.expect(microbatches)
        for group in self.groups:
            group.expect(microbatches)

    def finish(self) -> None:
        """All gradients of the step are summed and lie at their masters when this returns."""
        buckets = [bucket for buckets in self.buckets.values() for bucket in buckets]
        for bucket in buckets:
            bucket.begin()
        for bucket in buckets:
            bucket.advance()
        for part in self.parts:
            part.finish()
        for tier in {id(piece.tier): piece.tier for piece in self.pieces if piece.tier is not None}.values():
            tier.arrive()

    def clear(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.clear()

    def share(self) -> None:
        """After the update: begin to give every replica all parameters again, those first that are used first.

        Sharded ones are gathered when they are used.
        """
        for group in self.groups:
            group.release()
        for bucket in self.first_used_first:
            bucket.start_sharing()

    def wait_for_weights(self) -> None:
        """Wait until every parameter is whole, for whoever looks at them from outside the model."""
        for bucket in self.first_used_first:
            bucket.wait_for_weights()

    def wait_before_use(self, chunks: Mapping[int, Chunk]) -> None:
        """Let every part of the chunks wait for its own parameters before it computes with them.

        Around layers, never in them: what a layer computes may be compiled, or done once more in the backward pass.
        """
        bucket_of = {p: bucket for bucket in self.first_used_first for _, p in bucket.parameters}
        for chunk in chunks.values():
            for part in chunk.parts():
                for bucket in dict.fromkeys(bucket_of[p] for p in part.parameters if p in bucket_of):
                    part.first.register_forward_pre_hook(bucket.wait_for_weights)


_Key = tuple[Axis, tuple[Axis, ...], int, str | None, frozenset[str]]


def _alike(
    parameters: Named, mesh: Mesh, levels: Callable[[str], int], homes: Callable[[str], str | None], apart: bool
) -> dict[_Key, Named]:
    """Parameters by their replicas, the axes over which their gradients need a sum before these, and what these shard.

    Those whose optimizer state lives elsewhere are by themselves: each replica then has an equal share on its device.
    With `apart`, those that all tensor ranks hold alike are by themselves: a code depends on its neighbors, and beside
    parameters that differ by rank they would come out differently on each.
    """
    groups: dict[_Key, Named] = {}
    for name, parameter in parameters:
        split = place_of(parameter).split if apart else frozenset()
        key = replicas_of(parameter, mesh), sums_of(parameter, mesh), levels(name), homes(name), split
        groups.setdefault(key, []).append((name, parameter))
    return groups


def bucket_elements(replicas: int) -> int:
    """How many gradients travel together at least, while there are more."""
    return max(BUCKET_ELEMENTS, PIECE_ELEMENTS * replicas)


def _grouped(parameters: Named, enough: int) -> list[Named]:
    groups: list[Named] = []
    size = enough
    for named in parameters:
        if size >= enough:
            groups.append([])
            size = 0
        groups[-1].append(named)
        size += named[1].numel()
    return groups
