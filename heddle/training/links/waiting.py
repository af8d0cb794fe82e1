"""Which link ranks wait for most, step by step: for the live line.

What a rank waits for a message, or for the sum over replicas, is counted for the link that it comes over; of a sum, for
the slowest of its links. Whoever sends late is waited for, too: this says where time goes, not how fast a link is.
The seconds of all ranks travel with the sums that every step ends with anyway.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import permutations
from typing import NamedTuple

import numpy as np
from torch import Tensor

from heddle.parallel.mesh import Mesh
from heddle.runtime.recorder import NoRecorder
from heddle.spec.job import PlannedJob
from heddle.trace.lanes import Lane, Phase, message_name

MOST_GROUPS = 16  # of which every two are counted


class SlowestLink(NamedTuple):
    """The link that is waited for most, and for how long by a rank that waits for it, on average."""

    words: str
    seconds: float


class LinkTimes(NoRecorder):
    """Takes the time that this rank waits for others, where its host does the waiting."""

    def __init__(self, job: PlannedJob, mesh: Mesh) -> None:
        network, plan = job.network, job.plan
        assert network is not None
        self.plan, self.mesh = plan, mesh
        self.names = [group.name for group in network.groups]
        place = {name: number for number, name in enumerate(self.names)}
        devices = plan.devices or range(plan.world)
        self.group = [place[network.group_of[device]] for device in devices]  # of each rank
        delay, speed = network.tables()

        def message(way: tuple[int, int]) -> float:
            a, b = (devices[rank] for rank in way)
            return float(delay[a, b] + 1e6 / speed[a, b])

        ways = list(permutations(mesh.data.ranks, 2))
        self.sums = max(ways, key=message) if ways else None  # sender and receiver of the slowest link between replicas
        self.own, self.all = (np.zeros((2, len(self.names), len(self.names))) for _ in range(2))

    def span(self, *given: object, **_: object) -> AbstractContextManager[None]:
        """Time what is a wait; given are lane, name and chunk."""
        lane, name, chunk = (*given, -1)[:3]
        if lane == Lane.RECEIVE and isinstance(chunk, int):
            source = chunk - 1 if name == message_name(Lane.RECEIVE, "activation") else chunk + 1
            way = self.mesh.pipeline.ranks[self.plan.rank_of(source)], self.mesh.rank
        elif name in (Phase.GRADIENTS, Phase.MEETING) and self.sums is not None:
            way = self.sums
        else:
            return nullcontext()
        return self._timed(self.group[way[0]], self.group[way[1]])

    @contextmanager
    def _timed(self, source: int, target: int) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.own[0, source, target] += time.perf_counter() - began
        self.own[1, source, target] = 1

    def taken(self) -> list[float]:
        """Seconds, and whether there was something to wait for, since this was last asked."""
        numbers: list[float] = self.own.ravel().tolist()
        self.own[:] = 0
        return numbers

    def told(self, numbers: Sequence[Tensor]) -> None:
        """The same, summed over ranks."""
        self.all = np.array([float(number) for number in numbers]).reshape(self.all.shape)

    @property
    def slowest(self) -> SlowestLink | None:
        """Of the last step; between groups, if anything goes between them."""
        waited, count = self.all
        mean = waited / np.maximum(count, 1)
        apart = mean * ~np.eye(len(mean), dtype=bool)
        mean = apart if apart.any() else mean
        if not mean.any():
            return None
        a, b = np.unravel_index(int(mean.argmax()), mean.shape)
        words = f"{self.names[a]} → {self.names[b]}" if a != b else f"inside {self.names[a]}"
        return SlowestLink(words, float(mean[a, b]))


def with_links(recorder: NoRecorder, job: PlannedJob, mesh: Mesh) -> NoRecorder:
    """Whatever measures already; else what takes the time of links, where a run has a network and its hosts wait."""
    network = job.network
    shown = network is not None and len(network.groups) <= MOST_GROUPS and mesh.world.size > 1
    return LinkTimes(job, mesh) if shown and type(recorder) is NoRecorder else recorder
