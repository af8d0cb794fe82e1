"""Whole matrices of which ranks hold parts: each is put together on one of these ranks, changed there, and given back.

Of a matrix, tensor-parallel ranks hold slices, and replicas that shard the optimizer hold ranges of each slice. Who
needs all of it at once, as an update by Muon does, collects it in two turns: ranges over the replicas, then slices over
the tensor axis. Matrices go in rounds of as many as there are ranks, so that each rank works on one, and nobody ever
holds much more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.parallel.collectives import start_all_to_all
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import ParameterLayout, place_of

Ranges = Mapping[str, Tensor]  # flat, by the names of parameters: what this rank holds of each


@dataclass(frozen=True)
class HeldParameter:
    """A parameter as the ranks of one stage hold it."""

    name: str
    local: torch.Size  # on one tensor rank
    place: ParameterLayout
    replicas: Axis  # that hold a range each; one alone where everybody has all
    begin: int = 0  # where it begins in the flat buffer that replicas share out
    share: int = 0  # what each has of that

    @property
    def numel(self) -> int:
        """Numbers on one tensor rank."""
        return self.local.numel()

    def range_of(self, replica: int) -> slice:
        """What a replica has of the flattened local parameter."""
        if self.replicas.size == 1:
            return slice(0, self.numel)
        low = replica * self.share - self.begin
        start = min(max(low, 0), self.numel)
        return slice(start, max(start, min(low + self.share, self.numel)))

    @property
    def split_dim(self) -> int:
        """The dim that tensor ranks hold slices of: the last, where ranks that share experts hold some of the first."""
        return max(dim for dim, (own, all_) in enumerate(zip(self.local, self.place.shape, strict=True)) if own < all_)


def held_in_ranges(
    parameters: Iterable[tuple[str, Tensor]], starts: Sequence[int], share: int, replicas: Axis
) -> Iterator[HeldParameter]:
    """Of which replicas share out one flat buffer."""
    for begin, (name, parameter) in zip(starts, parameters, strict=True):
        yield HeldParameter(name, parameter.shape, place_of(parameter), replicas, begin, share)


@dataclass(frozen=True)
class OwnedMatrix:
    """A matrix, and who puts it together."""

    held: HeldParameter
    replica: int
    tensor: int


class WholeMatrices:
    """Matrices of one stage, in rounds."""

    def __init__(self, held: Iterable[HeldParameter], tensor: Axis) -> None:
        """All ranks of the stage name the same ones in the same order."""
        self.tensor = tensor
        # one exchange is for matrices that are held alike; of equal ones, which take as long, each rank has as many
        ordered = sorted(held, key=lambda each: (*self._ranks(each), each.place.shape.numel(), tuple(each.place.shape)))
        self.rounds: list[list[OwnedMatrix]] = []
        for (replicas, slices), alike in groupby(ordered, key=self._ranks):
            several = list(alike)
            for first in range(0, len(several), replicas * slices):
                taken = several[first : first + replicas * slices]
                self.rounds.append(
                    [OwnedMatrix(each, number % replicas, number // replicas) for number, each in enumerate(taken)]
                )

    def _ranks(self, held: HeldParameter) -> tuple[int, int]:
        """Replicas that hold ranges, and tensor ranks that hold slices."""
        return held.replicas.size, self.tensor.size if "tensor" in held.place.split else 1

    def changed(self, round_: Sequence[OwnedMatrix], own: Ranges, change: Callable[[str, Tensor], Tensor]) -> Ranges:
        """The ranges of this rank after each matrix of a round was changed as a whole."""
        first = round_[0].held
        replicas, (_, slices) = first.replicas, self._ranks(first)
        tensor = self.tensor if slices > 1 else Axis()
        dtype, device = next((x.dtype, x.device) for x in own.values())
        here = [each for each in round_ if each.replica == replicas.rank]
        locals_ = _collected(round_, own, replicas, dtype, device)
        mine = [each for each in here if each.tensor == tensor.rank]
        parts = _to_owners([(each.tensor, locals_[each.held.name].flatten()) for each in here], tensor, len(mine))
        made = {}
        for each, slices_of in zip(mine, parts, strict=True):
            made[each.held.name] = change(each.held.name, _joined(each.held, slices_of))
        sliced = [_slices(each.held, made[each.held.name], tensor.size) for each in mine]
        back = _from_owners(sliced, [(each.tensor, each.held.numel) for each in here], tensor, dtype, device)
        return _shared_out(
            round_, {each.held.name: x for each, x in zip(here, back, strict=True)}, replicas, dtype, device
        )


def _collected(
    round_: Sequence[OwnedMatrix], own: Ranges, replicas: Axis, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """The local parts of the matrices that this replica puts together, from everybody's ranges."""
    if replicas.size == 1:
        return {each.held.name: own[each.held.name].view(each.held.local) for each in round_}
    nothing = torch.empty(0, dtype=dtype, device=device)
    outgoing = [
        [own.get(each.held.name, nothing) for each in round_ if each.replica == r] for r in range(replicas.size)
    ]
    here = [each.held for each in round_ if each.replica == replicas.rank]
    receives = [sum(_length(held.range_of(r)) for held in here) for r in range(replicas.size)]
    sends = [sum(map(len, parts)) for parts in outgoing]
    flat = torch.cat([nothing, *(part for parts in outgoing for part in parts)])
    arrived = iter(start_all_to_all(flat, replicas, sends, receives).wait().split(receives))
    by_replica = [
        part.split([_length(held.range_of(r)) for held in here]) for r, part in enumerate(arrived)
    ]  # for each replica, its range of each matrix
    return {
        held.name: torch.cat([parts[number] for parts in by_replica]).view(held.local)
        for number, held in enumerate(here)
    }


