"""The legal space: every plan that a model, a batch and a number of devices allow, each exactly once, as columns.

Two plans that would do the same count as one: a pipeline of one stage has no order of work to choose, interleaving one
chunk per rank is 1F1B, and one replica shares nothing with itself. GPipe takes as long as 1F1B and holds more, so it is
among them only where it is asked for; so is every schedule but 1F1B and its interleaved form. Of the many ways to
recompute in some layers and not in others one is there: in as few of each rank's layers as memory allows, its first
ones. How many that are is known once plans are priced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import prod
from typing import Any

import numpy as np

from heddle.cost.plan_columns import exchange_columns
from heddle.errors import HeddleError, divisors, listing, nearest, nearest_number
from heddle.planning.fields import FIELDS, Use, default, over_cluster
from heddle.planning.search.expert_space import expert_degrees, expert_widths, experts_come_out, whole_experts
from heddle.planning.search.given import ALL as ALL
from heddle.planning.search.given import GIVEN, schedules_of, zero_levels
from heddle.planning.search.given import Fixed as Fixed
from heddle.schedule import NAMES, RULES, ChunkPlacement
from heddle.spec.axes import AXES, WRITTEN
from heddle.spec.layer_memory import Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.rules.context import PLAN_EXCHANGES, inner_degrees
from heddle.spec.rules.even import even_stages
from heddle.spec.software import CONTEXT_EXCHANGES

RECOMPUTE = ("none", "selective", "full")
SOME = len(RECOMPUTE)  # in the column: as many of a rank's layers as need to recompute everything, nothing in the rest
CHOSEN = tuple(name for name in over_cluster(Use.CHOSEN) if name != "schedule")  # schedules make rows of their own


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
        fields["context_exchange"] = CONTEXT_EXCHANGES[fields["context_exchange"]]
        if fields["context_exchange"] != "2d":
            del fields["context_inner"]
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
        given = [getattr(plan, name) == self._given(name) for name in GIVEN]
        if plan.extra_warmup is not None or plan.schedule not in NAMES or not all(given):
            return None
        wanted: dict[str, Any] = {name: getattr(plan, name) for name in CHOSEN if name != "recompute"}
        whole = self._whole_experts == (wanted.pop("expert_tensor") == 1 < plan.tensor)
        wanted["context_exchange"] = CONTEXT_EXCHANGES.index(plan.context_exchange if plan.context > 1 else "ring")
        if plan.context_exchange != "2d":
            del wanted["context_inner"]
        one_chunk = RULES[plan.schedule].one_chunk if plan.virtual == 1 else ""
        wanted["schedule"] = NAMES.index(one_chunk or plan.schedule)
        if "recompute" not in self.fixed:
            wanted["recompute"] = recompute_number(plan)
        same = [self.columns[name] == value for name, value in wanted.items()]
        found = np.flatnonzero(np.logical_and.reduce([whole, *same]))
        return int(found[0]) if len(found) else None

    @property
    def _whole_experts(self) -> np.ndarray:
        return np.asarray(whole_experts(self.columns))

    @property
    def _replicas(self) -> np.ndarray:
        return np.asarray(self.columns["data"] * self.columns["context"])

    def _given(self, name: str) -> Any:
        return self.fixed[name] if name in self.fixed else default(name)

    def work_columns(self) -> dict[str, Any]:
        """The same as the columns of a `heddle.cost.Work`."""
        names = (*AXES, "expert", "context_exchange", "context_inner", "virtual", "zero", "microbatch")
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
            "shard_ranks": np.where(self.columns["zero_within"], self.columns["zero_within"], self._replicas),
            "groups_once": 1,
            "whole_experts": self._whole_experts.astype(np.int32),
            "sequence_parallel": self.columns["sequence"],
            "tensor_chunks": self._given("tensor_chunks"),
            "schedule": self.columns["schedule"],
            **shares,
            **exchange_columns(
                self._given("compress_gradients"), self._given("compress_activations"), self._given("local_steps")
            ),
        }


def legal_space(
    model: ModelSpec, sequence: int, batch: int, counts: Iterable[int], fixed: Fixed, node: int | None = None
) -> Space:
    """Every legal plan for any of these numbers of devices that has the fixed fields; `node`: devices of one.

    Replicas in one node may share what ZeRO-2 and 3 shard by themselves.
    """
    every = _degrees(model, sequence, batch, counts, fixed)
    rows = [_choices(model, sequence, batch, degrees, fixed, node) for degrees in every]
    columns = dict(zip(CHOSEN, _joined([row for row in rows if all(row.values())]), strict=True))
    least = 1 if "zero_within" in fixed else 2  # below that little is gathered, and nothing waits for it
    whole = whole_experts(columns)
    useful = (columns["zero_within"] == 0) | ((columns["zero"] >= least) & (columns["expert"] == 1) & ~whole)
    useful &= experts_come_out(columns, sequence)
    columns = _with_schedules(columns, useful, batch, fixed)
    if model.own:  # nobody can put off the products of somebody else's layers
        whole = np.isin(columns["schedule"], [n for n, rule in enumerate(RULES.values()) if not rule.splits])
        columns = {name: column[whole] for name, column in columns.items()}
    columns["recomputed"] = np.zeros_like(columns["tensor"])
    return Space(model.layers, columns, fixed)


def _joined(rows: Sequence[dict[str, list[int]]]) -> np.ndarray:
    """All combinations of what each column may be, row after row: each number is written once, where it stays."""
    shapes = [tuple(len(row[name]) for name in CHOSEN) for row in rows]
    ends = np.cumsum([0, *(prod(shape) for shape in shapes)])
    joined = np.empty((len(CHOSEN), ends[-1]), dtype=np.int32)
    for row, shape, (start, end) in zip(rows, shapes, pairwise(ends), strict=True):
        for place, name in enumerate(CHOSEN):
            along = [1] * len(shape)
            along[place] = -1
            joined[place, start:end].reshape(shape)[...] = np.array(row[name]).reshape(along)
    return joined


def _with_schedules(
    columns: dict[str, np.ndarray], useful: np.ndarray, batch: int, fixed: Fixed
) -> dict[str, np.ndarray]:
    """Every useful plan with each of the schedules that can run it; a pipeline of one stage with the first."""
    names = schedules_of(fixed)
    pipeline, virtual = columns["pipeline"], columns["virtual"]
    microbatches = batch // np.maximum(columns["data"] * columns["microbatch"], 1)
    rows, schedules = [], []
    for name in names:
        rule = RULES[name]
        legal = useful & (virtual >= rule.usual_virtual) & (virtual <= (rule.most_virtual or np.inf))
        legal &= np.where(pipeline > 1, microbatches >= rule.microbatches_per_rank * pipeline, name == names[0])
        legal &= (pipeline == 1) | np.isin(columns["zero"], zero_levels((2, 2), name, fixed))
        rows.append(np.flatnonzero(legal))
        schedules.append(np.full(len(rows[-1]), NAMES.index(name), dtype=np.int32))
    taken, schedule = np.concatenate(rows), np.concatenate(schedules)
    order = np.argsort(taken, kind="stable")
    return {name: column[taken[order]] for name, column in columns.items()} | {"schedule": schedule[order]}


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


def _degrees(model: ModelSpec, sequence: int, batch: int, counts: Iterable[int], fixed: Fixed) -> Iterator[Degrees]:
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


def _choices(
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
        recompute.remove(RECOMPUTE.index("selective"))
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


def recompute_number(plan: Plan) -> int:
    """What a plan recomputes as a number of the column."""
    return RECOMPUTE.index(plan.recompute) if isinstance(plan.recompute, str) else SOME


def recompute_first(
    stages: Sequence[int], pipeline: int, count: int, placement: ChunkPlacement = ChunkPlacement.LOOP
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
        every = _degrees(model, sequence, batch, counts, some)
        return not any(all(_choices(model, sequence, batch, degrees, some).values()) for degrees in every)

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
    replicas = {degrees["data"] for degrees in _degrees(model, sequence, 0, [most], {})}  # 0 is divisible by everything
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
