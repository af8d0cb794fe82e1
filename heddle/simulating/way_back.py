"""One microbatch's way back through a chunk, layer by layer: what is there at its fullest moment.

Levels are relative to what the rank held when the backward began. From the end of the chunk on each layer adds what it
needs for a moment and lets go of what it saved. Layers that replicas share, or whose weights live elsewhere, gather
their weights and those of the layers ahead; their gradients wait in full until the next layer's are there, because one
sum is under way at a time (`heddle.parallel.replicas.sharded`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from heddle.cost.offload import States


class Passed(NamedTuple):
    """Bytes of a layer, or of an end of the model, that a backward passes."""

    moment: float  # that it holds for a moment beside all that was saved, while it makes gradients
    left: float  # that it lets go of
    states: States = States(0.0, 0.0, 0.0)
    owed: float = 0.0  # that it holds on to where weight gradients are put off
    makes: float = 0.0  # gradients that a first backward makes, and that stay; those of shards are in its states
    waits: float = 0.0  # its input's gradient, which is there when it is done
    early: float = 0.0  # that it holds before it has made any
    last_summed: float | None = None  # gradients that are summed last, if not all of its states' at once


class ActionPeak(NamedTuple):
    """The fullest moment of an action: bytes beyond those before it, and how many of these are gathered weights."""

    bytes: float
    gathered: float = 0.0


class WayBack(NamedTuple):
    """Of one chunk."""

    first: ActionPeak  # of the step's first microbatch, which makes gradients
    later: ActionPeak
    made: float  # gradients that the first one made
    pending: float  # gradients whose sum is under way when it is done
    due: float  # the share of these that the next one makes


class Sums(NamedTuple):
    """How gradients of sharded layers are summed."""

    replicas: float = 1.0
    received: float = 0.0  # memory that a sum takes beside its gradients, as a share of them


def way_back(units: Sequence[tuple[Passed, int]], ahead: int, sums: Sums, microbatches: float) -> WayBack:
    """Through runs of units that are alike, in the order of the backward.

    `ahead`: layers whose weights are fetched early.
    """
    last = next((unit for unit, _ in reversed(units) if unit.states.summed), None)
    pending = 0.0 if last is None else _pending(last, sums)
    due = 0.0 if last is None or sums.replicas == 1 else last.states.gradients * _late(last)
    made = sum(count * _made(unit) for unit, count in units)
    # the last backward of a step lets go of weights that stayed gathered; those before it hold more
    first = _walk(units, ahead, sums, 0.0, makes=True, releases=microbatches == 1)
    later = _walk(units, ahead, sums, pending, makes=False, releases=microbatches == 2)
    return WayBack(first, ActionPeak(later.bytes - pending, later.gathered), made, pending, due)


def _walk(
    units: Sequence[tuple[Passed, int]], ahead: int, sums: Sums, pending: float, makes: bool, releases: bool
) -> ActionPeak:
    level, due, peak = 0.0, 0.0, ActionPeak(0.0)
    for unit, here, following, times in _each(units, ahead):
        states = unit.states
        gathered = here + following
        most = level + pending + gathered + max(states.summed + unit.moment, unit.early)
        peak = max(peak, ActionPeak(most, gathered))
        level += unit.owed - unit.left + makes * unit.makes - releases * states.kept
        if states.summed:
            level += makes * (due if sums.replicas > 1 else states.gradients)
            whole = states.summed * (1 + sums.received) if sums.replicas > 1 else 0.0
            peak = max(peak, ActionPeak(level + pending + whole + following, following))  # a sum begins, then one ends
            due, pending = states.gradients, _pending(unit, sums)
            if unit.last_summed is not None and sums.replicas > 1:
                level, due = level + makes * due * (1 - _late(unit)), due * _late(unit)
        peak = max(peak, ActionPeak(level + pending + following + unit.waits, following))
        if times > 1:  # the same again, so many times
            grown = makes * (unit.makes + (states.gradients if states.summed else 0.0))
            level += (times - 1) * (unit.owed - unit.left + grown - releases * states.kept)
    return peak


def _each(units: Sequence[tuple[Passed, int]], ahead: int) -> Iterator[tuple[Passed, float, float, int]]:
    """The first two and the last two of each run, with the weights gathered for it and for those behind it.

    The second stands for those up to the last but one, `times` of them.
    """
    sizes = [(unit.states.unit, count) for unit, count in units]
    for number, (unit, count) in enumerate(units):
        for place, times in _places(count):
            yield unit, unit.states.unit, _following(sizes, number, place, ahead), times


def _places(count: int) -> list[tuple[int, int]]:
    if count <= 4:
        return [(place, 1) for place in range(count)]
    return [(0, 1), (1, count - 3), (count - 2, 1), (count - 1, 1)]


def _following(sizes: list[tuple[float, int]], number: int, place: int, ahead: int) -> float:
    """Weights of the layers behind one in a run, as many as are fetched ahead."""
    if not ahead:
        return 0.0
    size, count = sizes[number]
    found = min(ahead, count - 1 - place)
    total, left = found * size, ahead - found
    for size, count in sizes[number + 1 :]:
        if not left:
            break
        total += min(left, count) * size
        left -= min(left, count)
    return total


def _pending(unit: Passed, sums: Sums) -> float:
    """Gradients of a unit while they are summed, and what arrives of others'; alone there is no sum."""
    return unit.states.summed * _late(unit) * (1 + sums.received) if sums.replicas > 1 else 0.0


def _late(unit: Passed) -> float:
    """The share of a unit's gradients that is summed last."""
    return 1.0 if unit.last_summed is None else unit.last_summed / unit.states.summed


def _made(unit: Passed) -> float:
    return unit.makes + (unit.states.gradients if unit.states.summed else 0.0)
