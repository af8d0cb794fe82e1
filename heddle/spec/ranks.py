"""Which rank stands where: the one rule between a rank and its coordinates on the axes of a plan.

The axes are data (`heddle.spec.axes`). Whoever needs the ranks that share something asks `groups`; nobody else
multiplies degrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from heddle.errors import HeddleError, listing
from heddle.spec.axes import AXES, SUMMED, Coordinates, named
from heddle.spec.network import Network
from heddle.spec.network.link_codes import check_known
from heddle.spec.plan import Plan


def degrees(plan: Plan) -> tuple[int, ...]:
    """How many places each axis has."""
    return tuple(getattr(plan, axis) for axis in AXES)


def split_in_words(plan: Plan) -> str:
    """The degrees, in the order in which people write them: "tensor 2 × pipeline 2 × data 4"."""
    split = " × ".join(f"{axis} {getattr(plan, axis)}" for axis in named(plan))
    split = f"{split} with expert {plan.expert}" if plan.expert > 1 else split
    return f"{split} with expert_tensor 1" if plan.whole_experts else split


def world_in_words(plan: Plan) -> str:
    """How many ranks a plan has, and why: "tensor × pipeline × data = 2 × 2 × 4 = 16"."""
    axes = named(plan)
    return f"{' × '.join(axes)} = {' × '.join(str(getattr(plan, axis)) for axis in axes)} = {plan.world}"


def coordinates(plan: Plan, rank: int) -> Coordinates:
    """Where a rank stands."""
    places = []
    for degree in degrees(plan):
        rank, place = divmod(rank, degree)
        places.append(place)
    return Coordinates(*places)


def rank_of(plan: Plan, place: Coordinates) -> int:
    """The rank that stands there."""
    rank = 0
    for degree, coordinate in zip(reversed(degrees(plan)), reversed(place), strict=True):
        rank = rank * degree + coordinate
    return rank


def places(plan: Plan) -> Iterator[Coordinates]:
    """All of them, by rank."""
    for outermost_first in product(*(range(degree) for degree in reversed(degrees(plan)))):
        yield Coordinates(*reversed(outermost_first))


def groups(plan: Plan, *axes: str) -> list[list[int]]:
    """The ranks that differ only in their coordinates on these axes, group by group, each by rank."""
    found: dict[Coordinates, list[int]] = {}
    for rank, place in enumerate(places(plan)):
        found.setdefault(place._replace(**dict.fromkeys(axes, 0)), []).append(rank)
    return list(found.values())


def expert_groups(plan: Plan) -> list[list[int]]:
    """The ranks that share the experts of a layer: neighbors among those of data × context, or of tensor, too."""
    return two_dims(_seeing_others(plan), plan.expert)[0]


def expert_data_groups(plan: Plan) -> list[list[int]]:
    """Of these, the ranks that hold the same experts: they sum the gradients of these."""
    return two_dims(_seeing_others(plan), plan.expert)[1]


def _seeing_others(plan: Plan) -> list[list[int]]:
    """Ranks that see different tokens where experts are."""
    return groups(plan, *(["tensor"] if plan.whole_experts else []), *SUMMED)


def two_dims(members: list[list[int]], inner: int) -> tuple[list[list[int]], list[list[int]]]:
    """Each group cut into so many neighbors; and who stands in the same place of each of these."""
    near = [some[start : start + inner] for some in members for start in range(0, len(some), inner)]
    return near, [some[place::inner] for some in members for place in range(inner)]


def replicas(plan: Plan) -> list[list[int]]:
    """The ranks of each replica of the whole model: those that differ in anything but the data axis."""
    every = list(places(plan))
    return [[rank for rank, place in enumerate(every) if place.data == number] for number in range(plan.data)]


def stage_of(plan: Plan, rank: int) -> int:
    """The pipeline stage of a rank."""
    return coordinates(plan, rank).pipeline


def places_of(plan: Plan, network: Network | None) -> tuple[str, ...]:
    """The group of the network that each rank is in; none where no link has a code of its own."""
    if not plan.codes:
        return ()
    check_known(plan, network)
    assert network is not None
    found = tuple(network.group_of[device] for device in plan.devices or range(plan.world))
    for ranks in groups(plan, "tensor"):
        if len(here := {found[rank] for rank in ranks}) > 1:
            raise HeddleError(
                f"plan.codes cannot be combined with tensor ranks in {listing(sorted(here))}.",
                "Tensor ranks hold identical activations, which must be compressed identically.",
                "Let plan.devices keep the tensor ranks of a place in one group, or leave codes out.",
            )
    return found


def stage_pairs(plan: Plan) -> set[tuple[int, int]]:
    """Pairs of stages of which the first sends messages to the second: those of chunks that follow each other."""
    stages = {chunk: stage for stage in range(plan.pipeline) for chunk in plan.chunks_of(stage)}
    ahead = {(stages[chunk], stages[chunk + 1]) for chunk in range(plan.chunks - 1)}
    return {pair for a, b in ahead if a != b for pair in ((a, b), (b, a))}


def disjoint(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Pairs of ranks or stages in few lists, in none of which one occurs twice: those of a list can meet at once."""
    lists: list[list[tuple[int, int]]] = []
    for pair in pairs:
        free = (some for some in lists if not any(set(pair) & set(other) for other in some))
        found = next(free, None)
        if found is None:
            lists.append(found := [])
        found.append(pair)
    return lists


def ranks_per_stage(plan: Plan) -> int:
    """How many ranks share the work of one stage."""
    return prod(degrees(plan)) // plan.pipeline
