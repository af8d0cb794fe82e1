"""A predicted trace: taken apart, each moment of a rank is still what the prediction says it is."""

from dataclasses import replace
from itertools import pairwise

import pytest

from heddle.reporting.difference import _partition
from heddle.simulating.simulation import simulate
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.shorthand import cluster_from_table

MODEL = ModelSpec(layers=8, hidden=512, heads=8, vocab=1000, sequence=256)
JOB = Job(
    model=MODEL,
    data=Data(text="x"),
    cluster=cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 2}),
    train=Train(global_batch=16, precision="bf16"),
)
PLANS = [
    {},
    {"tensor": 2},
    {"tensor": 2, "sequence": True, "recompute": "full"},
    {"pipeline": 4},
    {"pipeline": 2, "virtual": 2, "schedule": "interleaved", "recompute": ("full", "none") * 4},
    {"data": 4},
    {"data": 4, "zero": 1, "pipeline": 2, "tensor": 2, "recompute": "selective"},
    {"data": 2, "zero": 3},
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_lanes_add_up_to_the_breakdown(plan):
    found = simulate(replace(JOB, plan=Plan(**plan)))
    seen, said = _partition(found.trace), found.breakdown
    assert sum(seen.values()) == pytest.approx(found.step_seconds - said.jitter)
    assert seen["compute"] == pytest.approx(said.compute + said.recompute)
    assert found.trace.bubble == pytest.approx(found.bubble, abs=1e-12)
    for item in ("tensor", "pipeline", "data", "optimizer", "bubble"):
        assert seen[item] == pytest.approx(getattr(said, item), abs=1e-12), item


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_spans_of_a_lane_do_not_overlap(plan):
    trace = simulate(replace(JOB, plan=Plan(**plan))).trace
    lanes = {(span.rank, span.lane) for span in trace.spans}
    for lane in lanes:
        spans = sorted((s for s in trace.spans if (s.rank, s.lane) == lane), key=lambda s: (s.start, s.end))
        for before, after in pairwise(spans):
            assert before.start <= before.end <= after.start + 1e-12


def test_every_message_has_both_its_ends():
    trace = simulate(replace(JOB, plan=Plan(pipeline=2, virtual=2, schedule="interleaved", tensor=2))).trace
    sends = [span for span in trace.spans if span.lane == "send"]
    receives = [span for span in trace.spans if span.lane == "receive"]
    assert len(sends) == len(receives) == 2 * 3 * 16  # both ways between four chunks, for each microbatch
    assert {span.bytes for span in sends} == {256 * 512 * 2 // 2}  # each tensor rank sends its slice
    for span in receives:
        kind, step = (word := span.name.split()[1]), 1 if word == "activation" else -1
        (send,) = [
            s for s in sends if (s.name, s.chunk, s.microbatch) == (f"send {kind}", span.chunk - step, span.microbatch)
        ]
        assert send.end <= span.end + 1e-12
