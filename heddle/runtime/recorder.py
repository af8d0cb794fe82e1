"""Measures what a rank does: spans on one clock, written beside the run."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.errors import HeddleError
from heddle.parallel.collectives import gather
from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime.device import Mark, device_type, runs_ahead, synchronize
from heddle.trace import Span, Trace
from heddle.trace.lanes import COLLECTIVES, Lane
from heddle.trace.steps import write_rank
from heddle.trace.trace import WORK, bubble_of

STEPS = 20  # a trace keeps this many steps; more would only be larger
ROUNDS = 5  # of asking rank 0 for the time
DRIFT = 100  # steps until the clocks of two machines are compared again


class NoRecorder:
    """Measures nothing, at no cost."""

    def watched(self, mesh: Mesh) -> Mesh:
        """The mesh as it is."""
        return mesh

    def span(self, *_: Any, **__: Any) -> AbstractContextManager[None]:
        """Nothing to note."""
        return nullcontext()

    def taken(self) -> list[float]:
        """Numbers of this rank that travel with the sums of a step."""
        return []

    def told(self, numbers: Sequence[Tensor]) -> None:
        """The same, summed over ranks."""


class Recorder(NoRecorder):
    """Notes when each piece of work began and ended on this rank.

    On a GPU the times are those of the device: events are put into its stream and read when the step is over, so
    that measuring holds nothing up.
    """

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self.mesh, self.device = mesh, device
        self.clock = Clock(mesh, device)
        self.pending: list[tuple[str, str, int, int, int, Mark, Mark]] = []
        self.action: tuple[int, int] | None = None  # chunk and microbatch at work; None between steps
        self.base = self._mark()  # of a known time: taken when the device is idle, and anew each step, for events drift
        self.written = 0
        self.held: Callable[[], int] | None = None  # bytes that live now; compute spans carry them where it is known

    def watched(self, mesh: Mesh) -> Mesh:
        """The same mesh, whose axes tell this recorder of every collective along them."""

        def watch(axis: Axis, lane: Lane) -> Axis:
            return replace(axis, watch=partial(self._collective, lane))

        axes: dict[str, Any] = {name: watch(getattr(mesh, name), lane) for name, lane in COLLECTIVES.items()}
        return replace(mesh, **axes)

    @property
    def keeps(self) -> bool:
        """Whether this step goes to a file."""
        return self.written < STEPS

    @contextmanager
    def span(self, lane: str, name: str, chunk: int = -1, microbatch: int = -1, size: int = 0) -> Iterator[None]:
        """Note the time from entering to leaving."""
        self.action = chunk, microbatch
        start = self._mark()
        yield
        if self.held is not None and lane == Lane.COMPUTE:
            size = self.held()
        self.pending.append((lane, name, size, chunk, microbatch, start, self._mark()))

    def _collective(self, lane: str, name: str, work: dist.Work | None, size: int) -> Callable[[], None] | None:
        """Note a collective of the action at work that began just now; returns what to call when it was waited for."""
        if self.action is None or not self.keeps:  # an evaluation, or a step of which only the bubble is wanted
            return None
        chunk, microbatch = self.action
        start = self._mark()

        def complete(_: object = None) -> None:
            self.pending.append((lane, name, size, chunk, microbatch, start, self._mark()))

        if work is None or runs_ahead(self.device):
            return complete  # a stream shows no earlier that a collective is complete
        try:
            work.get_future().add_done_callback(complete)  # called by the transport's own thread
        except RuntimeError:  # gloo's reduce-scatter has no future
            return complete
        return None

    def _mark(self) -> Mark:
        return Mark(self.device)

    def _seconds(self, mark: Mark) -> float:
        return self.base.at + mark.since(self.base) + self.clock.offset

    def write(self, folder: Path, step: int) -> list[Span]:
        """The spans of the step that just ended; those of the first steps also go to a file of this rank."""
        synchronize(self.device)  # only a run that is traced waits for its device after every step
        spans = in_turn(
            Span(self.mesh.rank, lane, name, self._seconds(start), self._seconds(end), size, chunk, microbatch)
            for lane, name, size, chunk, microbatch, start, end in self.pending
        )
        self.pending.clear()
        self.action = None
        self.base = self._mark()
        if self.keeps:
            self.written += 1
            try:
                write_rank(folder, step, self.mesh.rank, Trace(self.mesh.world.size, spans))
            except OSError as error:
                raise HeddleError(
                    f"The trace of step {step} could not be written to {folder}.",
                    f"{error.strerror}.",
                    "Free some space, or train without --trace.",
                ) from None
        if step % DRIFT == 0:
            self.clock.compare()
        return spans


def in_turn(spans: Iterator[Span]) -> list[Span]:
    """Spans of a lane one after the other: a link that was asked for two things did the second after the first."""
    free: dict[str, float] = {}
    turns = []
    for span in sorted(spans, key=lambda span: span.end):
        start = max(span.start, free.get(span.lane, span.start))
        free[span.lane] = span.end
        turns.append(span if start == span.start else span._replace(start=start))
    return sorted(turns, key=lambda span: span.start)


def measured_bubble(spans: list[Span], mesh: Mesh) -> float:
    """Idle time over busy time of all ranks, from each one's spans: `Trace.bubble` without moving the spans."""
    work = [span for span in spans if span.lane in WORK]
    busy = sum(span.end - span.start for span in work)
    own = torch.tensor(
        [[busy, min(span.start for span in work), max(span.end for span in work)]],
        dtype=torch.float64,
        device=device_type(),
    )
    ranks = gather(own, mesh.world)
    elapsed = float(ranks[:, 2].max() - ranks[:, 1].min())
    return bubble_of(mesh.world.size, elapsed, float(ranks[:, 0].sum()))


class Clock:
    """Rank 0's time on every rank. Ranks of one machine share a clock; the others ask how far theirs is behind."""

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self.world, self.device = mesh.world, device
        self.offset = 0.0  # what to add to this rank's clock
        machines: list[str | None] = [None] * self.world.size
        if self.world.size > 1:
            dist.all_gather_object(machines, machine(), group=mesh.host.group)
        self.far = machines[self.world.rank] != machines[0]
        self.several = len(set(machines)) > 1
        self.compare()

    def compare(self) -> None:
        """Ask rank 0 for the time. Each answer is late by the way it took, so the latest one is nearest."""
        if not self.several:
            return
        offset = float("-inf")
        for _ in range(ROUNDS):
            dist.barrier(group=self.world.group)
            now = torch.tensor(time.perf_counter(), dtype=torch.float64, device=self.device)
            dist.broadcast(now, src=self.world.ranks[0], group=self.world.group)
            offset = max(offset, float(now) - time.perf_counter())
        if self.far:
            self.offset = offset


def machine() -> str:
    """A name that processes share if and only if they share a clock: containers of one machine do."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else socket.gethostname()
