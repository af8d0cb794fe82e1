"""Where the time went: every moment counts once, and a planted difference is found."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.report import difference
from heddle.report.subject import MeasuredRun, Subject, read_subject
from heddle.simulate.simulation import simulate
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
    assert difference.measured_items(measured) == pytest.approx(
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
    for span in prediction.trace.spans:
        longer = 1.0 if span.rank == stage and span.name == name else 0.0
        spans.append(span._replace(end=span.end + longer * (span.end - span.start)))
    measured = MeasuredRun([{"step": 1, "loss": 1.0}], [], Trace(2, spans), 1)
    said = " ".join(difference.in_words(Subject("x", prediction.job, prediction, None, measured)))
    assert f"most of it in the {name}s of stage {stage}" in said
    assert "+100%" in said


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
