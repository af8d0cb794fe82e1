"""Where the time went: every moment counts once, and a planted difference is found."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.reporting import difference
from heddle.reporting.subject import MeasuredRun, Subject, read_subject
from heddle.simulating.simulation import simulate
from heddle.spec import Plan
from heddle.spec.job import job_from_tables
from heddle.spec.ranks import stage_of
from heddle.trace import Span, Trace
from tests.helpers.subjects import TABLES, write_run


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_seconds_of_ranks_are_those_of_their_stages(tensor, data, pipeline):
    plan = Plan(tensor=tensor, data=data, pipeline=pipeline)
    stages = [stage_of(plan, rank) for rank in range(plan.world)]
    names = ("forward", "recompute", "backward")
    spans = [Span(rank, "compute", name, 0.0, 1.0 + stage) for rank, stage in enumerate(stages) for name in names]
    found = difference._by_stage(Trace(plan.world, spans), stages)
    assert found == [pytest.approx((1.0 + stage, 2 * (1.0 + stage))) for stage in range(pipeline)]


def test_every_moment_counts_once():
    spans = [
        Span(0, "compute", "forward", 0.0, 4.0),
        Span(0, "tensor", "all-reduce", 1.0, 2.0),  # inside the forward
        Span(0, "data", "all-reduce", 3.0, 6.0),  # one second of it hidden
        Span(0, "send", "send activation", 3.5, 6.5),
        Span(0, "receive", "receive gradient", 6.5, 8.0),  # waiting: bubble
        Span(0, "optimizer", "gradients", 8.0, 9.0),
        Span(0, "optimizer", "update", 9.0, 10.0),
    ]
    measured = MeasuredRun([{"step": 7, "seconds": 10.5, "loss": 1.0}], [], Trace(1, spans), 7)
    job = job_from_tables(TABLES).planned
    assert difference.measured_items(measured, job) == pytest.approx(
        {"tensor": 1, "compute": 3, "data": 3, "optimizer": 1, "pipeline": 0.5, "bubble": 1.5, "outside": 0.5}
    )


def test_predicted_items_add_up():
    found = simulate(job_from_tables(TABLES))
    assert sum(difference.predicted_items(found).values()) == pytest.approx(found.step_seconds)


@pytest.mark.parametrize(("stage", "name"), [(0, "forward"), (1, "backward")])
def test_a_slower_stage_is_named(stage, name):
    """The prediction itself as the measurement, but one stage takes longer for one kind of work."""
    job = job_from_tables(TABLES | {"plan": {"pipeline": 2, "microbatch": 1}})
    prediction = simulate(job)
    spans = []
    for span in prediction.trace.spans:  # with room between them
        longer = 2.0 if span.rank == stage and span.name == name else 1.0
        spans.append(span._replace(start=3 * span.start, end=3 * span.start + longer * (span.end - span.start)))
    measured = MeasuredRun([{"step": 1, "loss": 1.0}], [], Trace(2, spans), 1)
    said = " ".join(difference.in_words(Subject("x", prediction.job, prediction, None, measured)))
    assert f"100% of it in the {name}s of stage {stage}, +100%" in said


def test_the_same_is_said_to_be_the_same():
    prediction = simulate(job_from_tables(TABLES | {"plan": {"pipeline": 2, "microbatch": 1}}))
    # the trace has no jitter: leave it out of the prediction, too
    calm = replace(prediction, breakdown=prediction.breakdown._replace(jitter=0.0))
    measured = MeasuredRun([], [], prediction.trace, 1)
    first, *_ = difference.in_words(Subject("x", calm.job, calm, None, measured))
    assert "the same within 1%" in first


def test_a_run_tells_stage_by_stage(tmp_path):
    subject = read_subject(write_run(tmp_path / "run"))
    times = difference.stage_times(subject.prediction, subject.measured.trace)
    assert [each.stage for each in times] == [0, 1]
    assert times[1].backward[1] > 1.3 * times[0].backward[1]  # 6 against 4 ms
    assert times[0].forward[1] == pytest.approx(8 * 2e-3, rel=0.1)


PLANS = [
    {"pipeline": 2, "microbatch": 1},
    {"pipeline": 4, "microbatch": 2},
    {"tensor": 2, "pipeline": 2, "microbatch": 1},
    {"tensor": 2, "data": 2, "microbatch": 4},
    {"data": 4, "zero": 1, "microbatch": 2},
    {"tensor": 2, "pipeline": 2, "data": 2, "microbatch": 1, "recompute": "full"},
    {"microbatch": 16},
]


@st.composite
def pairs(draw):
    """A prediction, and a trace that differs from it at random: in every rank, lane and kind of work."""
    tied = draw(st.booleans())
    tables = TABLES | {"model": TABLES["model"] | {"tied": tied}, "plan": draw(st.sampled_from(PLANS))}
    prediction = simulate(job_from_tables(tables))
    plan = prediction.plan
    stretch = draw(st.dictionaries(st.tuples(st.integers(0, 7), st.text("fbrgu", max_size=1)), st.floats(0.1, 10)))
    late = draw(st.lists(st.floats(0, 1), min_size=plan.world, max_size=plan.world))
    spans = []
    for rank in range(plan.world):
        own = [span for span in prediction.trace.spans if span.rank == stage_of(plan, rank)]
        for span in own:
            length = (span.end - span.start) * stretch.get((rank, span.name[:1]), 1.0)
            start = 20 * span.start + late[rank] * prediction.step_seconds
            spans.append(span._replace(rank=rank, start=start, end=start + length))
    trace = Trace(plan.world, spans)
    rows = [{"step": 3, "loss": 1.0, "seconds": draw(st.floats(0.3, 3)) * trace.duration}]
    return Subject("x", prediction.job, prediction, None, MeasuredRun(rows[: draw(st.integers(0, 1))], [], trace, 3))


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_parts_sum_to_the_whole_and_name_only_what_there_is(subject):
    prediction, measured, plan = subject.prediction, subject.measured, subject.job.plan
    there, here = difference.predicted_items(prediction), difference.measured_items(measured, subject.job)
    assert min(here.values()) >= -1e-12
    assert sum(there.values()) == pytest.approx(prediction.step_seconds)
    assert sum(here.values()) == pytest.approx(measured.of_step("seconds") or measured.trace.duration)
    for trace, items in ((prediction.trace, there), (measured.trace, here)):
        parts = difference.compute_parts(subject.job, trace, items["compute"])
        assert min(parts.values()) >= 0
        assert sum(parts.values()) == pytest.approx(items["compute"])
    said = " ".join(difference.in_words(subject))
    for share in re.findall(r"(-?\d+)% of it", said):
        assert 0 < int(share) <= 100
    for words, exists in (
        ("tensor-parallel", plan.tensor > 1),
        ("messages between stages", plan.pipeline > 1),
        ("between replicas", plan.data > 1),
        ("tied embedding", plan.pipeline > 1 and subject.job.model.tied),
    ):
        assert exists or words not in said
        assert exists or not any(words in word for word in difference.words(subject.job).values())


@given(st.dictionaries(st.integers(), st.floats(-1e3, 1e3), min_size=1))
def test_a_part_that_is_named_has_the_sign_of_the_whole_and_is_no_larger(changes):
    found = difference.main_part(changes)
    if found is not None:
        part, share = found
        assert changes[part] * sum(changes.values()) > 0
        assert 0 < share <= 1
        assert abs(changes[part]) == max(map(abs, changes.values()))


def test_parts_that_cancel_are_not_blamed():
    assert difference.main_part({"a": 50.0, "b": -204.0, "c": 0.0}) is None
    assert difference.main_part({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}) is None  # none stands out
    assert difference.main_part({"a": 90.0, "b": 12.0, "c": -2.0}) == ("a", 0.9)


def test_the_tied_embedding_is_not_called_an_exchange_between_replicas():
    job = job_from_tables(TABLES | {"plan": {"pipeline": 2, "microbatch": 1}}).planned
    assert "tied embedding" in difference.words(job)["data"]
    assert "replicas" not in difference.words(job)["data"]


def test_late_updates_are_told_by_the_step_and_exchange_nothing_between_the_ends():
    plan = {"pipeline": 2, "microbatch": 1, "update": "ouroboros"}
    tables = TABLES | {"model": TABLES["model"] | {"tied": True}, "plan": plan}
    late = simulate(job_from_tables(tables))
    assert late.steps_drawn > 1  # the pipeline does not drain, so its timeline shows several steps
    for stage in difference.stage_times(late, late.trace):
        assert stage.forward[0] + stage.backward[0] <= late.step_seconds
        assert stage.forward[0] == pytest.approx(stage.forward[1] / late.steps_drawn)
    assert "data" not in difference.words(late.job)
    drained = simulate(job_from_tables(tables | {"plan": {"pipeline": 2, "microbatch": 1}}))
    assert drained.steps_drawn == 1
    assert "data" in difference.words(drained.job)
