"""Measures what a rank does: spans on one clock, written beside the run."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh
from heddle.trace import COMPUTE, Span, Trace

STEPS = 20  # a trace keeps this many steps; more would only be larger
ROUNDS = 5  # of asking rank 0 for the time


class NoRecorder:
    """Measures nothing, at no cost."""

    def span(self, *_: object, **__: object) -> AbstractContextManager[None]:
        """Nothing to note."""
        return nullcontext()


class Recorder:
    """Notes when each piece of work began and ended on this rank.

    On a GPU the times are those of the device: events are put into its stream and read when the step is over, so
    that measuring holds nothing up.
    """

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self.mesh = mesh
        self.cuda = device.type == "cuda"
        self.offset = clock_offset(mesh)  # what to add to this clock to get rank 0's
        self.pending: list[tuple[str, str, int, int, int, object, object]] = []
        self.base_event, self.base_time = (self._mark(), time.perf_counter()) if self.cuda else (None, 0.0)
        self.kept: list[Span] = []
        self.steps = 0

    @contextmanager
    def span(self, lane: str, name: str, chunk: int = -1, microbatch: int = -1, size: int = 0) -> Iterator[None]:
        """Note the time from entering to leaving."""
        start = self._mark()
        yield
        self.pending.append((lane, name, size, chunk, microbatch, start, self._mark()))

    def _mark(self) -> object:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, mark: object) -> float:
        if isinstance(mark, float):
            return mark + self.offset
        assert isinstance(mark, torch.cuda.Event)
        assert isinstance(self.base_event, torch.cuda.Event)
        return self.base_time + self.base_event.elapsed_time(mark) / 1000 + self.offset

    def write(self, folder: Path, step: int) -> list[Span]:
        """The spans of the step that just ended; those of the first steps also go to a file of this rank."""
        spans = [
            Span(self.mesh.rank, lane, name, self._seconds(start), self._seconds(end), size, chunk, microbatch)
            for lane, name, size, chunk, microbatch, start, end in self.pending
        ]
        self.pending.clear()
        if self.steps < STEPS:
            self.steps += 1
            folder.mkdir(exist_ok=True)
            path = folder / f"step-{step:08}-rank-{self.mesh.rank:05}.jsonl"
            Trace(self.mesh.world.size, spans).write(path)
        return spans


def read_step(folder: Path, step: int) -> Trace:
    """The trace of one step, over all ranks."""
    parts = [Trace.read(path) for path in sorted(folder.glob(f"step-{step:08}-rank-*.jsonl"))]
    return Trace(parts[0].ranks, [span for part in parts for span in part.spans])


def measured_bubble(spans: list[Span], mesh: Mesh) -> float:
    """Idle time over busy time of all ranks, from each one's spans: `Trace.bubble` without moving the spans."""
    work = [span for span in spans if span.lane == COMPUTE]
    busy = torch.tensor(sum(span.end - span.start for span in work), dtype=torch.float64)
    edges = torch.tensor([-min(s.start for s in work), max(s.end for s in work)], dtype=torch.float64)
    if mesh.world.size > 1:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        busy, edges = all_reduce(busy.to(device), mesh.world), edges.to(device)
        all_reduce(edges, mesh.world, dist.ReduceOp.MAX)
    elapsed = mesh.world.size * float(edges.sum())
    return (elapsed - float(busy)) / float(busy)


def clock_offset(mesh: Mesh) -> float:
    """How far this machine's clock is behind that of rank 0; ranks of one machine share a clock.

    Each answer is late by the way it took, so the earliest-looking one is nearest.
    """
    if mesh.world.size == 1:
        return 0.0
    hosts: list[str | None] = [None] * mesh.world.size
    dist.all_gather_object(hosts, socket.gethostname(), group=mesh.world.group)
    best = float("-inf")
    for _ in range(ROUNDS):
        dist.barrier(group=mesh.world.group)
        now = torch.tensor(time.perf_counter(), dtype=torch.float64)
        if torch.cuda.is_available():
            now = now.cuda()
        dist.broadcast(now, src=mesh.world.ranks[0], group=mesh.world.group)
        best = max(best, float(now) - time.perf_counter())
    return 0.0 if hosts[mesh.world.rank] == hosts[0] else best
