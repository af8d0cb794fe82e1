"""1F1B: one forward, one backward (PipeDream-Flush, Narayanan et al. 2021; PTD-P §2.2.1, Figure 4 top)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat

from heddle.schedule.actions import Action, Kind, Schedule, actions_of
from heddle.schedule.rule import Column, Rule, flush_bubble


def one_f_one_b(pipeline: int, microbatches: int, virtual: int = 1) -> Schedule:
    """The bubble of GPipe with the activations of at most `pipeline - rank` microbatches in memory."""
    assert virtual == 1
    order = []
    numbers = list(range(microbatches))  # one object each for all ranks
    for rank in range(pipeline):
        forwards, backwards = (actions_of(kind, repeat(rank), numbers) for kind in (Kind.FORWARD, Kind.BACKWARD))
        # While the first microbatch travels from this rank to the last and back, this rank can start as many
        # more as there are ranks behind it. Starting any more would cost memory and save no time.
        order.append(alternate(forwards, backwards, warmup=pipeline - rank - 1))
    return Schedule("1f1b", pipeline, 1, microbatches, tuple(order))


def alternate(forwards: Sequence[Action], backwards: Sequence[Action], warmup: int) -> tuple[Action, ...]:
    """Warm-up of forwards only, steady pairs of one forward and one backward, cool-down of backwards only."""
    warmup = min(warmup, len(forwards))
    steady = len(forwards) - warmup
    pairs = zip(forwards[warmup:], backwards[:steady], strict=True)
    return (*forwards[:warmup], *chain.from_iterable(pairs), *backwards[steady:])


def in_flight(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:  # noqa: ARG001
    """One microbatch for every rank from this one to the last (PTD-P §2.2.1)."""
    import numpy as np  # here, so that drawing a schedule does without it

    return np.minimum(pipeline - rank, microbatches)


ONE_F_ONE_B = Rule(
    "1f1b",
    one_f_one_b,
    flush_bubble,
    in_flight,
    most_virtual=1,
    by_default=True,
    starts_like_1f1b=True,
    over_network=(None,),
    torch_name="1F1B",
)
