"""Statements that compute the same from different values, wherever those lie: copies of one body.

Stores and loads of neighbors lead to most vectors. Where results go to places that lie apart, nothing asks for a
vector, and yet two copies of a long computation are worth a few inserts and extracts.
"""

from __future__ import annotations

from collections.abc import Hashable

from heddle.lanes.cost import is_constant
from heddle.lanes.packs.builder import Builder

DEPTHS = (3, 12)  # steps back that must be alike: few where copies go on from each other's results, or many
MOST = 64  # copies that are laid side by side


def twins(w: Builder) -> list[list[str]]:
    """Values of one shape, side by side as they come."""
    found: dict[tuple[int, ...], None] = {}
    for depth in DEPTHS:
        for members in _alike(w, depth):
            found |= dict.fromkeys(w.windows(members, w.statements[members[0]].type, both_ends=False))
    return [[w.statements[m].name or "" for m in some] for some in found if w.region.independent(list(some))]


def _alike(w: Builder, depth: int) -> list[list[int]]:
    """Statements of the same operations, so many steps back."""
    position, lanes = w.region.position, [s.lanes for s in w.statements]
    shapes: list[Hashable] = list(w.signature)
    for _ in range(depth):
        numbers: dict[Hashable, int] = {}
        known = {v: shapes[at] for v, at in position.items()}
        shapes = [
            numbers.setdefault((own, *(known.get(v, is_constant(v)) for v in used)), len(numbers))
            for own, used in zip(w.signature, lanes, strict=True)
        ]
    groups: dict[Hashable, list[int]] = {}
    for i, s in enumerate(w.statements):
        if s.name and w.packable[i] and not s.memory and s.op != "bitcast":
            groups.setdefault(shapes[i], []).append(i)
    return [members[:MOST] for members in groups.values() if len(members) > 1]
