"""What an order of work is searched for: seconds of each part of a microbatch's way, and bytes that ranks may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from heddle.errors import HeddleError
from heddle.schedule import Action, ChunkPlacement, Kind, Schedule
from heddle.simulating.replay import step_time


@dataclass(frozen=True)
class Stages:
    """A pipeline to be ordered. Lists have an entry for each chunk in model order, `limits` one for each rank."""

    pipeline: int
    microbatches: int
    forward: Sequence[float]  # seconds of one microbatch
    backward_input: Sequence[float]
    backward_weight: Sequence[float]
    transfer: float = 0.0  # seconds of a message between two ranks
    saved: Sequence[float] = ()  # bytes from a forward to the first half of its backward; empty: 1 each
    owed: Sequence[float] = ()  # bytes from there to the second half; empty: as saved
    limits: Sequence[float] = ()  # bytes that a rank may hold of all these; empty: any
    placement: ChunkPlacement = ChunkPlacement.LOOP

    def __post_init__(self) -> None:
        chunks = len(self.forward)
        if chunks % self.pipeline or not chunks:
            raise HeddleError(
                f"{chunks} chunks cannot be divided among pipeline = {self.pipeline} ranks.",
                "Every rank holds the same number of chunks.",
                f"Give the seconds of {max(1, chunks // self.pipeline) * self.pipeline} chunks.",
            )
        sizes = {len(each) for each in (self.backward_input, self.backward_weight)} | {
            len(each) for each in (self.saved, self.owed) if each
        }
        if sizes != {chunks} or len(self.limits) not in (0, self.pipeline):
            raise HeddleError(
                f"The lists of an order's stages differ in length: {chunks} forwards, {sorted(sizes)} others, "
                f"{len(self.limits)} limits.",
                "Seconds and bytes have an entry for each chunk, limits one for each rank.",
                f"Give {chunks} of each, and {self.pipeline} limits or none.",
            )
        for rank, limit in enumerate(self.limits):
            least = sum(max(self.bytes_of(Kind.FORWARD, chunk), self.owes(chunk)) for chunk in self.chunks_of(rank))
            if limit < least:
                raise HeddleError(
                    f"Rank {rank} may hold {limit:.6g}, but one microbatch needs {least:.6g} there.",
                    "A rank holds at least one microbatch in each of its chunks.",
                    f"Allow {least:.6g} or more.",
                )

    @property
    def virtual(self) -> int:
        """Chunks per rank."""
        return len(self.forward) // self.pipeline

    @cached_property
    def seconds(self) -> dict[Kind, Sequence[float]]:
        """Of each kind of action in each chunk."""
        whole = [a + b for a, b in zip(self.backward_input, self.backward_weight, strict=True)]
        return {
            Kind.FORWARD: self.forward,
            Kind.BACKWARD: whole,
            Kind.BACKWARD_INPUT: self.backward_input,
            Kind.BACKWARD_WEIGHT: self.backward_weight,
        }

    def owes(self, chunk: int) -> float:
        """Bytes that the first half of a backward leaves."""
        return self.owed[chunk] if self.owed else self.saves(chunk)

    def saves(self, chunk: int) -> float:
        """Bytes that a forward leaves."""
        return self.saved[chunk] if self.saved else 1.0

    def bytes_of(self, kind: Kind, chunk: int) -> float:
        """By how much an action changes what its rank holds."""
        return kind.holds * self.saves(chunk) + kind.owes * self.owes(chunk)

    def rank_of(self, chunk: int) -> int:
        """The rank that holds a chunk."""
        return self.placement.rank_of(chunk, self.pipeline)

    def chunks_of(self, rank: int) -> tuple[int, ...]:
        """The chunks that a rank holds."""
        return self.placement.chunks_of(rank, self.pipeline, self.virtual)

    def schedule(self, ranks: Sequence[Sequence[Action]]) -> Schedule:
        """An order of these stages."""
        orders = tuple(tuple(order) for order in ranks)
        return Schedule("searched", self.pipeline, self.virtual, self.microbatches, orders, self.placement)

    def fits(self, schedule: Schedule) -> bool:
        """Whether no rank ever holds more than it may."""
        return not self.limits or all(
            self.peak(order) <= limit * (1 + 1e-12) for order, limit in zip(schedule.ranks, self.limits, strict=True)
        )

    def peak(self, order: Sequence[Action]) -> float:
        """The most that a rank holds."""
        held = most = 0.0
        for kind, chunk, _ in order:
            held += self.bytes_of(kind, chunk)
            most = max(most, held)
        return most

    def time(self, schedule: Schedule) -> float:
        """Seconds of a step."""
        whole, late = self.seconds[Kind.BACKWARD], self.backward_weight
        return step_time(schedule, self.forward, whole, self.transfer, weight=late)

    def bound(self) -> float:
        """Seconds that no order takes less than.

        A rank has all its work to do from when the first microbatch can reach it. And until that has come back from the
        end of the model, a rank has but the forwards to do that it may hold.
        """
        chunks = len(self.forward)
        there = [0.0]  # when the first microbatch can be at a chunk
        for chunk in range(chunks - 1):
            there.append(there[-1] + self.forward[chunk] + self._message(chunk))
        back = [0.0] * chunks
        back[-1] = there[-1] + self.forward[-1]
        for chunk in reversed(range(chunks - 1)):
            back[chunk] = back[chunk + 1] + self.backward_input[chunk + 1] + self._message(chunk)
        least = back[0] + self.backward_input[0] + self.backward_weight[0]
        for rank in range(self.pipeline):
            own = self.chunks_of(rank)
            start = min(there[chunk] for chunk in own)
            work = self.microbatches * sum(
                cost[c] for c in own for k, cost in self.seconds.items() if k != Kind.BACKWARD
            )
            waits = 0.0
            if self.limits:
                room = self.limits[rank] / min(self.saves(chunk) for chunk in own)
                most = min(int(room + 1e-9), self.microbatches * len(own)) * max(self.forward[chunk] for chunk in own)
                waits = max(0.0, min(back[chunk] for chunk in own) - start - most)
            least = max(least, start + work + waits)
        return least

    def _message(self, chunk: int) -> float:
        """Seconds between a chunk and the next."""
        return 0.0 if self.rank_of(chunk) == self.rank_of(chunk + 1) else self.transfer
