"""The generated orders, against orders written down by hand from PTD-P Figure 4 and against its formulas."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.schedule import NAMES, Kind, Schedule, build, rule_of, verify
from heddle.schedule.rules.interleaved import microbatch_groups


def legal(name: str, pipeline: int, microbatches: int, virtual: int) -> tuple[int, int]:
    """Chunks and microbatches that a schedule can run."""
    rule = rule_of(name)
    virtual = max(rule.least_virtual, min(virtual, rule.most_virtual or virtual))
    return virtual, max(microbatches, rule.least_microbatches(pipeline))


pipelines = st.integers(1, 9)
virtuals = st.integers(1, 4)
counts = st.integers(1, 30)


def written(schedule: Schedule, rank: int) -> str:
    """'F0 F1 B0': microbatches from 0, and a letter for the rank's chunk if it has several."""
    words = []
    for kind, chunk, microbatch in schedule.ranks[rank]:
        letter = "" if schedule.virtual == 1 else "abcdefgh"[chunk // schedule.pipeline]
        words.append(f"{kind.letter}{microbatch}{letter}")
    return " ".join(words)


# PTD-P Figure 4, top (its microbatches count from 1, ours from 0), first and last device.
FIGURE_4_TOP = {
    0: "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
    3: "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
}
# PTD-P Figure 4, bottom: two chunks per device, dark (a) and light (b).
FIGURE_4_BOTTOM = {
    0: (
        "F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a "  # warm-up: 4 of chunk a, and 2 for each of 3 ranks behind
        "F6a B0b F7a B1b F4b B2b F5b B3b F6b B0a F7b B1a "
        "B2a B3a B4b B5b B6b B7b B4a B5a B6a B7a"
    ),
    3: (
        "F0a F1a F2a F3a "
        "F0b B0b F1b B1b F2b B2b F3b B3b F4a B0a F5a B1a F6a B2a F7a B3a F4b B4b F5b B5b F6b B6b F7b B7b "
        "B4a B5a B6a B7a"
    ),
}


@pytest.mark.parametrize("rank", FIGURE_4_TOP)
def test_1f1b_is_the_papers_figure(rank):
    assert written(build("1f1b", 4, 8), rank) == FIGURE_4_TOP[rank]


@pytest.mark.parametrize("rank", FIGURE_4_BOTTOM)
def test_interleaved_is_the_papers_figure(rank):
    assert written(build("interleaved", 4, 8, 2), rank) == FIGURE_4_BOTTOM[rank]


def test_gpipe_orders():
    assert written(build("gpipe", 2, 3), 1) == "F0 F1 F2 B0 B1 B2"
    assert written(build("gpipe", 2, 2, virtual=2), 0) == "F0a F1a F0b F1b B0b B1b B0a B1a"


def test_more_ranks_than_microbatches():
    assert written(build("1f1b", 4, 2), 0) == "F0 F1 B0 B1"
    assert written(build("1f1b", 4, 2), 3) == "F0 B0 F1 B1"


def test_one_rank_with_several_chunks_starts_each_microbatch_after_the_one_before():
    order = build("interleaved", 1, 2, 2)
    assert written(order, 0) == "F0a F0b B0b F1a B0a F1b B1b B1a"
    assert verify(order).messages == 0


@given(pipelines, counts)
def test_interleaved_with_one_chunk_is_1f1b(pipeline, microbatches):
    assert build("interleaved", pipeline, microbatches, 1).ranks == build("1f1b", pipeline, microbatches).ranks


@given(st.sampled_from(NAMES), pipelines, counts, virtuals)
def test_every_order_verifies(name, pipeline, microbatches, virtual):
    virtual, microbatches = legal(name, pipeline, microbatches, virtual)
    schedule = build(name, pipeline, microbatches, virtual)
    verified = verify(schedule)
    assert verified.actions == 2 * pipeline * virtual * microbatches + len(schedule.split)
    assert bool(schedule.split) <= rule_of(name).splits
    homes = [schedule.rank_of(chunk) for chunk in range(schedule.chunks)]
    between_ranks = sum(one != other for one, other in pairwise(homes))
    assert verified.messages == 2 * between_ranks * microbatches


@given(pipelines, counts)
def test_stash_of_1f1b_and_gpipe(pipeline, microbatches):
    expected = tuple(min(microbatches, pipeline - rank) for rank in range(pipeline))
    assert verify(build("1f1b", pipeline, microbatches)).peak_stash == expected
    assert verify(build("gpipe", pipeline, microbatches)).peak_stash == (microbatches,) * pipeline


@given(st.integers(2, 9), st.integers(1, 4), st.integers(2, 4))
def test_stash_of_interleaved_on_the_first_rank(pipeline, rounds, virtual):
    # Korthikanti et al. 2022 (arXiv 2205.05198): p·(1 + (p-1)/(p·v)) microbatches, in units of 1/v.
    verified = verify(build("interleaved", pipeline, rounds * pipeline, virtual))
    assert verified.peak_stash[0] == min(virtual * rounds * pipeline, virtual * pipeline + pipeline - 1)


@given(pipelines, counts)
def test_groups_carry_every_microbatch_once_and_never_fewer_than_the_pipeline(pipeline, microbatches):
    groups = microbatch_groups(pipeline, microbatches)
    assert [i for group in groups for i in group] == list(range(microbatches))
    assert len(groups) == 1 or min(map(len, groups)) >= pipeline
    assert len(groups[0]) == max(map(len, groups)) <= max(2 * pipeline - 1, microbatches // len(groups) + 1)


def test_bubble_formula():
    assert rule_of("1f1b").bubble(4, 8) == 3 / 8
    assert rule_of("interleaved").bubble(4, 8, virtual=2) == 3 / 16
    assert rule_of("interleaved").bubble(1, 5, virtual=3) == 0


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(HeddleError, match="Did you mean 'interleaved'"):
        build("interleave", 2, 4)


def test_1f1b_with_chunks_points_to_interleaved():
    with pytest.raises(HeddleError) as caught:
        build("1f1b", 2, 4, virtual=2)
    assert "interleaved" in caught.value.hint


@pytest.mark.parametrize("sizes", [(0, 4, 1), (2, 0, 1), (2, 4, 0), (2, -1, 1)])
def test_sizes_count_from_one(sizes):
    with pytest.raises(HeddleError, match="must be 1 or more"):
        build("interleaved", *sizes)


def test_more_actions_than_can_be_laid_out_are_refused():
    with pytest.raises(HeddleError, match="At most 32 microbatches"):
        build("gpipe", 65536, 16385)


@given(st.sampled_from(NAMES), pipelines, counts, virtuals)
def test_in_flight_is_each_rank_s_own_peak(name, pipeline, microbatches, virtual):
    rule = rule_of(name)
    virtual, microbatches = legal(name, pipeline, microbatches, virtual)
    peaks = verify(build(name, pipeline, microbatches, virtual)).peak_stash
    assert tuple(int(rule.in_flight(pipeline, microbatches, virtual, r)) for r in range(pipeline)) == peaks


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("pipeline", "microbatches"), [(1, 5), (2, 8), (4, 16), (3, 7)])
def test_only_gpipe_has_many_losses_whose_backward_has_not_begun(name, pipeline, microbatches):
    """What the output layer keeps from a forward to its backward is as large as its weight."""
    virtual, microbatches = legal(name, pipeline, microbatches, 2)
    schedule = build(name, pipeline, microbatches, virtual)
    waiting = most = 0
    for kind, chunk, _ in schedule.ranks[schedule.rank_of(schedule.chunks - 1)]:
        if chunk == schedule.chunks - 1 and kind is not Kind.BACKWARD_WEIGHT:
            waiting += kind.direction
            most = max(most, waiting)
    uneven = name == "interleaved" and microbatches % pipeline > 0
    assert most == (microbatches if name == "gpipe" else virtual if uneven else 1)
