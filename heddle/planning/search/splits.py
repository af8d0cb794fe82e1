"""Splits: legal plans without their chunks, their schedule and what they recompute; and the plans of each split.

There are some fifty plans of each. Whether any of them may fit is known of most splits before their plans are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from heddle.planning.fields import Use, over_cluster
from heddle.planning.search.expert_space import experts_come_out, whole_experts
from heddle.planning.search.given import Fixed, schedules_of, zero_levels
from heddle.planning.search.legal import SOME, choices_of, degrees_of
from heddle.schedule import NAMES, RULES
from heddle.simulating.distinct import by_group, distinct
from heddle.spec.model import ModelSpec

CHOSEN = tuple(name for name in over_cluster(Use.CHOSEN) if name != "schedule")  # schedules make rows of their own
*_SPLIT, _LAST = CHOSEN
assert _LAST == "recompute"
SPLIT = tuple(name for name in _SPLIT if name != "virtual")
OUTER = SPLIT[: CHOSEN.index("virtual")]  # by which plans are in order before their chunks


class Form(NamedTuple):
    """A number of chunks per rank, with a schedule that can run them: its place among those that are looked at."""

    virtual: int
    place: int
    schedule: int


class Splits(NamedTuple):
    """Columns of whole numbers; and where plans stand in their order, before and after their number of chunks."""

    columns: dict[str, np.ndarray]
    outer: np.ndarray
    inner: np.ndarray
    virtuals: dict[int, list[int]]  # that so many stages may have
    words: dict[int, list[int]]  # of recompute, likewise

    def __len__(self) -> int:
        return len(self.outer)


class SplitGroup(NamedTuple):
    """Splits that have the same plans."""

    rows: np.ndarray
    pipeline: int
    microbatches: int
    forms: list[Form]
    words: list[int]


# for each split, form and word: whether that plan is worth a row, and bytes that it holds at least
Kept = Callable[[SplitGroup], tuple[np.ndarray, np.ndarray]]
Keep = Callable[[Splits], Kept]


def legal_splits(
    model: ModelSpec, sequence: int, batch: int, counts: Iterable[int], fixed: Fixed, node: int | None
) -> Splits:
    """Every legal split for any of these numbers of devices; see `legal_space`."""
    every = degrees_of(model, sequence, batch, counts, fixed)
    found = [choices_of(model, sequence, batch, degrees, fixed, node) for degrees in every]
    rows = [row for row in found if all(row.values())]
    joined, outer, inner = _joined(rows)
    columns = dict(zip(SPLIT, joined, strict=True))
    least = 1 if "zero_within" in fixed else 2  # below that little is gathered, and nothing waits for it
    within = (columns["zero"] >= least) & (columns["expert"] == 1) & ~whole_experts(columns)
    useful = ((columns["zero_within"] == 0) | within) & experts_come_out(columns, sequence)
    return Splits(
        {name: column[useful] for name, column in columns.items()},
        outer[useful],
        inner[useful],
        {row["pipeline"][0]: row["virtual"] for row in rows},
        {row["pipeline"][0]: row["recompute"] for row in rows},
    )


def _joined(rows: Sequence[dict[str, list[int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All combinations of what each column may be, row after row: each number is written once, where it stays."""
    shapes = [tuple(len(row[name]) for name in SPLIT) for row in rows]
    ends = np.cumsum([0, *(prod(shape) for shape in shapes)])
    joined = np.empty((len(SPLIT), ends[-1]), dtype=np.int32)
    outer, inner, before = np.empty(ends[-1], dtype=np.int64), np.empty(ends[-1], dtype=np.int64), 0
    for row, shape, (start, end) in zip(rows, shapes, pairwise(ends), strict=True):
        for place, name in enumerate(SPLIT):
            along = [1] * len(shape)
            along[place] = -1
            joined[place, start:end].reshape(shape)[...] = np.array(row[name]).reshape(along)
        first, then = np.divmod(np.arange(end - start), prod(shape[len(OUTER) :]))
        outer[start:end], inner[start:end] = before + first, then
        before += prod(shape[: len(OUTER)])
    return joined, outer, inner


def plans_of(
    splits: Splits, batch: int, fixed: Fixed, may_split: bool, kept: Kept | None
) -> tuple[dict[str, np.ndarray], np.ndarray, int]:
    """The plans of all splits as columns, bytes that each holds at least, and how many plans were not kept.

    `may_split`: whether backwards may be in two.
    """
    left_out, parts, floors = 0, [np.zeros((5, 0), dtype=np.int64)], [np.zeros(0)]
    for each in _groups(splits, batch, fixed, may_split):
        shape = len(each.rows), len(each.forms), len(each.words)
        wanted, floor = (np.ones(shape, dtype=bool), np.zeros(shape)) if kept is None else kept(each)
        # plans whose layers recompute as far as memory asks count only where they fit
        left_out += int(np.sum(~wanted[:, :, [word != SOME for word in each.words]]))
        at, form, word = np.nonzero(wanted)
        floors.append(floor[wanted])
        forms = np.array(each.forms, dtype=np.int64).reshape(-1, 3)[form]
        parts.append(np.stack([each.rows[at], *forms.T, np.array(each.words, dtype=np.int64)[word]]))
    row, virtual, place, schedule, word = np.concatenate(parts, axis=1)
    # in the order of the columns: of plans that take the same, the first is chosen
    key = splits.outer[row]
    for column in (virtual, splits.inner[row], word, place):
        key = key * (int(column.max(initial=0)) + 1) + column
    order = np.argsort(key)
    row, floor = row[order], np.concatenate(floors)[order]
    columns = {name: column[row] for name, column in splits.columns.items()}
    columns |= {"virtual": virtual[order], "recompute": word[order], "schedule": schedule[order]}
    columns = {name: columns[name].astype(np.int32, copy=False) for name in (*CHOSEN, "schedule")}
    return columns, floor, left_out


def _groups(splits: Splits, batch: int, fixed: Fixed, may_split: bool) -> Iterable[SplitGroup]:
    columns = splits.columns
    if not len(splits):
        return
    microbatches = batch // np.maximum(columns["data"] * columns["microbatch"], 1)
    first, group = distinct([columns["pipeline"], microbatches, columns["zero"]])
    for one, rows in zip(first, by_group(group), strict=True):
        pipeline, count, zero = int(columns["pipeline"][one]), int(microbatches[one]), int(columns["zero"][one])
        forms = _forms(splits.virtuals[pipeline], (pipeline, count, zero), fixed, may_split)
        yield SplitGroup(rows, pipeline, count, forms, splits.words[pipeline])


def _forms(virtuals: list[int], split: tuple[int, int, int], fixed: Fixed, may_split: bool) -> list[Form]:
    """Chunks with each of the schedules that can run them; a pipeline of one stage with the first."""
    pipeline, microbatches, zero = split
    names, legal = schedules_of(fixed), []
    for place, name in enumerate(names):
        rule = RULES[name]
        enough = microbatches >= rule.microbatches_per_rank * pipeline if pipeline > 1 else place == 0
        level = pipeline == 1 or zero in zero_levels((2, 2), name, fixed)
        # nobody can put off the products of somebody else's layers
        if enough and level and (may_split or not rule.splits):
            legal.append((place, name))
    return [
        Form(virtual, place, NAMES.index(name))
        for virtual in virtuals
        for place, name in legal
        if RULES[name].usual_virtual <= virtual <= (RULES[name].most_virtual or virtual)
    ]
