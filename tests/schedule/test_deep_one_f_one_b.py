"""1F1B with a longer warm-up: between 1F1B and GPipe, and what that is worth where messages take long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.schedule import build, rule_of, verify
from heddle.simulating.replay import replay, step_time
from heddle.spec import Plan
from tests.helpers.manual import DOCS, section, tables

pipelines, counts, extras = st.integers(1, 9), st.integers(1, 40), st.integers(0, 6)

# An event simulation of its own gave these: forward 1, backward 2, latency l a hop, 8 stages, 32 microbatches.
EFFICIENCY = {
    0: {"gpipe": 0.82, "1f1b": 0.82, "deep-1f1b": 0.82},
    1: {"gpipe": 0.73, "1f1b": 0.52, "deep-1f1b": 0.73},
    5: {"gpipe": 0.51, "1f1b": 0.21, "deep-1f1b": 0.34},
}


@pytest.mark.parametrize("latency", EFFICIENCY)
def test_efficiency_under_latency(latency):
    for name, efficiency in EFFICIENCY[latency].items():
        seconds = step_time(build(name, 8, 32), forward=1, backward=2, transfer=latency)
        assert round(32 * 3 / seconds, 2) == efficiency, name


def test_the_manual_s_table_is_true():
    (rows,) = tables(section(DOCS / "background" / "schedules.md", "## Deep 1F1B"))
    depths = {"gpipe": None, "1f1b": None, "deep-1f1b": None, "deep-1f1b ": 4}
    for latency, *shown in rows:
        orders = [build(name.strip(), 8, 32, 1, extra) for name, extra in depths.items()]
        found = [f"{32 * 3 / step_time(order, 1, 2, float(latency)):.2f}" for order in orders]
        assert found == shown


@given(pipelines, counts)
def test_without_extra_warmup_it_is_1f1b(pipeline, microbatches):
    deep = build("deep-1f1b", pipeline, microbatches, extra_warmup=0)
    assert deep.ranks == build("1f1b", pipeline, microbatches).ranks


@given(pipelines, counts, extras)
def test_every_depth_verifies_and_holds_what_it_says(pipeline, microbatches, extra):
    rule = rule_of("deep-1f1b", extra)
    schedule = build("deep-1f1b", pipeline, microbatches, 1, extra)
    peaks = verify(schedule).peak_stash
    assert tuple(int(rule.in_flight(pipeline, microbatches, 1, rank)) for rank in range(pipeline)) == peaks
    assert replay(schedule, 1, 2).bubble == rule.bubble(pipeline, microbatches)


@given(st.integers(2, 8), counts, st.integers(0, 9))
def test_more_warmup_never_takes_longer_and_ends_at_gpipe_or_better(pipeline, microbatches, latency):
    seconds = [
        step_time(build("deep-1f1b", pipeline, microbatches, 1, extra), 1, 2, latency) for extra in range(microbatches)
    ]
    assert seconds == sorted(seconds, reverse=True)
    deepest = build("deep-1f1b", pipeline, microbatches, 1, microbatches)
    gpipe = build("gpipe", pipeline, microbatches)
    assert deepest.ranks[:-1] == gpipe.ranks[:-1]
    assert step_time(deepest, 1, 2, latency) <= step_time(gpipe, 1, 2, latency)


def test_a_plan_says_how_deep():
    assert Plan(pipeline=2, schedule="deep-1f1b", extra_warmup=3).extra_warmup == 3
    with pytest.raises(HeddleError, match="schedule = '1f1b' does not take extra_warmup, got 3") as caught:
        Plan(pipeline=2, extra_warmup=3)
    assert "deep-1f1b" in caught.value.hint
    with pytest.raises(HeddleError, match=r"plan.extra_warmup must be in \[0, 1e9\], got -1"):
        Plan(pipeline=2, schedule="deep-1f1b", extra_warmup=-1)
    with pytest.raises(HeddleError, match="1 chunk per rank"):
        Plan(pipeline=2, virtual=2, schedule="deep-1f1b")
