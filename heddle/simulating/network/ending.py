"""What a step ends with, over links that differ: sums of gradients and agreement; and so, when ranks begin the next.

Ranks do not begin a step together: each does when it knows what all agree on. A message is sent when its receiver has
said that it expects it, which that one says first of all; so a rank that begins late holds up its neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TIED = 4.0  # bytes of a number of a tied embedding's gradient, which the ends of a pipeline send each other exactly


@dataclass(frozen=True)
class NetworkStep:
    """What a step takes over a network, and of that what the pipelines, the replicas and the last sum take."""

    seconds: float
    pipeline: float  # until the last stage of the last pipeline is done
    exchange: float  # of gradients, between replicas and of a tied embedding, that nothing hides
    agreement: float  # on loss and gradient norm


class Ending(NamedTuple):
    """What follows when the pipelines are done; by replica and stage, in seconds."""

    places: Ints  # (tensor, data, pipeline): the device of each rank
    delay: Floats  # from device to device
    speed: Floats  # bytes per second from device to device
    exchanges: Floats  # (pipeline,): of the sum over each stage's replicas, what nothing hides; but for `tied_sums`
    last: int  # the stage that holds the other end of a tied embedding
    tied: float  # bytes of its gradient that one tensor rank sends; 0: it is not tied, or one stage has both ends
    tied_sums: tuple[float, float]  # of the sum over replicas of that gradient, on the first and the last stage
    alone: bool  # whether replicas take local steps, and meet now and then

    def done(self, ends: Floats) -> Floats:
        """When each rank has all its gradients, if its pipeline is done at `ends`."""
        together = ends if self.alone else np.broadcast_to(ends.max(axis=0), ends.shape)
        done: Floats = together + self.exchanges
        if self.tied:
            whole = tied_ends(ends, self.places, self.tied, self.last, self.delay, self.speed)
            for stage, at, sums in zip((0, self.last), whole.T, self.tied_sums, strict=True):
                # the links between replicas carry one sum after the other
                done[:, stage] = np.maximum(done[:, stage], at if self.alone else at.max()) + sums
        return done

    def known(self, done: Floats) -> Floats:
        """When each rank knows what all together have, and so begins with the next step."""
        if self.alone:
            replicas = [agreed(done[[r]], self.places[:, [r]], self.delay) for r in range(len(done))]
            return np.concatenate(replicas)
        return agreed(done, self.places, self.delay)

    def step(self, ends: Floats, update: float) -> NetworkStep:
        """The whole step, of pipelines that are done at `ends` and an optimizer that takes `update`."""
        pipeline, done = float(ends.max()), self.done(ends)
        whole, known = float(done.max()), float(self.known(done)[:, 0].max())
        return NetworkStep(known + update, pipeline, whole - pipeline, known - whole)


def tied_ends(ends: Floats, places: Ints, size: float, last: int, delay: Floats, speed: Floats) -> Floats:
    """(data, 2): when the first and the last stage of each pipeline have the sum of what both have, of `size` bytes.

    Each sends its part when it is done, to the other, which has expected it since the step began.
    """
    a, b = places[..., 0], places[..., last]
    there, back = ((delay[way] + size / speed[way]).max(axis=0) for way in ((a, b), (b, a)))
    first, other = ends[:, 0], ends[:, last]
    return np.stack([np.maximum(first, other + back), np.maximum(other, first + there)], axis=1)


def agreed(done: Floats, places: Ints, delay: Floats) -> Floats:
    """(data, pipeline): when each rank has the numbers of all others, all of which are ready at `done`.

    All send a few numbers to all, once the receiver has said that it expects them: when it is done itself.
    """
    everyone, ready = places.ravel(), np.broadcast_to(done, places.shape).ravel()
    late = delay[np.ix_(everyone, everyone)]
    asked = np.maximum(ready, ready[:, None] + late)  # by receiver and sender
    known: Floats = (asked + late.T).max(axis=1).reshape(places.shape).max(axis=0)
    return known
