"""What each field of a plan may be: the degrees that multiply to a number of devices, and for these everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import get_args

from heddle.errors import divisors
from heddle.planning.search.expert_space import expert_degrees, expert_widths
from heddle.planning.search.given import ALL, Fixed, schedules_of, zero_levels
from heddle.schedule import RULES
from heddle.spec.axes import WRITTEN
from heddle.spec.layer_memory import Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.rules.context import PLAN_EXCHANGES, inner_degrees
from heddle.spec.software import CONTEXT_EXCHANGES

RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
SOME = len(RECOMPUTE)  # in the column: as many of a rank's layers as need to recompute everything, nothing in the rest

Degrees = dict[str, int]  # of every axis
# Whether an axis may have a degree, for a model, the length of a sample and a batch. What is not here has degree 1,
# unless it is fixed.
SEARCHED_AXES: dict[str, Callable[[ModelSpec, int, int, int], bool]] = {
    "tensor": lambda model, _sequence, _batch, degree: degree in model.tensor_degrees,
    "context": lambda model, sequence, _batch, degree: degree == 1 or (sequence % (2 * degree) == 0 and not model.own),
    "pipeline": lambda model, _sequence, _batch, degree: degree <= model.most_stages,
    "data": lambda _model, _sequence, batch, degree: batch % degree == 0,
}
# Samples that are shared without being asked for: shorter ones fit on a device, and of fewer tokens per rank than these
# attention is too short to hide an exchange behind.
LONG, TOKENS_PER_RANK = 16_384, 2_048


def worth_sharing(sequence: int, context: int) -> bool:
    """Whether a search looks at so many ranks for a sample unasked."""
    return context == 1 or (sequence >= LONG and sequence // context >= TOKENS_PER_RANK)


def degrees_of(model: ModelSpec, sequence: int, batch: int, counts: Iterable[int], fixed: Fixed) -> Iterator[Degrees]:
    """Degrees of all axes that multiply to one of the counts."""

    def legal(axis: str, degree: int) -> bool:
        if axis in fixed and degree != fixed[axis]:
            return False
        if axis == "context" and axis not in fixed and not worth_sharing(sequence, degree):
            return False
        rule = SEARCHED_AXES.get(axis)
        return rule(model, sequence, batch, degree) if rule is not None else degree == fixed.get(axis, 1)

    def split(count: int, axes: Sequence[str]) -> Iterator[Degrees]:
        axis, others = axes[0], axes[1:]
        if not others and legal(axis, count):
            yield {axis: count}
        for degree in divisors(count) if others else ():
            if legal(axis, degree):
                yield from ({axis: degree} | more for more in split(count // degree, others))

    return chain.from_iterable(split(count, WRITTEN) for count in counts)


def _exchanges(heads: int, tensor: int, context: int, fixed: Fixed, node: int | None) -> tuple[list[int], int]:
    """How ranks may exchange keys and values, of which each holds so many heads; and the groups of a 2d exchange.

    These lie within a node, unless they are asked for and cannot.
    """
    if context == 1:
        return [CONTEXT_EXCHANGES.index("ring")], 1
    groups, given = inner_degrees(context, heads), fixed.get("context_inner", 1)
    near = [inner for inner in groups if node is None or inner * tensor <= node]
    if given > 1:
        groups = near = [inner for inner in groups if inner == given]
    legal = {"all-to-all": heads % context == 0, "2d": bool(near) or (fixed.get("context_exchange") == "2d" and groups)}
    words = [name for name in PLAN_EXCHANGES if legal.get(name, True) and (given == 1 or name == "2d")]
    if (word := fixed.get("context_exchange")) is not None:
        words = [name for name in words if name == word]
    inner = near[-1] if near else groups[0] if groups else 1
    return [CONTEXT_EXCHANGES.index(name) for name in words], inner


def choices_of(
    model: ModelSpec, sequence: int, batch: int, degrees: Degrees, fixed: Fixed, node: int | None = None
) -> dict[str, list[int]]:
    """What each column may be for given degrees; an empty list where a fixed field forbids them."""
    tensor, context, pipeline, data = (degrees[axis] for axis in ("tensor", "context", "pipeline", "data"))
    replicas = data * context
    exchanges, inner = _exchanges(model.kv_heads // tensor, tensor, context, fixed, node)
    virtuals = [1] if pipeline == 1 else list(range(1, model.layers // pipeline + 1))
    if fixed.get("schedule", ALL) != ALL:
        rule = RULES[fixed["schedule"]]
        virtuals = [virtual for virtual in virtuals if rule.usual_virtual <= virtual <= (rule.most_virtual or virtual)]
    if "stages" in fixed:
        virtuals = [virtual for virtual in virtuals if pipeline * virtual == len(fixed["stages"])]
    slices = [0, 1] if tensor > 1 and sequence // context % tensor == 0 and not model.own else [0]
    levels = sorted(set().union(*(zero_levels((pipeline, replicas), name, fixed) for name in schedules_of(fixed))))
    if pipeline > 1 and "zero" not in fixed:  # levels 2 and 3 of a pipeline are for its layers to choose
        levels = [level for level in levels if level <= 1]
    # a level that is asked for holds for one replica, too, though there is nothing to share
    zeros = _given(fixed, "zero", levels if replicas > 1 or "zero" in fixed else levels[:1])
    near = node // tensor if node is not None and node % tensor == 0 else 1
    withins = _withins(replicas, near, fixed)
    if withins and withins[0]:
        zeros = [level for level in zeros if level]
    microbatches = _given(fixed, "microbatch", divisors(batch // data))
    # replicas that sum their gradients in codes, or not in every step, each hold all experts
    together = not fixed.get("local_steps") and fixed.get("compress_gradients", "none") == "none"
    word = fixed.get("recompute")  # one for each layer fills no column: all plans have them
    recompute = [RECOMPUTE.index(word) if word in RECOMPUTE else 0] if word is not None else list(range(len(RECOMPUTE)))
    if word is None and model.own:
        recompute = [RECOMPUTE.index(word) for word in ("none", "full")]
    if word is None and model.layers >= 2 * pipeline:  # a rank with one layer has no part of its layers
        recompute.append(SOME)
    tokens = [microbatch * sequence // context for microbatch in microbatches]
    widths = expert_widths(model, tensor, tokens, fixed) if together else _given(fixed, "expert_tensor", [0])
    shared = expert_degrees(model, replicas, tensor, widths) if together else [1]
    return {
        **{axis: [degree] for axis, degree in degrees.items()},
        "expert": _given(fixed, "expert", shared),
        "expert_tensor": widths,
        "context_exchange": exchanges,
        "context_inner": [inner],  # if there are groups: other exchanges have none
        "virtual": _given(fixed, "virtual", virtuals),
        "sequence": _given(fixed, "sequence", slices),
        "zero": zeros,
        "zero_within": withins,
        "microbatch": microbatches,
        "recompute": recompute,
    }


def _withins(replicas: int, near: int, fixed: Fixed) -> list[int]:
    """How many replicas may share by themselves: all, as 0, or those that are `near`; or the number that is given."""
    if "zero_within" in fixed:
        given = fixed["zero_within"]
        return [given] if given == 0 or (replicas % given == 0 and given > 1) else []
    return [0, near] if 1 < near < replicas and replicas % near == 0 else [0]


def _given(fixed: Fixed, name: str, legal: list[int]) -> list[int]:
    """Of the legal values the fixed one, or all."""
    return [value for value in legal if value == fixed[name]] if name in fixed else legal
