"""Statements that compute the same from different values, wherever those lie: copies of one body.

Stores and loads of neighbors lead to most vectors. Where results go to places that lie apart, nothing asks for a
vector, and yet two copies of a long computation are worth a few inserts and extracts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from heddle.lanes.cost import is_constant
from heddle.lanes.packs.builder import Builder

DEPTHS = (3, 12)  # steps back that must be alike: few where copies go on from each other's results, or many
MOST = 64  # copies that are laid side by side


def twins(w: Builder) -> list[list[str]]:
    """Values of one shape, side by side as they come."""
    found: dict[tuple[int, ...], None] = {}
    for shapes in _shapes(w):
        groups: dict[int, list[int]] = {}
        for i, s in enumerate(w.statements):
            if s.name and w.packable[i] and not s.memory and s.op != "bitcast":
                groups.setdefault(shapes[i], []).append(i)
        for members in groups.values():
            if len(members) > 1:
                some = members[:MOST]
                found |= dict.fromkeys(w.windows(some, w.statements[some[0]].type, both_ends=False))
    return [[w.statements[m].name or "" for m in some] for some in found if w.region.independent(list(some))]


def _shapes(w: Builder) -> Iterator[list[int]]:
    """Numbers that are the same for statements of the same operations, so many steps back."""
    position = w.region.position
    used = [[position.get(v, -1 - is_constant(v)) for v in s.lanes] for s in w.statements]
    own = w.signature
    shapes, step = own, 0
    for depth in DEPTHS:
        while step < depth:
            step += 1
            seen = [*shapes, -2, -1]  # what is not made here: constants, and the rest
            following = _numbered([(mine, *[seen[k] for k in some]) for mine, some in zip(own, used, strict=True)])
            if following == shapes:
                step = max(DEPTHS)  # nothing more to tell apart
            shapes = following
        yield shapes


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    """By whom they are first equal to."""
    number: dict[Hashable, int] = {}
    return [number.setdefault(key, len(number)) for key in keys]
