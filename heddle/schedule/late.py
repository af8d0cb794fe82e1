"""Training that does not wait for the backward: when updates are applied, and the order of work without a flush.

A pipeline that applies every update before the next forward must drain once per step. These methods let a chunk go on
with weights that miss its last few updates. What is computed depends on the delays alone: microbatches of step s go
through chunk k, forward and backward, at the weights that s - delay(k) updates have made. The order of work decides
only how long that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from heddle.errors import HeddleError, nearest
from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.placement import ChunkPlacement

SYNCHRONOUS = "synchronous"


@dataclass(frozen=True)
class UpdateRule:
    """A method, by name.

    `delay`: by how many updates chunk k of K is behind. `lead`: how many microbatches a chunk takes forward before the
    first one comes back, given its delay and the microbatches of a step.
    """

    name: str
    delay: Callable[[int, int], int]
    lead: Callable[[int, int, int], int]
    replays: bool = False  # the backward repeats the forward at the newest weights, from the kept input
    # RING: first and last chunk share a rank, K chunks are on K - 1 ranks, and a tied weight is one
    placement: ChunkPlacement = ChunkPlacement.LOOP
    about: str = ""


def _behind(chunk: int, chunks: int) -> int:
    """Updates that come back to a chunk only after those behind it: one for each."""
    return chunks - 1 - chunk


def _steps(chunk: int, chunks: int, microbatches: int) -> int:
    """As many whole steps as the delay: forward of step t, backward of step t - delay (the published order)."""
    return _behind(chunk, chunks) * microbatches


def _twice_in_flight(chunk: int, chunks: int, microbatches: int) -> int:
    """Twice 1F1B's warm-up, where the step has as many microbatches: with 1F1B's, what a rank needs next is always
    under way, and it waits for every message.

    No more than a step, for a chunk needs the update of the step before the last; and more than the next chunk's, or
    the two would take turns.
    """
    behind = _behind(chunk, chunks)
    return min(2 * behind, max(behind, microbatches - chunk), microbatches)


UPDATES: dict[str, UpdateRule] = {
    rule.name: rule
    for rule in (
        UpdateRule(
            "ouroboros",
            _behind,
            _steps,
            placement=ChunkPlacement.RING,
            about="exact gradients of old weights, first and last module on one device (arXiv 1909.06695)",
        ),
        UpdateRule(
            "features-replay",
            _behind,
            _steps,
            replays=True,
            about="old inputs at the newest weights: one more forward, no old weights (arXiv 1807.04511)",
        ),
        UpdateRule("pipedream", _behind, _steps, about="weights kept for every step in flight (arXiv 1806.03377)"),
        UpdateRule(
            "2bw",
            lambda _chunk, _chunks: 1,
            _twice_in_flight,
            about="every update one step late, two versions of the weights (arXiv 2006.09503)",
        ),
    )
}
UPDATE_NAMES = (SYNCHRONOUS, *UPDATES)


def update_rule(name: str) -> UpdateRule:
    """The method that a plan file calls by this name."""
    if name not in UPDATES:
        raise HeddleError(
            f"Unknown update method '{name}'.",
            "It says when a plan applies its updates.",
            nearest(name, UPDATE_NAMES),
        )
    return UPDATES[name]


class Update(NamedTuple):
    """Apply the gradients that have come back to these chunks of a rank."""

    chunks: tuple[int, ...]
    step: int  # whose gradients; where two chunks share a rank, those of the last chunk


@dataclass(frozen=True)
class LateSchedule:
    """What each rank does in step after step, endlessly. Microbatches are numbered over all steps."""

    rule: UpdateRule
    pipeline: int
    microbatches: int  # per step

    @property
    def chunks(self) -> int:
        """Pieces that the layers are cut into."""
        return self.rule.placement.chunks(self.pipeline, 1)

    @cached_property
    def delays(self) -> tuple[int, ...]:
        """By how many updates each chunk is behind."""
        return tuple(self.rule.delay(chunk, self.chunks) for chunk in range(self.chunks))

    @cached_property
    def leads(self) -> tuple[int, ...]:
        """By how many microbatches the forwards of each chunk are ahead of its backwards."""
        return tuple(self.rule.lead(chunk, self.chunks, self.microbatches) for chunk in range(self.chunks))

    def rank_of(self, chunk: int) -> int:
        """The rank that holds a chunk."""
        return self.rule.placement.rank_of(chunk, self.pipeline)

    def chunks_of(self, rank: int) -> tuple[int, ...]:
        """The chunks that a rank holds."""
        return self.rule.placement.chunks_of(rank, self.pipeline, 1)

    def version(self, chunk: int, step: int) -> int:
        """Which weights a step's microbatches meet in a chunk, by how often they have changed.

        Where a rank has both ends, a tied weight changes in every step, by the output's part of its gradient.
        """
        both_ends = len(self.chunks_of(self.rank_of(chunk))) > 1
        return max(0, step if both_ends else step - self.delays[chunk])

    def step(self, rank: int, number: int) -> Iterator[Action | Update]:
        """What a rank does in one step: its microbatches forward, and back those that have come round."""
        count = self.microbatches
        chunks = self.chunks_of(rank)
        for chunk in chunks:
            for microbatch in range(number * count, (number + 1) * count):
                yield Action(Kind.FORWARD, chunk, microbatch)
                back = microbatch - self.leads[chunk]
                if back >= 0:
                    yield Action(Kind.BACKWARD, chunk, back)
                    if len(chunks) == 1 and (back + 1) % count == 0:
                        yield Update(chunks, back // count)
        if len(chunks) > 1:  # both at the end of the step, as published: a tied weight gets one update from both
            yield Update(chunks, number)

    def drain(self, rank: int, steps: int) -> Iterator[Action | Update]:
        """What is left to do after so many steps, without any new forward."""
        count = self.microbatches
        chunk = self.chunks_of(rank)[0]  # another one on the same rank is the last, which leaves nothing
        for back in range(max(0, steps * count - self.leads[chunk]), steps * count):
            yield Action(Kind.BACKWARD, chunk, back)
            if (back + 1) % count == 0:
                yield Update((chunk,), back // count)

    def unrolled(self, steps: int) -> Schedule:
        """So many steps as one schedule, for the simulator, the drawing and the check for deadlock."""
        ranks = []
        for rank in range(self.pipeline):
            order = [action for number in range(steps) for action in self.step(rank, number)]
            order += self.drain(rank, steps)
            ranks.append(tuple(action for action in order if isinstance(action, Action)))
        return Schedule(self.rule.name, self.pipeline, 1, steps * self.microbatches, tuple(ranks), self.rule.placement)
