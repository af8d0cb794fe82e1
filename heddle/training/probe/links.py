"""Measuring the link between two processes: how long the shortest message takes, and how fast long ones are."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
import torch.distributed as dist

from heddle.parallel.mesh import Mesh
from heddle.runtime.device import synchronize
from heddle.training.probe.tournament import rounds

PINGS = 8  # there and back, after two that connect
SMALLEST, LARGEST = 1 << 16, 1 << 26  # bytes of a message that is timed
TURNS = 5  # times there and back that the longest message takes at least: what is left is bandwidth
ENOUGH = 0.25  # seconds of a message that is long enough to tell the bandwidth
QUICK = 0.05


class Measured(NamedTuple):
    """From this process to all others; 0 for itself."""

    latency: list[float]  # seconds, one way
    bandwidth: list[float]  # bytes per second


def expected_seconds(processes: int, enough: float) -> float:
    """What a probe takes, about: a round's longest messages are sent both ways, and others before them."""
    return len(rounds(processes)) * (5 * enough + 0.1)


def measure_links(mesh: Mesh, device: torch.device, enough: float = ENOUGH) -> Measured:
    """This process's part of a tournament."""
    world = mesh.world
    found = Measured([0.0] * world.size, [0.0] * world.size)
    for pairs in rounds(world.size):
        for pair in pairs:
            if world.rank in pair:
                peer = pair[1] if world.rank == pair[0] else pair[0]
                end = LinkEnd(world.ranks[peer], world.group, device)
                leads = world.rank == pair[0]
                found.latency[peer] = end.latency(leads)
                least = max(enough, TURNS * 2 * found.latency[peer])
                for sends in (leads, not leads):
                    if sends:
                        found.bandwidth[peer] = end.send_longer_and_longer(least)
                    else:
                        end.receive_until_told()
        dist.barrier(group=world.group)  # so that rounds do not measure each other
    return found


class LinkEnd:
    """One end of a link under test."""

    def __init__(self, peer: int, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self.peer, self.group, self.device = peer, group, device
        self.word = torch.zeros(1, dtype=torch.int64, device=device)

    def latency(self, leads: bool) -> float:
        """Half of what it takes there and back, which is all that two clocks can tell.

        The quickest of several is the link's own; what others took longer is a busy machine's.
        """
        taken = []
        for _ in range(PINGS + 2):
            began = time.perf_counter()
            for sends in (leads, not leads):
                self._send(self.word) if sends else self._receive(self.word)
            taken.append(time.perf_counter() - began)
        return min(taken[2:]) / 2

    def send_longer_and_longer(self, enough: float, largest: int = LARGEST) -> float:
        """Send longer messages until one takes long enough; what more bytes took more time tells the speed."""
        timed: list[tuple[int, float]] = []
        size = SMALLEST
        while True:
            self._tell(size)
            timed.append((size, min(self._timed(size) for _ in range(2))))
            if timed[-1][1] >= enough or size >= largest:
                break
            # not in small steps: what a short message took says how much longer one may be
            size = min(largest, max(2 * size, int(size * min(16.0, enough / timed[-1][1]))))
        self._tell(0)
        (few, quick), (many, slow) = timed[-2 if len(timed) > 1 else -1], timed[-1]
        if len(timed) == 1 or slow - quick < slow / 4:
            return many / slow
        return (many - few) / (slow - quick)

    def receive_until_told(self) -> None:
        """The other end of that."""
        while size := self._told():
            for _ in range(2):
                self._receive(torch.empty(size, dtype=torch.uint8, device=self.device))
                self._send(self.word)

    def _timed(self, size: int) -> float:
        numbers = torch.zeros(size, dtype=torch.uint8, device=self.device)
        began = time.perf_counter()
        self._send(numbers)
        self._receive(self.word)  # that all of it has come
        return time.perf_counter() - began

    def _tell(self, number: int) -> None:
        self._send(torch.tensor([number], device=self.device))

    def _told(self) -> int:
        number = torch.empty(1, dtype=torch.int64, device=self.device)
        self._receive(number)
        return int(number)

    def _send(self, x: torch.Tensor) -> None:
        dist.send(x, self.peer, group=self.group)
        synchronize(self.device)

    def _receive(self, x: torch.Tensor) -> None:
        dist.recv(x, self.peer, group=self.group)
        synchronize(self.device)
