"""One pace: with how small a sum of data degrees any number of devices covers each up-set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heddle.graph.dag import Ints
from heddle.planning.piper.stages import Pairs

Int32s = NDArray[np.int32]
FAR = np.iinfo(np.int32).max // 4  # a sum of data degrees that nobody reaches


@dataclass(frozen=True)
class CoverStep:
    """A stage of a plan on its way: where it stands in the tables."""

    pair: int
    tensor: int
    data: int
    in_flight: int


class PacedStages(NamedTuple):
    """Stages with degrees that keep a pace, ordered by their pair."""

    pair: Ints
    data: Int32s
    used: Int32s  # devices
    room: Int32s  # the largest sum of the later stages' data degrees with which it still fits


class Cover:
    """What a pace needs: for every up-set and number of devices the smallest sum of data degrees."""

    def __init__(
        self,
        pairs: Pairs,
        levels: Ints,
        sets: int,
        pace: float,
        devices: int,
        fewest: Ints,
        most: Ints,
        choices: PacedStages,
    ) -> None:
        """`levels` is where the pairs of each size of outer up-set begin; `sets` is how many up-sets there are."""
        self.pairs, self.sets, self.pace, self.devices, self.choices = pairs, sets, pace, devices, choices
        pair, data, used, room = choices
        # Columns 0 … devices-1 stand for less than no devices, so that k - used needs no care.
        width = 2 * devices + 1
        self.sums = np.full((sets, width), FAR, dtype=np.int32)
        self.sums[0, devices:] = 0
        flat = self.sums.reshape(-1)
        inner, outer = pairs.inner[pair], pairs.outer[pair]
        edges = np.searchsorted(pair, levels)
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if start == end:
                continue
            first = np.flatnonzero(np.diff(outer[start:end], prepend=-1))
            covered = outer[start:end][first]
            low, high = max(0, int(fewest[covered].min())), int(most[covered].max())
            if low > high:
                continue
            at = inner[start:end] * width + devices - used[start:end]
            later = flat[at[:, None] + np.arange(low, high + 1)]
            reach = np.where(later <= room[start:end, None], later + data[start:end, None], FAR)
            smallest = np.minimum.reduceat(reach, first, axis=0)
            self.sums[covered, devices + low : devices + high + 1] = np.minimum.accumulate(smallest, axis=1)
        fits = np.flatnonzero(self.sums[-1, devices:] < FAR)
        self.needed = int(fits[0]) if len(fits) else None

    def steps(self) -> list[CoverStep]:
        """The stages of a plan that keeps the pace, first stage first."""
        assert self.needed is not None
        pairs, steps = self.pairs, []
        pair, data, used, room = self.choices
        outer = pairs.outer[pair]
        at, k = self.sets - 1, self.needed
        while at:
            total = int(self.sums[at, self.devices + k])
            mine = np.arange(np.searchsorted(outer, at), np.searchsorted(outer, at, side="right"))
            later = self.sums[pairs.inner[pair[mine]], self.devices + k - used[mine]]
            one = int(mine[(later <= room[mine]) & (later + data[mine] == total)][0])
            d, n = int(data[one]), int(used[one])
            steps.append(CoverStep(int(pair[one]), n // d, d, -(-total // d)))
            at, k = int(pairs.inner[pair[one]]), k - n
        return steps
