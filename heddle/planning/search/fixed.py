"""Fields of a plan that are decided before a search: whether they can be kept, and why nothing is left if not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from heddle.errors import HeddleError, divisors, listing, nearest, nearest_number
from heddle.planning.fields import FIELDS, Use, default
from heddle.planning.search.given import ALL, GIVEN, Fixed
from heddle.planning.search.legal import RECOMPUTE, SEARCHED_AXES, choices_of, degrees_of, worth_sharing
from heddle.planning.search.space import Space, legal_space
from heddle.schedule import RULES
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.software import CONTEXT_EXCHANGES


def check_fixed(model: ModelSpec, sequence: int, batch: int, counts: Iterable[int], fixed: Fixed) -> None:
    """Refuse an empty space with its cause: the fewest fixed fields that exclude each other, or the batch."""
    counts = list(counts)

    def empty(some: Fixed) -> bool:
        every = degrees_of(model, sequence, batch, counts, some)
        return not any(all(choices_of(model, sequence, batch, degrees, some).values()) for degrees in every)

    if not empty(fixed):
        return
    if empty({}):
        raise _indivisible(model, sequence, batch, counts)
    culprits = dict(fixed)
    for name in fixed:
        fewer = {other: value for other, value in culprits.items() if other != name}
        if empty(fewer):
            culprits = fewer
    words = [f"{name} = {_written(value)}" for name, value in culprits.items()]
    devices = f"{counts[0]} device{'s' * (counts[0] != 1)}" if len(counts) == 1 else f"at most {max(counts)} devices"
    last, rest = list(culprits)[-1], dict(list(culprits.items())[:-1])
    if last == "schedule":
        legal = ", ".join(sorted(name for name in RULES if not empty(rest | {"schedule": name})))
    else:
        legal = _legal_values(legal_space(model, sequence, batch, counts, rest), last)
    given = f"With {' and '.join(words[:-1])}, " if rest else ""
    raise HeddleError(
        f"No plan on {devices} has {' and '.join(words)}.",
        "Each of them is possible, but not all of them together."
        if rest
        else f"{model.name} cannot be split that way over {devices}.",
        f"{given}{last} can be {legal}." if given else f"{last.capitalize()} can be {legal}.",
    )


def _legal_values(space: Space, name: str) -> str:
    if name in GIVEN:
        return _written(default(name))
    if name == "stages":
        return "a list of the layers of each of the pipeline × virtual chunks"
    values = sorted({int(value) for value in space.columns[name]})
    if name == "recompute":
        return ", ".join(RECOMPUTE)
    if name == "context_exchange":
        return ", ".join(CONTEXT_EXCHANGES[value] for value in values)
    if name == "sequence":
        return " or ".join(_written(bool(value)) for value in values)
    return listing(values)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(list(value) if isinstance(value, tuple) else value)


def _indivisible(model: ModelSpec, sequence: int, batch: int, counts: list[int]) -> HeddleError:
    """No way to split over this many devices leaves a number of replicas that divides the batch."""
    most = max(counts)
    replicas = {
        degrees["data"] for degrees in degrees_of(model, sequence, 0, [most], {})
    }  # 0 is divisible by everything
    near = sorted(
        {max(data, nearest_number(batch, (batch // data * data, (batch // data + 1) * data))) for data in replicas},
        key=lambda value: (abs(value - batch), value),
    )
    fewer = _most_below(model, sequence, batch, most)
    hints = [f"global_batch = {near[0]}"] + ([f"{fewer} of the devices"] if fewer else [])
    return HeddleError(
        f"global_batch = {batch} cannot be divided over {most} devices.",
        f"Whichever way {model.name} is split over them, the number of replicas does not divide the batch.",
        f"Use {', or '.join(hints)}.",
    )


def _most_below(model: ModelSpec, sequence: int, batch: int, limit: int) -> int | None:
    """The largest number of devices below a limit that has legal degrees: by products, as counts may be millions."""
    candidates: dict[str, Iterable[int]] = {"tensor": model.tensor_degrees, "pipeline": range(1, model.layers + 1)}
    shared = [degree for degree in divisors(sequence) if worth_sharing(sequence, degree)]
    candidates |= {"context": shared, "data": divisors(batch)}
    products = {1}
    for axis, legal in SEARCHED_AXES.items():
        degrees = [degree for degree in candidates[axis] if legal(model, sequence, batch, degree)]
        products = {product * degree for product in products for degree in degrees if product * degree < limit}
    return max(products, default=None)


def read_fixed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Check that what is to be fixed are fields of a plan with values of the right kind."""
    from heddle.spec.tables import build

    refused = {each.name: each.why for each in FIELDS if each.cluster is Use.REFUSED and each.name in table}
    if refused:
        first = next(name for name in table if name in refused)
        raise HeddleError(
            f"The planner does not keep plan.{first} as it is given.",
            refused[first],
            f"Remove {listing(list(refused))} from [plan], or search all plans with --free; `heddle simulate` predicts "
            "a plan as it is.",
        )
    needs = {each.name: each.needs for each in FIELDS if each.cluster is not Use.REFUSED}
    unknown = [name for name in table if name not in needs]
    if unknown:
        raise HeddleError(
            f"A plan has no field '{unknown[0]}'.", "Heddle never ignores a key.", nearest(unknown[0], list(needs))
        )
    fixed = {}
    for name, value in table.items():
        # each by itself: what contradicts what is told of when all are known
        beside = dict(needs[name])
        if name == "schedule" and isinstance(value, str) and value in RULES:
            beside = {"pipeline": 2, "virtual": RULES[value].least_virtual}
        if name == "zero_within" and isinstance(value, int):
            beside = {"zero": 1, "data": value} if value > 0 else {}
        if name == "expert" and isinstance(value, int):
            beside = {"data": max(1, value)}
        if name == "expert_tensor" and isinstance(value, int):
            beside = {"tensor": max(1, value)}
        if name == "context_exchange" and value == "2d":
            beside = {"context": 4, "context_inner": 2}
        if name == "context_inner" and isinstance(value, int):
            beside |= {"context": 2 * value} if value > 1 else {"context_exchange": "ring"}
        everything = name == "schedule" and value == ALL
        fixed[name] = ALL if everything else getattr(build(Plan, {name: value} | beside, "plan"), name)
    return fixed
