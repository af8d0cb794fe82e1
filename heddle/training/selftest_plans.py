"""The plans that a self-test proves: each mechanism once, as far as the processes allow it."""

from __future__ import annotations

from typing import Any

from heddle.errors import HeddleError
from heddle.schedule import RULES
from heddle.schedule.registry import BY_DEFAULT
from heddle.spec.plan import Plan

# Those that the planner looks at without being asked, and those that split backwards, whose exchanges differ most.
SCHEDULES = tuple(name for name, rule in RULES.items() if name in BY_DEFAULT or rule.splits)
# What is proved, by name: the degree that it needs, and the rest of the plan.
MECHANISMS: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor": ("tensor", {"sequence": True}),
    **{name: ("pipeline", {"schedule": name, "virtual": RULES[name].usual_virtual}) for name in SCHEDULES},
    "zero 1": ("data", {"zero": 1}),
    "zero 2": ("data", {"zero": 2}),
    "zero 3": ("data", {"zero": 3}),
    "context": ("context", {}),
    "offload": ("data", {"zero": 1, "offload": ("optimizer:host",)}),
    "int8": ("data", {"compress_gradients": "int8"}),
}


def plans_for(world: int, local: int) -> dict[str, Plan]:
    """By name, the plans for so many processes, of which so many share a node."""
    found = {}
    for name, (axis, rest) in MECHANISMS.items():
        degree = 2 if axis in ("tensor", "pipeline") else world
        if (axis == "tensor" and local % 2) or world % degree or degree == 1:
            continue
        try:
            # what the mechanism leaves over are replicas
            found[name] = Plan(**{"data": world // degree, "microbatch": 1} | {axis: degree} | rest)
        except HeddleError:  # it does not go with so many
            continue
    return found
