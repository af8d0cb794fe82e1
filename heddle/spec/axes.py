"""The axes of the mesh, as data: one record for each, read by everything that has to know what an axis is.

To add one, add a record to AXIS_TABLE and a field of the same name to `Coordinates`, to `heddle.spec.plan.Plan`, to
`heddle.parallel.mesh.Mesh` and to `heddle.cost.work.Work`; `docs/contribute/add-an-axis.md` has the whole recipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Coordinates(NamedTuple):
    """The position of a rank on every axis, innermost first."""

    tensor: int = 0
    context: int = 0
    data: int = 0
    pipeline: int = 0

    def __str__(self) -> str:
        return ", ".join(
            f"{axis} {getattr(self, axis)}" for axis in sorted(self._fields) if axis in USUAL or getattr(self, axis)
        )


@dataclass(frozen=True)
class AxisRule:
    """What ranks along one axis share, and what they have each for themselves."""

    name: str
    letter: str  # for plots and short names
    divides: str  # what its ranks split among themselves
    replicated: bool  # whether every rank along it has all parameters
    # Whether its ranks see different samples or tokens: then each has a part of every gradient and of the loss, and
    # ZeRO may shard over them. Otherwise they have the same loss.
    summed: bool
    named_at_one: bool = False  # whether people name its degree even where that is 1


# Innermost first: neighbors on the first axis talk most and sit closest (PTD-P §3.1, Takeaway 1).
AXIS_TABLE = (
    AxisRule(
        "tensor",
        "t",
        "heads, columns and rows of every layer, the vocabulary",
        replicated=False,
        summed=False,
        named_at_one=True,
    ),
    AxisRule("context", "c", "the tokens of each sample", replicated=True, summed=True),
    AxisRule("data", "d", "the samples of a batch", replicated=True, summed=True, named_at_one=True),
    AxisRule("pipeline", "p", "layers", replicated=False, summed=False, named_at_one=True),
)
AXES = tuple(axis.name for axis in AXIS_TABLE)
WRITTEN = tuple(axis.name for axis in sorted(AXIS_TABLE, key=lambda axis: axis.replicated))  # as people write them
FOLDED = "expert"  # whose ranks are those of SUMMED once more, in groups: they split a layer's experts
DEGREES = (*WRITTEN, FOLDED)  # all that a plan has
SUMMED = tuple(axis.name for axis in AXIS_TABLE if axis.summed)  # over all of them together gradients are summed
USUAL = tuple(axis.name for axis in AXIS_TABLE if axis.named_at_one)
assert Coordinates._fields == AXES


def named(degrees: object) -> tuple[str, ...]:
    """The axes that are worth a word, as people write them, given a plan or something else that has them as fields.

    An axis that most plans do without is named where it is used.
    """
    return tuple(name for name in WRITTEN if name in USUAL or getattr(degrees, name) > 1)


def inside(*names: str) -> tuple[str, ...]:
    """The axes within the innermost of these: the product of their degrees is how far apart its neighbors sit."""
    return AXES[: min(AXES.index(name) for name in names)]
