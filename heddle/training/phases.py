"""What a rank is doing, and when it last made progress: what the watchdog watches.

A run does other things than steps, and these take their own time: it compiles in its first step, writes hundreds of
gigabytes, evaluates. Slow progress is not a hang, so every phase reports its progress, and has its
own limit for how long it may go without any.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

SHORTEST = 60.0  # seconds: no step that is quicker than this is a hang
TIMES_USUAL = 20  # nor one that is not this many times slower than usual


class RunPhase(StrEnum):
    """The kinds of work of a run."""

    PREPARE = "prepare"  # tokens, devices, the run folder, the weights
    FIRST_STEP = "first step"  # with compiling and allocating
    STEP = "step"
    EVALUATE = "evaluate"
    SAVE = "save"
    MEETING = "meeting"  # of replicas or sites: over slow links, and with those who come later


# Seconds that may pass without progress while nothing is known of how long it usually takes: a token file whose
# checksum is computed, a graph that is compiled, a file of which a slow file system forces the last block to its disks.
LIMITS = {
    RunPhase.PREPARE: 1800.0,
    RunPhase.FIRST_STEP: 600.0,
    RunPhase.STEP: 600.0,
    RunPhase.EVALUATE: 600.0,
    RunPhase.SAVE: 1800.0,
    RunPhase.MEETING: 3600.0,
}
MEASURED = {RunPhase.STEP, RunPhase.EVALUATE}  # what comes in equal pieces, so that it is known after the first


class Phases:
    """One rank's phase and its progress; told by whoever does the work, in any thread."""

    def __init__(self, limit: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`limit` is how many seconds a step may take; 0: many times as long as usual."""
        self.limit, self.clock = limit, clock
        self.phase = RunPhase.PREPARE
        self.count = 0  # how often there was progress
        self.steps = 0
        self.moved = self.began = clock()
        self.times: dict[RunPhase, list[float]] = {phase: [] for phase in MEASURED}

    def tick(self) -> None:
        """Something came further."""
        self.count += 1
        self.moved = self.clock()

    def piece(self) -> None:
        """A step, or a batch of an evaluation, is done."""
        if self.phase in self.times:
            self.times[self.phase].append(self.clock() - self.began)
        if self.phase in (RunPhase.STEP, RunPhase.FIRST_STEP):
            self.steps += 1
        self.tick()
        self.began = self.moved

    def enter(self, phase: RunPhase) -> None:
        """Begin with something else."""
        if phase is not self.phase:
            self.phase = phase
            self.tick()
            self.began = self.moved

    def begin_anew(self) -> None:
        """What comes is prepared anew, and its first step compiles and allocates."""
        self.enter(RunPhase.PREPARE)
        self.steps = 0

    @contextmanager
    def during(self, phase: RunPhase) -> Iterator[None]:
        """A phase within another."""
        before = self.phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    @property
    def usual(self) -> float | None:
        """Seconds that a piece of this phase takes as a rule; None before the first."""
        known = self.times.get(self.phase)
        return statistics.median(known[-50:]) if known else None

    def allowed(self) -> float:
        """Seconds that may pass without progress."""
        if self.phase is RunPhase.STEP and self.limit:
            return self.limit
        if self.usual is None:
            return max(LIMITS[self.phase], self.limit)
        return max(SHORTEST, self.limit, TIMES_USUAL * self.usual)

    def silent(self) -> float:
        """Seconds since the last progress."""
        return self.clock() - self.moved
