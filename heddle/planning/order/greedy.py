"""An order of work made as it goes: each rank does what others wait for, then what it may start, then fills with what
nobody waits for.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

from heddle.planning.order.stages import Stages
from heddle.schedule import Action, Kind, Schedule


class Habit(NamedTuple):
    """How the greedy order decides."""

    patience: float  # waits for the next message rather than fill, if it comes within that share of the filling
    forwards_first: bool  # takes a forward before a backward that is ready, too
    spare: int = 0  # microbatches of room that it leaves


def greedy(stages: Stages, habit: Habit) -> Schedule | None:
    """One order; None where the habit runs into a dead end."""
    return _Greedy(stages, habit).order()


class _Greedy:
    def __init__(self, stages: Stages, habit: Habit) -> None:
        self.stages, self.habit = stages, habit
        ranks = range(stages.pipeline)
        self.orders: list[list[Action]] = [[] for _ in ranks]
        self.held = [0.0] * stages.pipeline
        chunks = range(len(stages.forward))
        # when the inputs of each chunk's next microbatches are there
        self.forwards: list[deque[float]] = [deque() for _ in chunks]
        self.backwards: list[deque[float]] = [deque() for _ in chunks]
        self.forwards[0].extend([0.0] * stages.microbatches)
        self.done = {(kind, chunk): 0 for kind in Kind for chunk in chunks}

    def order(self) -> Schedule | None:
        stages = self.stages
        events = [(0.0, rank) for rank in range(stages.pipeline)]  # when a rank looks for something to do
        busy = [0.0] * stages.pipeline
        while events:
            now, rank = heapq.heappop(events)
            if now < busy[rank]:
                continue
            action = self._choose(rank, now)
            if action is not None:
                busy[rank] = self._do(rank, action, now)
                heapq.heappush(events, (busy[rank], rank))
                # whoever waits may have got a message
                for other in {stages.rank_of(c) for c in (action.chunk - 1, action.chunk + 1) if c >= 0} - {rank}:
                    if other < stages.pipeline:
                        heapq.heappush(events, (max(busy[other], busy[rank]), other))
            elif (later := self._next(rank, now)) is not None:
                heapq.heappush(events, (later, rank))
        done = sum(map(len, self.orders)) == 3 * len(stages.forward) * stages.microbatches
        return stages.schedule(self.orders) if done else None

    def _do(self, rank: int, action: Action, now: float) -> float:
        stages, (kind, chunk, _) = self.stages, action
        end = now + stages.seconds[kind][chunk]
        self.orders[rank].append(action)
        self.held[rank] += stages.bytes_of(kind, chunk)
        self.done[kind, chunk] += 1
        if kind is Kind.FORWARD:
            self.forwards[chunk].popleft()
            if chunk + 1 < len(stages.forward):
                self.forwards[chunk + 1].append(end + stages._message(chunk))
            else:
                self.backwards[chunk].append(end)
        elif kind is Kind.BACKWARD_INPUT:
            self.backwards[chunk].popleft()
            if chunk:
                self.backwards[chunk - 1].append(end + stages._message(chunk - 1))
        return end

    def _choose(self, rank: int, now: float) -> Action | None:
        own = self.stages.chunks_of(rank)
        backward = next((c for c in reversed(own) if self.backwards[c] and self.backwards[c][0] <= now), None)
        forward = next((c for c in reversed(own) if self._may_start(rank, c) and self.forwards[c][0] <= now), None)
        picks = [(Kind.BACKWARD_INPUT, backward), (Kind.FORWARD, forward)]
        for kind, chunk in picks[::-1] if self.habit.forwards_first else picks:
            if chunk is not None:
                return Action(kind, chunk, self.done[kind, chunk])
        pending = [c for c in own if self.done[Kind.BACKWARD_WEIGHT, c] < self.done[Kind.BACKWARD_INPUT, c]]
        if not pending:
            return None
        chunk = min(pending, key=lambda c: self.done[Kind.BACKWARD_WEIGHT, c])
        soon, fills = self._next(rank, now), self.stages.backward_weight[chunk]
        if soon is not None and soon - now < self.habit.patience * fills:
            return None
        return Action(Kind.BACKWARD_WEIGHT, chunk, self.done[Kind.BACKWARD_WEIGHT, chunk])

    def _next(self, rank: int, now: float) -> float | None:
        """When a message that this rank can use will be there."""
        own = self.stages.chunks_of(rank)
        coming = [self.backwards[c][0] for c in own if self.backwards[c]]
        coming += [self.forwards[c][0] for c in own if self._may_start(rank, c)]
        return min((each for each in coming if each > now), default=None)

    def _may_start(self, rank: int, chunk: int) -> bool:
        """Whether there is a forward, and room for it, and beside it for what its rank's later chunks need to go on."""
        stages = self.stages
        if not self.forwards[chunk]:
            return False
        if not stages.limits:
            return True
        later = sum(stages.saves(other) for other in stages.chunks_of(rank) if other > chunk)
        grows = max(0.0, stages.owes(chunk) - stages.saves(chunk))
        room = stages.limits[rank] - self.habit.spare * stages.saves(chunk) * (self.held[rank] > 0)
        return self.held[rank] + stages.saves(chunk) + grows + later <= room * (1 + 1e-12)
