"""The fields of a plan, and what a search does with each: listed here alone.

The options of `heddle plan`, the columns of the legal space, and what is kept, refused or found again over a cluster
and over a network are all read from FIELDS. A new axis of the mesh is among them by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import Any

from heddle.schedule.registry import IN_WORDS, usual
from heddle.spec.axes import WRITTEN

DEGREES = "[1, 1e6]"


class Use(Enum):
    """What a search does with a field that is given."""

    CHOSEN = auto()  # it chooses, unless the field is given
    FITTED = auto()  # it fits the field to each plan, unless it is given
    KEPT = auto()  # all of its plans have it as it was given, or its default
    AGAIN = auto()  # it belongs to a plan that was found before, and is found again
    REFUSED = auto()


@dataclass(frozen=True)
class FieldOption:
    """How `heddle plan` takes a field."""

    help: str
    kind: type = int
    within: str = ""  # of a number
    name: str = ""  # of the parameter, where it is not the field's


@dataclass(frozen=True)
class PlanField:
    """A field of a plan."""

    name: str
    cluster: Use
    network: Use = Use.REFUSED
    needs: Mapping[str, Any] = field(default_factory=dict)  # beside it, to be legal at all
    why: str = ""  # it is refused for plans over a cluster
    replicas: bool = False  # means nothing where there is one
    option: FieldOption | None = None


OVER_NETWORK = ("tensor", "pipeline", "data")  # axes along which the search over a network splits
_AXES = {
    "tensor": "Devices that each layer is split over.",
    "context": "Devices that share the tokens of each sample.",
    "pipeline": "Pipeline stages.",
    "data": "Data-parallel replicas.",
}
_BY_LAYER = "What layers do is chosen by the search itself, as far as memory asks for it: --by-layer, --no-by-layer."
_OVER_NETWORK = "It is chosen for jobs with a [network], where links and devices differ."
_PRICED_WITHOUT = "A step is priced without it."


def _axis(name: str) -> PlanField:
    option = FieldOption(_AXES.get(name, f"Ranks along the {name} axis."), within=DEGREES)
    return PlanField(name, Use.CHOSEN, Use.CHOSEN if name in OVER_NETWORK else Use.REFUSED, option=option)


FIELDS = (
    *map(_axis, WRITTEN),
    PlanField(
        "expert",
        Use.CHOSEN,
        needs={"data": 2},
        option=FieldOption("Devices of data × context that share the experts of each layer.", within=DEGREES),
    ),
    PlanField(
        "expert_tensor",
        Use.CHOSEN,
        option=FieldOption(
            "Tensor ranks that split the width of each expert: 1: none of them; 0: all.", within="[0, 1e6]"
        ),
    ),
    PlanField(
        "context_exchange",
        Use.CHOSEN,
        needs={"context": 2},
        option=FieldOption("How keys and values reach these devices: ring, gather, all-to-all or 2d.", str),
    ),
    PlanField(
        "context_inner",
        Use.CHOSEN,
        needs={"context": 4, "context_exchange": "2d"},
        option=FieldOption("Of a 2d exchange: devices of each group with an all-to-all of its own.", within=DEGREES),
    ),
    PlanField(
        "virtual",
        Use.CHOSEN,
        needs={"pipeline": 2, "schedule": usual(2)},
        option=FieldOption("Chunks of the model per rank.", within=DEGREES),
    ),
    PlanField(
        "sequence",
        Use.CHOSEN,
        needs={"tensor": 2},
        option=FieldOption("Split the sequence over these devices, too.", bool, name="sequence_parallel"),
    ),
    PlanField(
        "zero",
        Use.CHOSEN,
        Use.KEPT,
        replicas=True,
        option=FieldOption(
            "What replicas shard: 0 nothing, 1 optimizer, 2 + gradients and weights, 3 gathered per use.",
            within="[0, 3]",
        ),
    ),
    PlanField(
        "zero_within",
        Use.CHOSEN,
        replicas=True,
        option=FieldOption("Neighboring replicas that share what ZeRO shards; 0: all.", within="[0, 1e6]"),
    ),
    PlanField("microbatch", Use.CHOSEN, Use.CHOSEN, option=FieldOption("Samples per microbatch.", within=DEGREES)),
    PlanField("recompute", Use.CHOSEN, Use.KEPT, option=FieldOption("none, selective, elementwise or full.", str)),
    PlanField(
        "schedule",
        Use.CHOSEN,
        Use.CHOSEN,
        option=FieldOption(f"{IN_WORDS}; all; or searched, an order found for this plan.", str),
    ),
    PlanField(
        "extra_warmup",
        Use.REFUSED,
        Use.CHOSEN,
        why="The planner looks at schedules with one extra microbatch for each later rank, or none.",
    ),
    PlanField("stages", Use.FITTED, Use.AGAIN),
    PlanField("tensor_chunks", Use.KEPT),
    PlanField("compress_gradients", Use.KEPT, Use.KEPT),
    PlanField("compress_activations", Use.KEPT, Use.KEPT),
    PlanField("codes", Use.REFUSED, Use.KEPT, why=_OVER_NETWORK),
    PlanField("local_steps", Use.KEPT, Use.KEPT, needs={"data": 2}, replicas=True),
    PlanField("fragments", Use.REFUSED, Use.KEPT, why=_PRICED_WITHOUT, replicas=True),
    PlanField("overlap_steps", Use.REFUSED, Use.KEPT, why=_PRICED_WITHOUT, replicas=True),
    PlanField("check_step", Use.KEPT, needs={"pipeline": 2}),
    PlanField("adapt", Use.KEPT),
    PlanField("offload", Use.REFUSED, why=_BY_LAYER),
    PlanField("layers", Use.REFUSED, why=_BY_LAYER),
    PlanField("prefetch", Use.REFUSED, why=_BY_LAYER),
    PlanField("order", Use.REFUSED, why="An order belongs to one plan: --schedule searched finds one for the best."),
    PlanField("shares", Use.REFUSED, Use.AGAIN, why=_OVER_NETWORK),
    PlanField("devices", Use.REFUSED, Use.AGAIN, why=_OVER_NETWORK),
)


def over_cluster(*uses: Use) -> tuple[str, ...]:
    """The fields that the search over a cluster uses in one of these ways."""
    return tuple(each.name for each in FIELDS if each.cluster in uses)


def over_network(*uses: Use) -> tuple[str, ...]:
    """The same of the search over a network."""
    return tuple(each.name for each in FIELDS if each.network in uses)


@cache
def default(name: str) -> Any:
    """What a plan has that says nothing of a field."""
    from heddle.spec.plan import Plan

    return getattr(Plan(), name)
