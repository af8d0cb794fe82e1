"""The legal space: every plan that a model, a batch and a number of devices allow, each exactly once, as columns.

Two plans that would do the same count as one: a pipeline of one stage has no order of work to choose, interleaving one
chunk per rank is 1F1B, and one replica shares nothing with itself. GPipe takes as long as 1F1B and holds more, so it is
among them only where it is asked for; so is every schedule but 1F1B and its interleaved form. Of the many ways to
recompute in some layers and not in others one is there: in as few of each rank's layers as memory allows, its first
ones. How many that are is known once plans are priced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from heddle.cost.work import exchange_columns
from heddle.errors import HeddleError, divisors, listing, nearest, nearest_number
from heddle.plan.search.given import ALL as ALL
from heddle.plan.search.given import EXCHANGED, GIVEN, schedules_of, zero_levels
from heddle.plan.search.given import SEARCHED as SEARCHED
from heddle.plan.search.given import Fixed as Fixed
from heddle.schedule import NAMES, RULES, Placement
from heddle.spec.layer_memory import Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.plan import AXES, WRITTEN, Plan
from heddle.spec.rules.even import even_stages

RECOMPUTE = ("none", "selective", "full")
SOME = len(RECOMPUTE)  # in the column: as many of a rank's layers as need to recompute everything, nothing in the rest
CHOSEN = (*WRITTEN, "virtual", "sequence", "zero", "microbatch", "recompute")
FIELDS = (*CHOSEN, "schedule", "stages", *GIVEN)

COMPANY: dict[str, dict[str, Any]] = {  # what a field needs beside it to be legal at all
    "check_step": {"pipeline": 2},
    "local_steps": {"data": 2},
    "virtual": {"pipeline": 2, "schedule": "interleaved"},
    "sequence": {"tensor": 2},
}


@dataclass(frozen=True)
class Space:
    """Plans as columns of whole numbers; schedules and words of recompute by their place in their lists.

    Where `recompute` is SOME, `recomputed` says in how many layers of each rank, at least.
    """

    layers: int
    columns: dict[str, np.ndarray]
    fixed: Fixed

    def __len__(self) -> int:
        return len(self.columns["tensor"])

    @property
    def devices(self) -> np.ndarray:
        """How many each plan uses."""
        return np.asarray(prod(self.columns[axis] for axis in AXES))

    def take(self, rows: np.ndarray) -> Space:
        """Some of them."""
        return replace(self, columns={name: column[rows] for name, column in self.columns.items()})

    def plan(self, index: int, more: int = 0) -> Plan:
        """One of them, as a plan; with so many more layers of each rank that recompute, where some do."""
        fields: dict[str, Any] = {name: int(column[index]) for name, column in self.columns.items()}
        count = fields.pop("recomputed") + more
        fields["sequence"] = bool(fields["sequence"])
        fields["schedule"] = NAMES[fields["schedule"]]
        fields["stages"] = tuple(self.fixed.get("stages", ()))
        fields |= {name: self.fixed[name] for name in GIVEN if name in self.fixed}
        if fields["recompute"] == SOME:
            stages = fields["stages"] or even_stages(self.layers, fields["pipeline"] * fields["virtual"])
            placement = RULES[fields["schedule"]].placement
            fields["recompute"] = recompute_first(stages, fields["pipeline"], count, placement)
        else:
            fields["recompute"] = self.fixed.get("recompute", RECOMPUTE[fields["recompute"]])
        return Plan(
            **fields, **{name: self.fixed[name] for name in ("offload", "prefetch", "layers") if name in self.fixed}
        )

    def where(self, plan: Plan) -> int | None:
        """The place of a plan, its stages and the layers that it recomputes aside; None where it is not among them."""
        given = [getattr(plan, name) == self.fixed.get(name, value) for name, value in GIVEN.items()]
        if plan.extra_warmup is not None or plan.schedule not in NAMES or not all(given):
            return None
        wanted: dict[str, Any] = {name: getattr(plan, name) for name in CHOSEN if name != "recompute"}
        one_chunk = plan.schedule == "interleaved" and plan.virtual == 1
        wanted["schedule"] = NAMES.index("1f1b" if one_chunk else plan.schedule)
        if "recompute" not in self.fixed:
            wanted["recompute"] = recompute_number(plan)
        found = np.flatnonzero(np.logical_and.reduce([self.columns[name] == value for name, value in wanted.items()]))
        return int(found[0]) if len(found) else None

    def work_columns(self) -> dict[str, Any]:
        """The same as the columns of a `heddle.cost.Work`."""
        names = (*AXES, "virtual", "zero", "microbatch")
        words = self.fixed.get("recompute")
        shares: dict[str, Any]
        if words is None or isinstance(words, str):
            some = self.columns["recomputed"] * self.columns["pipeline"] / self.layers
            shares = {
                "full": np.where(self.columns["recompute"] == RECOMPUTE.index("full"), 1.0, some),
                "selective": (self.columns["recompute"] == RECOMPUTE.index("selective")).astype(float),
            }
        else:
            shares = {word: list(words).count(word) / self.layers for word in ("full", "selective")}
        return {
            **{name: self.columns[name] for name in names},
            "sequence_parallel": self.columns["sequence"],
            "schedule": self.columns["schedule"],
            **shares,
            **exchange_columns(*(self.fixed.get(name, value) for name, value in EXCHANGED.items())),
        }


def legal_space(model: ModelSpec, sequence: int, batch: int, counts: Iterable[int], fixed: Fixed) -> Space:
    """Every legal plan for any of these numbers of devices that has the fixed fields."""
    rows = [_choices(model, sequence, batch, degrees, fixed) for degrees in _degrees(model, batch, counts, fixed)]
    blocks = [np.stack([axis.ravel() for axis in np.meshgrid(*row, indexing="ij")]) for row in rows if all(row)]
    joined = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(CHOSEN), 0), dtype=np.int64)
    columns = dict(zip(CHOSEN, joined, strict=True))
    columns = _with_schedules(columns, batch, fixed)
    columns["recomputed"] = np.zeros_like(columns["tensor"])
    return Space(model.layers, columns, fixed)


def _with_schedules(columns: dict[str, np.ndarray], batch: int, fixed: Fixed) -> dict[str, np.ndarray]:
    """Every plan with each of the schedules that can run it; a pipeline of one stage with the first."""
    names = schedules_of(fixed)
    pipeline, virtual = columns["pipeline"], columns["virtual"]
    microbatches = batch // np.maximum(columns["data"] * columns["microbatch"], 1)
    rows, schedules = [], []
    for name in names:
        rule = RULES[name]
        legal = (virtual >= rule.usual_virtual) & (virtual <= (rule.most_virtual or np.inf))
        legal &= np.where(pipeline > 1, microbatches >= rule.least_microbatches(pipeline), name == names[0])
        legal &= (pipeline == 1) | np.isin(columns["zero"], zero_levels((2, 2), name, fixed))
        rows.append(np.flatnonzero(legal))
        schedules.append(np.full(len(rows[-1]), NAMES.index(name)))
    taken, schedule = np.concatenate(rows), np.concatenate(schedules)
    order = np.argsort(taken, kind="stable")
    return {name: column[taken[order]] for name, column in columns.items()} | {"schedule": schedule[order]}


def _degrees(model: ModelSpec, batch: int, counts: Iterable[int], fixed: Fixed) -> Iterator[tuple[int, int, int]]:
    """Tensor, pipeline and data degrees that multiply to one of the counts."""
    splits = model.tensor_degrees
    for count in counts:
        for tensor in _given(fixed, "tensor", [t for t in splits if count % t == 0]):
            stages = [p for p in divisors(count // tensor) if p <= model.layers]
            for pipeline in _given(fixed, "pipeline", stages):
                data = count // (tensor * pipeline)
                if batch % data == 0 and data in _given(fixed, "data", [data]):
                    yield tensor, pipeline, data


def _choices(
    model: ModelSpec, sequence: int, batch: int, degrees: tuple[int, int, int], fixed: Fixed
) -> list[list[int]]:
    """What each column may be for given degrees; an empty list where a fixed field forbids them."""
    tensor, pipeline, data = degrees
    virtuals = [1] if pipeline == 1 else list(range(1, model.layers // pipeline + 1))
    if fixed.get("schedule", ALL) != ALL:
        rule = RULES[fixed["schedule"]]
        virtuals = [virtual for virtual in virtuals if rule.usual_virtual <= virtual <= (rule.most_virtual or virtual)]
    if "stages" in fixed:
        virtuals = [virtual for virtual in virtuals if pipeline * virtual == len(fixed["stages"])]
    slices = [0, 1] if tensor > 1 and sequence % tensor == 0 else [0]
    levels = sorted(set().union(*(zero_levels(degrees[1:], name, fixed) for name in schedules_of(fixed))))
    if pipeline > 1 and "zero" not in fixed:  # levels 2 and 3 of a pipeline are for its layers to choose
        levels = [level for level in levels if level <= 1]
    # a level that is asked for holds for one replica, too, though there is nothing to share
    zeros = _given(fixed, "zero", levels if data > 1 or "zero" in fixed else levels[:1])
    microbatches = _given(fixed, "microbatch", divisors(batch // data))
    word = fixed.get("recompute")  # one for each layer fills no column: all plans have them
    recompute = [RECOMPUTE.index(word) if word in RECOMPUTE else 0] if word is not None else list(range(len(RECOMPUTE)))
    if word is None and model.layers >= 2 * pipeline:  # a rank with one layer has no part of its layers
        recompute.append(SOME)
    return [
        [tensor],
        [pipeline],
        [data],
        _given(fixed, "virtual", virtuals),
        _given(fixed, "sequence", slices),
        zeros,
        microbatches,
        recompute,
    ]


def _given(fixed: Fixed, name: str, legal: list[int]) -> list[int]:
    """Of the legal values the fixed one, or all."""
    return [value for value in legal if value == fixed[name]] if name in fixed else legal


def recompute_number(plan: Plan) -> int:
    """What a plan recomputes as a number of the column."""
    return RECOMPUTE.index(plan.recompute) if isinstance(plan.recompute, str) else SOME


def recompute_first(
    stages: Sequence[int], pipeline: int, count: int, placement: Placement = Placement.LOOP
) -> tuple[Recompute, ...]:
    """A word for each layer: each rank recomputes everything in that many of its first layers, nothing in the rest."""
    left, words = [count] * pipeline, list[Recompute]()
    for chunk, layers in enumerate(stages):
        rank = placement.rank_of(chunk, pipeline)
        again = min(layers, left[rank])
        left[rank] -= again
        words.extend("full" if place < again else "none" for place in range(layers))
    return tuple(words)


def check_fixed(model: ModelSpec, sequence: int, batch: int, counts: Iterable[int], fixed: Fixed) -> None:
    """Refuse an empty space with its cause: the fewest fixed fields that exclude each other, or the batch."""
    counts = list(counts)

    def empty(some: Fixed) -> bool:
        every = _degrees(model, batch, counts, some)
        return not any(all(_choices(model, sequence, batch, degrees, some)) for degrees in every)

    if not empty(fixed):
        return
    if empty({}):
        raise _indivisible(model, batch, counts)
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
        return _written(GIVEN[name])
    if name == "stages":
        return "a list of the layers of each of the pipeline × virtual chunks"
    values = sorted({int(value) for value in space.columns[name]})
    if name == "recompute":
        return ", ".join(RECOMPUTE)
    if name == "sequence":
        return " or ".join(_written(bool(value)) for value in values)
    return listing(values)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(list(value) if isinstance(value, tuple) else value)


def _indivisible(model: ModelSpec, batch: int, counts: list[int]) -> HeddleError:
    """No way to split over this many devices leaves a number of replicas that divides the batch."""
    most = max(counts)
    replicas = {data for _, _, data in _degrees(model, 0, [most], {})}  # 0 is divisible by everything
    near = sorted(
        {max(data, nearest_number(batch, range(data, batch + 2 * data, data))) for data in replicas},
        key=lambda value: (abs(value - batch), value),
    )
    fewer = next((n for n in range(most - 1, 0, -1) if next(_degrees(model, batch, [n], {}), None)), None)
    hints = [f"global_batch = {near[0]}"] + ([f"{fewer} of the devices"] if fewer else [])
    return HeddleError(
        f"global_batch = {batch} cannot be divided over {most} devices.",
        f"Whichever way {model.name} is split over them, the number of replicas does not divide the batch.",
        f"Use {', or '.join(hints)}.",
    )


def read_fixed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Check that what is to be fixed are fields of a plan with values of the right kind."""
    from heddle.spec.tables import build

    if "extra_warmup" in table:
        raise HeddleError(
            "The planner does not fix extra_warmup.",
            "It plans deep-1f1b with one extra microbatch for each later rank.",
            "Set extra_warmup in the [plan] of a job, and see with `heddle simulate` what it gains.",
        )
    unknown = [name for name in table if name not in FIELDS]
    if unknown:
        raise HeddleError(
            f"A plan has no field '{unknown[0]}'.", "Heddle never ignores a key.", nearest(unknown[0], FIELDS)
        )
    fixed = {}
    for name, value in table.items():
        # each by itself: what contradicts what is told of when all are known
        company = COMPANY.get(name, {})
        if name == "schedule" and isinstance(value, str) and value in RULES:
            company = {"pipeline": 2, "virtual": RULES[value].least_virtual}
        everything = name == "schedule" and value == ALL
        fixed[name] = ALL if everything else getattr(build(Plan, {name: value} | company, "plan"), name)
    return fixed
