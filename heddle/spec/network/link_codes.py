"""Codes by link: which links of a network carry numbers in fewer bits, and which as they are.

A plan's `compress_gradients` and `compress_activations` hold for all links. Its [[plan.codes]] say otherwise for some:
those between groups, those inside one, or those that are named. What is more particular counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, NamedTuple, Protocol

from heddle.errors import HeddleError, nearest, shorten
from heddle.spec.network.compression import BITS, ActivationCode, GradientCode
from heddle.spec.network.network import Network
from heddle.spec.tables import WHERE_SAID

What = Literal["gradients", "activations"]


@dataclass(frozen=True, kw_only=True)
class LinkCodes:
    """How some links carry gradients and activations; what is left out is as for all links."""

    links: Literal["between", "inside"] = "between"  # groups, or inside one
    groups: tuple[str, ...] = field(default=(), metadata=WHERE_SAID)  # of which: two, or one; empty: of all
    gradients: GradientCode | None = None
    activations: ActivationCode | None = None

    def __post_init__(self) -> None:
        size = 2 if self.links == "between" else 1
        if self.groups and (len(self.groups) != size or len(set(self.groups)) < size):
            raise HeddleError(
                f"plan.codes has links = {self.links!r} and groups = {shorten(list(self.groups))}.",
                "Links lead between two groups, or lie inside one.",
                f"Name {'two groups' if size == 2 else 'one group'}, or leave groups out, for all of them.",
            )
        if self.gradients is None and self.activations is None:
            raise HeddleError(
                f"plan.codes sets neither gradients nor activations for the {self.words}.",
                "It sets how they compress gradients, activations or both.",
                "For example gradients = 'int8'.",
            )

    @property
    def words(self) -> str:
        """Which links these are."""
        if self.links == "between":
            return f"links between {' and '.join(self.groups) or 'groups'}"
        return f"links inside {self.groups[0] if self.groups else 'groups'}"


class Coded(Protocol):
    """What of a plan says how links carry numbers."""

    @property
    def compress_gradients(self) -> str: ...
    @property
    def compress_activations(self) -> str: ...
    @property
    def codes(self) -> tuple[LinkCodes, ...]: ...


class AxisCodes(NamedTuple):
    """How one replica sends a sum to the others: its part in the code of the link to each, the sum in one for all.

    All read the same bytes of a sum, so that all have the same numbers: it is in the code of the narrowest link.
    """

    to: tuple[str, ...]  # each of them; its own entry is not used
    told: str


def check_codes(codes: Sequence[LinkCodes]) -> None:
    """Refuse two tables for the same links."""
    said = set()
    for each in codes:
        key = each.links, frozenset(each.groups)
        if key in said:
            raise HeddleError(
                f"plan.codes has two tables for the {each.words}.", "One of them would be ignored.", "Remove one."
            )
        said.add(key)


def check_known(plan: Coded, network: Network | None) -> None:
    """Refuse codes of groups that are not there."""
    for each in plan.codes:
        if network is None:
            raise HeddleError(
                f"plan.codes is for the {each.words}, and the job has no [network].",
                "A network says which ranks are in which group.",
                "Add a [network], or use compress_gradients and compress_activations, which hold for all links.",
            )
        names = [group.name for group in network.groups]
        if unknown := [name for name in each.groups if name not in names]:
            raise HeddleError(
                f"plan.codes names the group {shorten(unknown[0])}.",
                "Groups are those of the [network].",
                nearest(unknown[0], names),
            )


def code_of(plan: Coded, what: What, one: str, two: str) -> str:
    """In which code a link between two groups, or inside one, carries something."""
    found, links = str(getattr(plan, f"compress_{what}")), "inside" if one == two else "between"
    for each in sorted(plan.codes, key=lambda each: bool(each.groups)):  # what is more particular is said last
        code = getattr(each, what)
        if each.links == links and code is not None and each.groups in ((), (one,), (one, two), (two, one)):
            found = code
    return found


def codes_used(plan: Coded, what: What) -> tuple[str, ...]:
    """All codes but "none" that any link may use, those of most bits first."""
    said = [str(getattr(plan, f"compress_{what}")), *(getattr(each, what) for each in plan.codes)]
    return tuple(sorted({code for code in said if code not in (None, "none")}, key=lambda code: -BITS[code]))


def narrowest(codes: Iterator[str] | Sequence[str]) -> str:
    """The code of fewest bits."""
    return min(codes, key=lambda code: BITS.get(code, 32), default="none")


def axis_codes(plan: Coded, places: Sequence[str], ranks: Sequence[int], rank: int) -> AxisCodes | None:
    """Of the rank at a place among those that sum gradients; None where all of them send numbers as they are.

    `places` are the groups of all ranks of the world; empty where nobody knows, and all links are alike.
    """

    def code(a: int, b: int) -> str:
        return code_of(plan, "gradients", places[a], places[b]) if places else plan.compress_gradients

    told = narrowest([code(a, b) for a, b in combinations(ranks, 2)])
    if told == "none":
        return None
    return AxisCodes(
        tuple(told if other == rank else code(ranks[rank], ranks[other]) for other in range(len(ranks))), told
    )


def alike(codes: Sequence[AxisCodes | None], size: int) -> AxisCodes | None:
    """Of those that must come to the same numbers over other links: the narrowest code, for all of them."""
    told = narrowest([each.told for each in codes if each is not None])
    return None if told == "none" else AxisCodes((told,) * size, told)
