"""Interleaved 1F1B: several chunks per rank, a bubble that much smaller (PTD-P §2.2.2, Figure 4 bottom)."""

from __future__ import annotations

from heddle.schedule.actions import Kind, Schedule, actions_of
from heddle.schedule.rule import Column, Rule, flush_bubble
from heddle.schedule.rules.one_f_one_b import alternate, one_f_one_b
from heddle.schedule.rules.one_f_one_b import in_flight as in_flight_of_one_chunk


def interleaved(pipeline: int, microbatches: int, virtual: int) -> Schedule:
    """The order of Megatron-LM where Megatron-LM has one, and one as good for every other microbatch count.

    The microbatches are cut into groups. A rank takes a group through its first chunk, then through its
    second, and so on, then the next group; backwards take the same groups through the chunks in reverse.
    """
    if virtual == 1:  # one chunk per rank needs no second lap, so 1F1B's shorter warm-up is enough
        ranks = one_f_one_b(pipeline, microbatches).ranks
        return Schedule("interleaved", pipeline, 1, microbatches, ranks)

    groups = microbatch_groups(pipeline, microbatches)
    laps = [(lap, i) for group in groups for lap in range(virtual) for i in group]
    down = [lap * pipeline for lap, _ in laps]  # rank 0's chunks
    up = [(virtual - 1) * pipeline - chunk for chunk in down]
    microbatch = [i for _, i in laps]
    order = []
    for rank in range(pipeline):
        forwards = actions_of(Kind.FORWARD, [chunk + rank for chunk in down], microbatch)
        backwards = actions_of(Kind.BACKWARD, [chunk + rank for chunk in up], microbatch)
        # The first group goes through all chunks but the last before any backward can exist. Then, as in
        # 1F1B, the forwards that fit while the first microbatch goes to the last rank and back – twice over.
        # Once would be enough if messages took no time; the second helping is work to do while they travel.
        # (p=8, v=2, m=32, a message half as long as a forward: a step of 228 forwards' time instead of 276.)
        warmup = (virtual - 1) * len(groups[0]) + 2 * (pipeline - rank - 1)
        order.append(alternate(forwards, backwards, warmup))
    return Schedule("interleaved", pipeline, virtual, microbatches, tuple(order))


def microbatch_groups(pipeline: int, microbatches: int) -> list[range]:
    """Cut the microbatches into runs of at least `pipeline`, as even as possible, the longer ones first.

    A run shorter than the pipeline comes round to rank 0 again after it has nothing left to do: rank 0 idles.
    PTD-P and Megatron-LM therefore ask for a multiple of the pipeline. Forced to take another number,
    Megatron's own table (runs of `pipeline`, the remainder last) deadlocks in 167 of the 513 cases with
    p ≤ 8, 2 ≤ v ≤ 4, m ≤ 32 and is slower than this one in 262 others. Spreading the remainder instead reaches
    the bubble (p-1)/(v·m) for every m ≥ p. The price is memory: a longer first run is a longer warm-up. Fewer
    microbatches than ranks make one short run, which must wait: a microbatch cannot be in two chunks at once.
    """
    count = max(1, microbatches // pipeline)
    size, longer = divmod(microbatches, count)
    groups, start = [], 0
    for index in range(count):
        stop = start + size + (index < longer)
        groups.append(range(start, stop))
        start = stop
    return groups


def first_group(pipeline: Column, microbatches: Column) -> Column:
    """Microbatches of the first of `microbatch_groups`, for whole columns of plans."""
    import numpy as np

    p, m = pipeline, microbatches
    return np.where(m >= p, np.ceil(m / np.maximum(1, np.floor(m / p))), m)


def in_flight(pipeline: Column, microbatches: Column, virtual: Column, rank: Column) -> Column:
    """The warm-up and one more: on rank 0 1 + (p-1)/(p·v) times 1F1B's activations (arXiv 2205.05198 §4.2.3)."""
    import numpy as np  # here, so that drawing a schedule does without it

    p, m, v = pipeline, microbatches, virtual
    several = np.minimum((v - 1) * first_group(p, m) + 2 * (p - rank - 1) + 1, m * v)
    return np.where(v > 1, several, in_flight_of_one_chunk(p, m, v, rank))


INTERLEAVED = Rule(
    "interleaved",
    interleaved,
    flush_bubble,
    in_flight,
    usual_virtual=2,
    by_default=True,
    starts_like_1f1b=True,
    one_chunk="1f1b",
    torch_name="Interleaved1F1B",
)
