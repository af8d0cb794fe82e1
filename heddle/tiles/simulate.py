"""The tile graph with measured times on machines one does not have: dataflow against barriers, stealing against not.

Cores may be unequal, and share the memory's bandwidth: a tile that moves much waits for the others that do. The spread
of measured tile times is kept or left out, so that what is due to it can be named.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import HeddleError
from heddle.tiles.graph import TileGraph

BANDWIDTH = 10e9  # bytes per second that a core draws alone, where nobody measured it
SHARE = 0.5  # of what one core draws, for each core of a large machine: memory grows slower than cores


@dataclass(frozen=True)
class Machine:
    """Cores by their speed against the one that was measured."""

    speeds: tuple[float, ...]
    bandwidth: float | None  # bytes per second, all cores together; None: one core's, and SHARE of it for each

    @classmethod
    def of(cls, cores: int, slow: str | None = None, bandwidth: float | None = None) -> Machine:
        """`slow` is "8x0.45": so many of the cores run at so much of the speed."""
        if not 1 <= cores <= 4096:
            raise HeddleError(
                f"--cores must be in [1, 4096], got {cores}.",
                "It is the size of the simulated machine.",
                "Use --cores 64.",
            )
        speeds = [1.0] * cores
        if slow:
            count, _, speed = slow.partition("x")
            try:
                number, factor = int(count), float(speed)
            except ValueError:
                number, factor = -1, -1.0
            if not 0 <= number <= cores or not 0 < factor <= 100:
                raise HeddleError(
                    f"--slow {slow} is not valid.",
                    f"It says how many of the {cores} cores run at what speed.",
                    "Use --slow 8x0.45.",
                )
            speeds[cores - number :] = [factor] * number
        return cls(tuple(speeds), bandwidth)


@dataclass
class TileWorkload:
    """Tiles with what one core takes for each."""

    graph: TileGraph
    seconds: list[float]
    samples: list[list[float]]  # all that was measured, for the spread
    bandwidth: float = BANDWIDTH  # that one core draws

    def drawn(self, seed: int) -> list[float]:
        """One time for each tile, of those that it once took."""
        chance = random.Random(seed)
        return [chance.choice(each) for each in self.samples]


def workload(graph: TileGraph, times: Sequence[NDArray[np.int64]], bandwidth: float = BANDWIDTH) -> TileWorkload:
    """From traced calls on one core: worker, start and end of each tile."""
    taken = np.stack([(each[:, 2] - each[:, 1]) * 1e-9 for each in times])
    taken = np.maximum(taken, 1e-8)
    return TileWorkload(graph, np.median(taken, 0).tolist(), taken.T.tolist(), bandwidth)


class _Clock:
    """Seconds of tiles on cores that share a memory."""

    def __init__(self, work: TileWorkload, machine: Machine, seconds: Sequence[float]) -> None:
        self.machine, self.seconds = machine, seconds
        self.rate = [tile.bytes / max(time, 1e-9) for tile, time in zip(work.graph.tiles, seconds, strict=True)]
        self.drawn = 0.0  # bytes per second that running tiles ask for
        self.most = work.bandwidth  # of one core
        self.all = machine.bandwidth or self.most * (1 + SHARE * len(machine.speeds))

    def begin(self, tile: int, core: int) -> tuple[float, float]:
        """How long a tile takes now, and what it draws meanwhile."""
        speed = self.machine.speeds[core]
        wanted = min(self.rate[tile - 1], self.most) * speed
        crowd = max(1.0, (self.drawn + wanted) / self.all)
        part = min(1.0, wanted / (self.most * speed))  # of the tile that waits for memory
        self.drawn += wanted
        return self.seconds[tile - 1] / speed * (1 + part * (crowd - 1)), wanted


def dataflow(work: TileWorkload, machine: Machine, seconds: Sequence[float]) -> float:
    """Each tile as soon as its inputs are there, on whoever is free: the child just made ready first."""
    clock, children = _Clock(work, machine, seconds), work.graph.children
    waits = [0, *(max(1, len(each)) for each in work.graph.parents)]
    ready: deque[int] = deque()
    idle = sorted(range(len(machine.speeds)), key=lambda core: machine.speeds[core])
    events: list[tuple[float, int, int, float]] = []
    now = 0.0

    def release(tile: int) -> list[int]:
        found = []
        for child in children[tile]:
            waits[child] -= 1
            if not waits[child]:
                found.append(child)
        return found

    def start(tile: int, core: int) -> None:
        time, wanted = clock.begin(tile, core)
        heapq.heappush(events, (now + time, core, tile, wanted))

    ready.extend(release(0))
    while events or ready:
        while ready and idle:
            start(ready.popleft(), idle.pop())  # a thief takes the oldest; the fastest core first
        now, core, tile, wanted = heapq.heappop(events)
        clock.drawn -= wanted
        made = release(tile)
        if made:
            start(made[0], core)
            ready.extend(made[1:])
        elif ready:
            start(ready.pop(), core)
        else:
            idle.append(core)
            idle.sort(key=lambda each: machine.speeds[each])
    return now


def barriers(work: TileWorkload, machine: Machine, seconds: Sequence[float], fixed: bool) -> float:
    """One operator after another, all cores waiting for the slowest; tiles dealt out before, or taken when free."""
    clock, now = _Clock(work, machine, seconds), 0.0
    by_operator: dict[int, list[int]] = {}
    for tile, owner in enumerate(work.graph.owner, 1):
        by_operator.setdefault(owner, []).append(tile)
    cores = len(machine.speeds)
    for tiles in by_operator.values():
        clock.drawn = 0.0
        free = [(0.0, -machine.speeds[core], core) for core in range(cores)]
        heapq.heapify(free)
        loads = [0.0] * cores
        crowd = min(len(tiles), cores)
        for number, tile in enumerate(tiles):
            clock.drawn = (crowd - 1) * min(clock.rate[tile - 1], clock.most)
            if fixed:
                core = number * cores // len(tiles) if len(tiles) >= cores else number
                loads[core] += clock.begin(tile, core)[0]
            else:
                begin, order, core = heapq.heappop(free)
                loads[core] = begin + clock.begin(tile, core)[0]
                heapq.heappush(free, (loads[core], order, core))
        now += max(loads)
    return now


ENGINES: dict[str, Callable[[TileWorkload, Machine, Sequence[float]], float]] = {
    "dataflow": dataflow,
    "barriers, stealing": lambda work, machine, seconds: barriers(work, machine, seconds, fixed=False),
    "barriers, static": lambda work, machine, seconds: barriers(work, machine, seconds, fixed=True),
}


def simulated(work: TileWorkload, machine: Machine, draws: int = 5) -> dict[str, Any]:
    """Milliseconds of each engine with the spread of measured times and without, and what dataflow gains."""
    one = Machine((1.0,), math.inf)
    steady = {name: engine(work, machine, work.seconds) for name, engine in ENGINES.items()}
    spread = {
        name: statistics.fmean(engine(work, machine, work.drawn(seed)) for seed in range(draws))
        for name, engine in ENGINES.items()
    }
    alone = dataflow(work, one, work.seconds)
    gain = {name: spread[name] / spread["dataflow"] for name in ENGINES if name != "dataflow"}
    without = {name: steady[name] / steady["dataflow"] for name in ENGINES if name != "dataflow"}
    return {
        "cores": len(machine.speeds),
        "speeds": sum(machine.speeds),
        "tiles": len(work.graph.tiles),
        "one_core_milliseconds": 1e3 * alone,
        "milliseconds": {name: 1e3 * value for name, value in spread.items()},
        "speedup": {name: alone / value for name, value in spread.items()},
        "dataflow_gain": gain,
        "dataflow_gain_without_spread": without,
        "due_to_spread": {name: gain[name] - without[name] for name in gain},
    }
