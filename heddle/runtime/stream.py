"""How far the device of a rank has come, where its host only hands out work and learns of nothing.

A host that is ahead of its GPU waits for all of it at once, so its stack does not show where the GPU stands. Marks in
the GPU's stream do: one before and one after every piece of work, which another thread asks about without waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime.device import Mark
from heddle.runtime.recorder import NoRecorder
from heddle.trace.lanes import COLLECTIVES, Lane

KEPT = 4096  # marks, until those that were reached are forgotten


class Place(NamedTuple):
    """What the device does until it reaches a mark."""

    operation: str
    chunk: int = -1
    microbatch: int = -1
    waits_for: tuple[int, ...] = ()  # ranks; empty: it is busy by itself


class StreamMarks(NoRecorder):
    """Takes a recorder's place, and marks instead of measuring."""

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self.mesh, self.device = mesh, device
        self.marks: deque[tuple[Place, Mark]] = deque()
        self.action = (-1, -1)  # chunk and microbatch at work
        self.reached = 0

    def watched(self, mesh: Mesh) -> Mesh:
        """The same mesh, whose axes tell of every collective along them."""

        def watch(axis: Axis, name: str) -> Axis:
            others = tuple(rank for i, rank in enumerate(axis.ranks) if i != axis.rank)
            return replace(axis, watch=partial(self._collective, name, others))

        axes: dict[str, Any] = {name: watch(getattr(mesh, name), lane) for name, lane in COLLECTIVES.items()}
        return replace(mesh, **axes, world=watch(mesh.world, "world"))

    def span(self, *about: object, **_: object) -> AbstractContextManager[None]:
        """Mark where an action, a message or an update begins and ends."""
        match about:
            case (str(lane), str(name), int(chunk), int(microbatch), *_):
                return self._span(lane, name, chunk, microbatch)
            case (str(lane), str(name), *_):
                return self._span(lane, name, -1, -1)
        return super().span()

    @contextmanager
    def _span(self, lane: str, name: str, chunk: int, microbatch: int) -> Iterator[None]:
        self.action = chunk, microbatch
        self._put(Place("what came before", chunk, microbatch))
        yield
        source = self._sender(name, chunk) if lane == Lane.RECEIVE else ()
        self._put(Place(name if lane == Lane.RECEIVE else f"compute {name}", chunk, microbatch, source))

    def _sender(self, name: str, chunk: int) -> tuple[int, ...]:
        pipeline = self.mesh.pipeline
        neighbor = chunk - 1 if name.endswith("activation") else chunk + 1
        return (pipeline.ranks[neighbor % pipeline.size],)

    def _collective(
        self, axis: str, others: tuple[int, ...], name: str, _work: dist.Work | None, _size: int
    ) -> Callable[[], None]:
        self._put(Place(f"compute what goes into the {name} over {axis}", *self.action))
        return partial(self._put, Place(f"{name} over {axis}", *self.action, others))

    def _put(self, place: Place) -> None:
        self.marks.append((place, Mark(self.device, timed=False)))
        if len(self.marks) > KEPT:
            self.poll()

    def poll(self) -> int:
        """How many marks the device has reached; asks without waiting."""
        while self.marks and self.marks[0][1].reached():
            self.marks.popleft()
            self.reached += 1
        return self.reached

    def at(self) -> Place | None:
        """What the device is doing; None where it has done all that it was given."""
        self.poll()
        return self.marks[0][0] if self.marks else None