def _shared_out(
    round_: Sequence[OwnedMatrix], locals_: Ranges, replicas: Axis, dtype: torch.dtype, device: torch.device
) -> Ranges:
    """The way back: everybody's ranges of the local parts."""
    if replicas.size == 1:
        return locals_
    nothing = torch.empty(0, dtype=dtype, device=device)
    here = [each.held for each in round_ if each.replica == replicas.rank]
    outgoing = [[locals_[held.name].flatten()[held.range_of(r)] for held in here] for r in range(replicas.size)]
    lengths = [
        [(each.held.name, _length(each.held.range_of(replicas.rank))) for each in round_ if each.replica == r]
        for r in range(replicas.size)
    ]
    receives = [sum(length for _, length in named) for named in lengths]
    flat = torch.cat([nothing, *(part for parts in outgoing for part in parts)])
    sends = [sum(map(len, parts)) for parts in outgoing]
    arrived = start_all_to_all(flat, replicas, sends, receives).wait()
    every = [pair for named in lengths for pair in named]
    return {name: x for (name, _), x in zip(every, arrived.split([length for _, length in every]), strict=True)}


def _to_owners(parts: Sequence[tuple[int, Tensor]], tensor: Axis, owned: int) -> list[tuple[Tensor, ...]]:
    """Slices to the tensor rank that puts each together; for each that is this one's, the slices of all ranks."""
    if tensor.size == 1:
        return [(x,) for _, x in parts]
    if not parts:
        return []
    outgoing = [[x for owner, x in parts if owner == rank] for rank in range(tensor.size)]
    sizes = [len(x) for x in outgoing[tensor.rank]]
    flat = torch.cat([x for own in outgoing for x in own])
    sends = [sum(map(len, own)) for own in outgoing]
    arrived = start_all_to_all(flat, tensor, sends, [sum(sizes)] * tensor.size).wait()
    by_rank = [part.split(sizes) for part in arrived.split(sum(sizes))] if owned else []
    return [tuple(part[number] for part in by_rank) for number in range(owned)]


def _from_owners(
    made: Sequence[Sequence[Tensor]],
    wanted: Sequence[tuple[int, int]],
    tensor: Axis,
    dtype: torch.dtype,
    device: torch.device,
) -> list[Tensor]:
    """The way back: of each matrix that `wanted` names by its owner and its size, this rank's slice."""
    if tensor.size == 1:
        return [slices[0] for slices in made]
    if not wanted:
        return []
    nothing = torch.empty(0, dtype=dtype, device=device)
    flat = torch.cat([nothing, *(slices[rank] for rank in range(tensor.size) for slices in made)])
    sends = [sum(len(slices[rank]) for slices in made) for rank in range(tensor.size)]
    receives = [sum(size for owner, size in wanted if owner == rank) for rank in range(tensor.size)]
    arrived = start_all_to_all(flat, tensor, sends, receives).wait()
    order = sorted(range(len(wanted)), key=lambda number: wanted[number][0])
    parts = arrived.split([wanted[number][1] for number in order])
    return [part for _, part in sorted(zip(order, parts, strict=True), key=lambda pair: pair[0])]


def _joined(held: HeldParameter, slices: Sequence[Tensor]) -> Tensor:
    """The whole matrix, of all tensor ranks' slices; what pads the last one is left out."""
    if len(slices) == 1:
        return slices[0].view(held.local)
    dim = held.split_dim
    whole = torch.cat([part.view(held.local) for part in slices], dim)
    return whole.narrow(dim, 0, held.place.shape[dim])


def _slices(held: HeldParameter, whole: Tensor, ranks: int) -> list[Tensor]:
    """The other way."""
    if ranks == 1:
        return [whole.flatten()]
    dim = held.split_dim
    missing = ranks * held.local[dim] - whole.shape[dim]
    if missing:
        whole = F.pad(whole, [0, 0] * (whole.dim() - 1 - dim) + [0, missing])
    return [part.flatten() for part in whole.chunk(ranks, dim)]


def _length(part: slice) -> int:
    return int(part.stop - part.start)
