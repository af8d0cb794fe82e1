"""1F1B with a longer warm-up: between 1F1B and GPipe, for pipelines whose messages take long.

The least warm-up of 1F1B covers the compute of the ranks behind, not the messages to them and back: with a latency of l
a hop, every microbatch waits for about l more. GPipe pays latency only when it fills and drains, and holds everything.
Here a rank starts `extra_warmup` microbatches more for each rank behind it, as each of these is one hop further away:
0 is 1F1B, 1 doubles the warm-up, and many are GPipe's order on all ranks but the last, whose gradients leave at once.
Event replay, forward 1, backward 2, 8 ranks, 32 microbatches, efficiency at l = 0, 1, 5: GPipe 0.82, 0.73, 0.51; 1F1B
0.82, 0.52, 0.21; doubled warm-up 0.82, 0.73, 0.34.
"""

from __future__ import annotations

from heddle.schedule.actions import Action, Kind, Schedule
from heddle.schedule.rule import Column, Rule, flush_bubble
from heddle.schedule.rules.one_f_one_b import alternate

USUAL = 1  # doubled


def deep_rule(extra_warmup: int) -> Rule:
    """1F1B with so many more microbatches started for each rank behind."""

    def build(pipeline: int, microbatches: int, virtual: int = 1) -> Schedule:
        assert virtual == 1
        order = []
        for rank in range(pipeline):
            forwards = [Action(Kind.FORWARD, rank, i) for i in range(microbatches)]
            backwards = [Action(Kind.BACKWARD, rank, i) for i in range(microbatches)]
            order.append(alternate(forwards, backwards, warmup=(1 + extra_warmup) * (pipeline - rank - 1)))
        return Schedule("deep-1f1b", pipeline, 1, microbatches, tuple(order))

    def in_flight(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
        """The warm-up and one more, as far as there are microbatches."""
        import numpy as np  # here, so that drawing a schedule does without it

        return np.minimum((1 + extra_warmup) * (pipeline - rank - 1) + 1, microbatches)

    return Rule(
        "deep-1f1b", build, flush_bubble, in_flight, most_virtual=1, deepened=deep_rule, over_network=(1, 2, 3, 5)
    )


DEEP_ONE_F_ONE_B = deep_rule(USUAL)
