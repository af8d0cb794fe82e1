"""Schedules that take backwards in two: against other implementations of the same orders, and the papers' formulas."""

import pytest

from heddle.errors import HeddleError
from heddle.schedule import Action, ChunkPlacement, Kind, Schedule, ScheduleError, build, rule_of, verify
from heddle.simulating.replay import replay
from tests.helpers.cases import thinned

B, W = Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # as the paper calls them


@pytest.mark.parametrize(("name", "virtual"), [("zb-v", 2), ("dualpipev", 2)])
@pytest.mark.parametrize(("pipeline", "microbatches"), [(2, 4), (2, 9), (4, 8), (4, 13), (5, 10), (8, 32)])
def test_the_order_is_that_of_torch(name, virtual, pipeline, microbatches):
    """PyTorch's own generators, which its authors wrote after the papers', ask for nothing but these numbers."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    kinds = {"FORWARD": Kind.FORWARD, "FULL_BACKWARD": Kind.BACKWARD, "BACKWARD_INPUT": B, "BACKWARD_WEIGHT": W}
    cls = {"zb-v": schedules.ScheduleZBVZeroBubble, "dualpipev": schedules.ScheduleDualPipeV}[name]
    theirs = cls.__new__(cls)
    theirs.pp_group_size, theirs._n_microbatches, theirs._num_stages = pipeline, microbatches, 2 * pipeline
    theirs.num_stages = 2 * pipeline
    ours = build(name, pipeline, microbatches, virtual)
    for rank in range(pipeline):
        found = []
        for action in filter(None, theirs._calculate_single_rank_operations(rank)):
            found += action.sub_actions or [action]
        expected = [Action(kinds[a.computation_type.name], a.stage_index, a.microbatch_index) for a in found]
        assert list(ours.ranks[rank]) == expected


# idle time of a rank in a step, in units of one rank's forward (arXiv 2401.10241 Table 2, with F = B = W)
PAPER = {"1f1b": lambda p: 3 * (p - 1), "zb-h1": lambda p: p - 1, "zb-h2": lambda p: 0, "zb-v": lambda p: 0}


@pytest.mark.parametrize("pipeline", [8, 16, 32, 64])
@pytest.mark.parametrize("name", PAPER)
def test_bubbles_are_those_of_the_paper(name, pipeline):
    """Between its first work and its last, a rank waits as long as the paper says, for 8 to 64 stages."""
    virtual, microbatches = rule_of(name).usual_virtual, 3 * pipeline
    trace = replay(build(name, pipeline, microbatches, virtual), 1 / virtual, 2 / virtual)
    assert trace.period == pytest.approx(3 * microbatches + PAPER[name](pipeline), rel=1e-9)


@pytest.mark.parametrize(("forward", "backward", "weight"), [(1.0, 2.1, 0.9), (1.0, 2.0, 1.0), (1.1, 2.4, 1.1)])
def test_the_papers_formula_of_zb_h1_for_other_costs(forward, backward, weight):
    """(p-1)(F+B-W), where the parts of a backward are not as long as a forward."""
    p, m, first = 8, 32, backward - weight
    idle = replay(build("zb-h1", p, m), forward, backward, weight=weight).period - m * (forward + backward)
    assert idle == pytest.approx((p - 1) * (forward + first - weight), rel=1e-9)
    assert idle <= (p - 1) * (forward + backward) / 2  # of 1F1B


@pytest.mark.parametrize("pipeline", thinned([8, 16, 32, 64], slow=[64]))
@pytest.mark.parametrize(("forward", "backward", "weight"), [(1.0, 2.0, 1.0), (1.0, 2.2, 1.0), (1.0, 2.4, 0.8)])
def test_dualpipev_against_its_authors_formula(pipeline, forward, backward, weight):
    """(PP/2-1)(F&B + B - 3W), of chunks, where nothing of a pair overlaps (github.com/deepseek-ai/DualPipe).

    Their order waits for a forward per rank less than their formula says.
    """
    microbatches = 10 * pipeline
    step = replay(build("dualpipev", pipeline, microbatches, 2), forward, backward, weight=weight).duration
    busy = 2 * microbatches * (forward + backward)
    formula = (pipeline - 1) * (forward + 2 * backward - 3 * weight)
    assert step == pytest.approx(busy + formula, rel=0.02)
    assert step - busy == pytest.approx(formula - pipeline * forward, abs=forward + 1e-6)


def test_chunks_in_a_v():
    assert [ChunkPlacement.V.rank_of(chunk, 3) for chunk in range(6)] == [0, 1, 2, 2, 1, 0]
    assert [ChunkPlacement.V.chunks_of(rank, 3, 2) for rank in range(3)] == [(0, 5), (1, 4), (2, 3)]
    assert [ChunkPlacement.LOOP.chunks_of(rank, 3, 2) for rank in range(3)] == [(0, 3), (1, 4), (2, 5)]


def test_a_whole_backward_beside_its_halves_is_refused():
    order = [Action(Kind.FORWARD, 0, 0), Action(B, 0, 0), Action(W, 0, 0), Action(Kind.BACKWARD, 0, 0)]
    with pytest.raises(ScheduleError, match="is there in halves and whole"):
        verify(Schedule("mine", 1, 1, 1, (tuple(order),)))


def test_weight_gradients_come_after_what_they_are_made_of():
    order = [Action(Kind.FORWARD, 0, 0), Action(W, 0, 0), Action(B, 0, 0)]
    with pytest.raises(ScheduleError, match="backward weight of microbatch 0 in chunk 0 precedes its backward input"):
        verify(Schedule("mine", 1, 1, 1, (tuple(order),)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("zb-h1", 4, 8, 2), "'zb-h1' runs 1 chunk per rank, not virtual = 2"),
        (("zb-v", 4, 8, 1), "'zb-v' runs 2 chunks per rank, not virtual = 1"),
        (("dualpipev", 4, 8, 3), "'dualpipev' runs 2 chunks per rank, not virtual = 3"),
        (("dualpipev", 4, 7, 2), "needs 8 microbatches per step, but there are 7"),
    ],
)
def test_what_a_schedule_cannot_run(arguments, message):
    with pytest.raises(HeddleError, match=message) as caught:
        build(*arguments)
    assert caught.value.why
    assert caught.value.hint.startswith("Use ")
