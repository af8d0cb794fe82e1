"""The inner choice of Piper: one memory option for each layer of a stage, the fastest that fits.

It is a knapsack with one choice a layer. Going from a layer's fastest option to smaller ones is a sequence of *swaps*,
each with seconds lost and bytes saved (the lower convex hull of its options). Taken in the order of seconds a byte they
give a lower bound (the last swap taken in part) and an answer that fits (taken whole: what the published program does).
Where the two differ, `exact` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from heddle.graph.dag import Floats, Ints
from heddle.graph.ideals import Bools


@dataclass(frozen=True, eq=False)
class Swaps:
    """The swaps of all layers, a row for each number of microbatches in flight, cheapest seconds a byte first.

    Rows are filled up with swaps that save nothing. Layers that are alike may stand as one.
    """

    layers: Ints  # (rows, swaps)
    lost: Floats
    saved: Floats
    whole: Bools  # whether no option of the layer lies between two swaps, so that they are taken whole

    @cached_property
    def commonest(self) -> Floats:
        """(rows,): the bytes that, counted with repetition, save most."""
        ordered = np.sort(self.saved, axis=1)
        runs = np.cumsum(np.diff(ordered, axis=1, prepend=-1.0) != 0, axis=1) - 1
        runs += np.arange(len(runs))[:, None] * ordered.shape[1]
        count = np.bincount(runs.reshape(-1), minlength=runs.size)[runs]
        best = (ordered * count).argmax(axis=1)
        return np.asarray(ordered[np.arange(len(best)), best])

    def bound(self, row: Ints, held: Floats | Bools, need: Floats) -> Floats:
        """At least so many seconds are lost to save `need` bytes, for stages, each with its row.

        The larger of two bounds: the relaxation that takes the last swap in part, and the count of whole swaps among
        those alike in bytes, after all others were given for nothing. held (stages, layers): how many of each.
        """
        stages = np.arange(len(need))
        times = held[stages[:, None], self.layers[row]]
        saved, lost = self.saved[row] * times, self.lost[row] * times
        reached = np.cumsum(saved, axis=1)
        last = (reached >= need[:, None] * (1 - 1e-12)).argmax(axis=1)
        before = np.cumsum(lost, axis=1)[stages, last] - lost[stages, last]
        still = np.maximum(need - reached[stages, last] + saved[stages, last], 0)
        relaxed = before + still * (self.lost / np.maximum(self.saved, 1e-300))[row, last]
        # whole swaps of the commonest size, in the order of seconds as they all save the same
        size = self.commonest[row]
        alike = np.where(self.whole[row] & (self.saved[row] == size[:, None]), times, 0)
        others = reached[:, -1] - alike.sum(axis=1) * size
        count = np.ceil((need * (1 - 1e-12) - others) / size - 1e-9)
        taken = np.clip(count[:, None] - np.cumsum(alike, axis=1) + alike, 0, alike)
        return np.asarray(np.maximum(relaxed, (self.lost[row] * taken).sum(axis=1)))


def swaps(seconds: Floats, memory: Floats) -> Swaps:
    """The swaps of layers, walking each layer's lower convex hull from its fastest option down.

    seconds is (layers, options), memory (rows, layers, options).
    """
    rows, layers = np.ogrid[: len(memory), : len(seconds)]
    seconds = np.broadcast_to(seconds, memory.shape)
    at = fastest(seconds, memory)
    found = []
    beaten = ~np.isfinite(seconds)  # options that an end of a swap is as good as
    for left in reversed(range(seconds.shape[-1])):
        slower = seconds >= seconds[rows, layers, at][..., None]
        beaten = beaten | (slower & (memory >= memory[rows, layers, at][..., None]))
        if not left:
            break
        with np.errstate(invalid="ignore", divide="ignore"):
            lost = seconds - seconds[rows, layers, at][..., None]
            saved = memory[rows, layers, at][..., None] - memory
            price = np.where((saved > 0) & np.isfinite(lost), lost / saved, np.inf)
        # of equally cheap ones the farthest, so that the hull has no needless corners
        cheapest = price.min(axis=-1)
        target = np.where(price == cheapest[..., None], saved, -np.inf).argmax(axis=-1)
        goes = np.isfinite(cheapest)
        found.append([np.where(goes, column[rows, layers, target], 0.0) for column in (lost, saved)])
        at = np.where(goes, target, at)
    if not found:
        found.append([np.zeros(at.shape), np.zeros(at.shape)])
    all_lost, all_saved = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
    price = np.where(all_saved > 0, all_lost / np.maximum(all_saved, 1e-300), np.inf)
    order = np.lexsort((all_lost, price))
    owner = np.tile(np.arange(len(at[0])), len(found))[order]
    whole = np.asarray(beaten.all(axis=-1))[np.arange(len(owner))[:, None], owner]
    return Swaps(owner, np.take_along_axis(all_lost, order, 1), np.take_along_axis(all_saved, order, 1), whole)


class KnapsackSteps(NamedTuple):
    """One row of swaps, without those that save nothing."""

    layers: Ints
    lost: Floats
    saved: Floats


def fastest(seconds: Floats, memory: Floats) -> Ints:
    """Of each layer the fastest option, the smallest of equally fast ones."""
    tied = np.where(seconds == seconds.min(axis=-1, keepdims=True), memory, np.inf)
    return np.asarray(tied.argmin(axis=-1))


def exact(seconds: Floats, memory: Floats, limit: float) -> tuple[float, list[int]] | None:
    """The fastest choice of one option a layer within the limit, and its seconds; None where nothing fits.

    Dynamic programming over partial choices that no other one beats in both seconds and bytes, cut by the relaxation's
    bound for the layers that are left. Layers with the steepest hulls come last, where the bound is tightest.
    """
    count = len(seconds)
    finite = np.isfinite(seconds)
    if not finite.any(axis=1).all() or memory.min(axis=1).sum() > limit + _slack(limit):
        return None
    limit = limit + float(_slack(limit))
    quick = fastest(seconds, memory)
    rows = np.arange(count)
    extra, room = seconds - seconds[rows, quick][:, None], limit - memory[rows, quick].sum()
    base = float(seconds[rows, quick].sum())
    if room >= 0:
        return base, quick.tolist()
    saves = memory[rows, quick][:, None] - memory
    offered = swaps(seconds, memory[None])
    order = np.flatnonzero(offered.saved[0] > 0)
    steps = KnapsackSteps(offered.layers[0][order], offered.lost[0][order], offered.saved[0][order])
    best = _rounded(extra, saves, quick, steps, -room)
    open_layers = [layer for layer in range(count) if (saves[layer][finite[layer]] > 0).any()]
    open_layers.sort(key=lambda layer: -saves[layer][finite[layer]].max())
    lost, saved = np.zeros(1), np.zeros(1)
    trail: list[tuple[int, Ints, Ints]] = []  # for each layer: option and parent of every partial choice
    remaining = np.ones(count, dtype=np.bool_)
    for layer in open_layers:
        remaining[layer] = False
        options = np.flatnonzero(finite[layer])
        parent = np.repeat(np.arange(len(lost)), len(options))
        option = np.tile(options, len(lost))
        new_lost, new_saved = lost[parent] + extra[layer, option], saved[parent] + saves[layer, option]
        bound = new_lost + _left(steps, remaining, -room - new_saved)
        keep = np.flatnonzero(bound < best[0] * (1 - 1e-12))
        keep = keep[np.lexsort((-new_saved[keep], new_lost[keep]))]
        leading = np.maximum.accumulate(np.concatenate([[-np.inf], new_saved[keep]]))[:-1]
        keep = keep[new_saved[keep] > leading]  # slower than another one and no smaller: beaten
        if not len(keep):
            return base + best[0], best[1]
        lost, saved = new_lost[keep], new_saved[keep]
        trail.append((layer, option[keep], parent[keep]))
    fits = np.flatnonzero(saved >= -room)
    if len(fits) and lost[fits[0]] < best[0]:
        at = int(fits[0])  # sorted by seconds lost
        choice = quick.tolist()
        total = float(lost[at])
        for layer, option, parent in reversed(trail):
            choice[layer] = int(option[at])
            at = int(parent[at])
        best = (total, choice)
    return base + best[0], best[1]


def _rounded(extra: Floats, saves: Floats, quick: Ints, order: KnapsackSteps, need: float) -> tuple[float, list[int]]:
    """Whole swaps in their order until it fits, then without those that turn out needless."""
    choice = quick.copy()
    saved = 0.0
    for layer, bytes_saved in zip(order.layers.tolist(), order.saved.tolist(), strict=True):
        if saved >= need:
            break
        now = saves[layer, choice[layer]] + bytes_saved
        choice[layer] = int(np.abs(saves[layer] - now).argmin())
        saved += bytes_saved
    rows = np.arange(len(extra))
    for layer in np.argsort(-extra[rows, choice]):
        spare = saves[rows, choice].sum() - need
        cheaper = np.flatnonzero((saves[layer] >= saves[layer, choice[layer]] - spare) & np.isfinite(extra[layer]))
        if len(cheaper):
            choice[layer] = cheaper[extra[layer, cheaper].argmin()]
    return float(extra[rows, choice].sum()), choice.tolist()


def _left(order: KnapsackSteps, remaining: Bools, need: Floats) -> Floats:
    """The relaxation's bound on seconds that the remaining layers lose to save so many bytes; inf where they cannot."""
    mine = remaining[order.layers]
    reached = np.concatenate([[0.0], np.cumsum(order.saved[mine])])
    lost = np.concatenate([[0.0], np.cumsum(order.lost[mine])])
    bound: Floats = np.interp(need, reached, lost)
    return np.where(need > reached[-1] + 1e-9 * abs(reached[-1]), np.inf, bound)


def _slack(value: Floats | float) -> Floats:
    """Rounding of sums is no reason to refuse what fits."""
    return np.abs(value) * 1e-12
