"""One plan, exactly: trace, memory curve, FLOPs utilization, jitter, and the example of the library call."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import heddle
from heddle.errors import HeddleError
from heddle.schedule import build, verify
from heddle.simulating.memory_curve import memory_curves, peak
from heddle.simulating.replay import jitter, replay, step_time
from heddle.spec import Cluster, Data, Device, Job, ModelSpec, Plan, Train, load_job
from heddle.spec.layer_memory import LayerRun
from heddle.spec.shorthand import cluster_from_table
from tests.helpers.commands import REPOSITORY

A100 = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 8})
MODEL = ModelSpec(layers=16, hidden=2048, heads=16, vocab=50_304, sequence=1024)


def job(batch=32, cluster=A100, **plan):
    train = Train(global_batch=batch, precision="bf16")
    return Job(model=MODEL, data=Data(text="-"), train=train, plan=Plan(**plan), cluster=cluster)


def test_utilization_is_the_papers_definition():
    """MFU: 72Bslh²(1 + s/6h + V/12lh) over time and peak (arXiv 2205.05198 App. A); HFU adds what is recomputed."""
    found = heddle.simulate(job(recompute="full", microbatch=4))
    B, s, L, h, V = 32, 1024, 16, 2048, 50_304
    model = 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * L * h))
    hardware = 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    assert found.mfu == pytest.approx(model / found.step_seconds / 312e12)
    assert found.hfu == pytest.approx(hardware / found.step_seconds / 312e12)


@pytest.mark.parametrize(
    ("zero", "degrees"),
    [
        *((zero, {"data": 4}) for zero in (0, 1, 2, 3)),
        *((zero, {"data": 2, "tensor": 8, "sequence": True}) for zero in (2, 3)),
        *((zero, {"data": 4, "pipeline": 2}) for zero in (0, 1, 2, 3)),
        *((zero, {"data": 2, "tensor": 2, "pipeline": 4}) for zero in (0, 1, 2, 3)),
    ],
)
def test_a_range_of_layers_that_says_nothing_new_changes_nothing(zero, degrees):
    plain = heddle.simulate(job(zero=zero, microbatch=2, **degrees))
    ranged = heddle.simulate(job(zero=zero, microbatch=2, layers=(LayerRun(layers="3-7", zero=zero),), **degrees))
    assert ranged.step_seconds == pytest.approx(plain.step_seconds, rel=1e-12)
    assert ranged.worst == pytest.approx(plain.worst, rel=1e-12)


def test_days_are_equation_4():
    """8TP / nX: 175B on 1024 GPUs at 140 TFLOP/s takes 34 days for 300B tokens (PTD-P §5.1)."""
    found = heddle.simulate(load_job(REPOSITORY / "examples" / "plans" / "gpt3-175b.toml"))
    flops = found.hfu * 312e12  # of each device; nothing is recomputed but the attention core
    assert found.days(300e9) == pytest.approx(6 * 300e9 * 174.6e9 / (512 * flops) / 86_400, rel=0.05)


def test_the_trace_holds_the_whole_step():
    found = heddle.simulate(job(pipeline=4, data=2, microbatch=2))
    names = {(span.lane, span.name) for span in found.trace.spans}
    messages = {(lane, f"{lane} {what}") for lane in ("send", "receive") for what in ("activation", "gradient")}
    assert names == messages | {
        ("compute", "forward"),
        ("compute", "backward"),
        ("data", "all-reduce"),
        ("embedding", "all-reduce"),
        ("optimizer", "gradients"),
        ("optimizer", "update"),
    }
    late = found.step_seconds - found.breakdown.jitter
    assert found.trace.duration == pytest.approx(late)
    assert found.trace.bubble == pytest.approx(found.bubble)


@pytest.mark.parametrize("plan", [{}, {"virtual": 2, "schedule": "interleaved"}])
def test_the_trace_shows_what_is_recomputed(plan):
    words = ("full",) * 8 + ("none",) * 8
    found = heddle.simulate(job(pipeline=4, microbatch=2, recompute=words, **plan))
    again = [span for span in found.trace.spans if span.name == "recompute"]
    assert sum(span.end - span.start for span in again) / 4 == pytest.approx(found.breakdown.recompute)
    assert {span.chunk for span in again} == set(range(found.plan.chunks // 2))
    assert found.trace.bubble == pytest.approx(found.bubble)
    backwards = {(span.chunk, span.microbatch): span for span in found.trace.spans if span.name == "backward"}
    assert all(backwards[span.chunk, span.microbatch].start == span.end for span in again)


def test_the_memory_curve_peaks_at_the_breakdown():
    found = heddle.simulate(job(pipeline=4, microbatch=2, stages=(3, 4, 4, 5)))
    for breakdown, curve in zip(found.memory, found.memory_curves, strict=True):
        always = breakdown.weights + breakdown.gradients + breakdown.optimizer
        assert peak(curve) == pytest.approx(always + breakdown.activations)
        assert curve[-1][1] == pytest.approx(always)


@given(st.sampled_from(["gpipe", "1f1b", "interleaved"]), st.integers(1, 5), st.integers(1, 3), st.integers(1, 9))
def test_a_memory_curve_counts_what_the_schedule_stashes(name, p, v, m):
    v = 1 if name == "1f1b" or p == 1 else v
    schedule = build(name, p, m, v)
    curves = memory_curves(replay(schedule), [1.0] * schedule.chunks)
    assert [round(peak(curve)) for curve in curves] == list(verify(schedule).peak_stash)


def test_a_slow_rank_slows_everybody():
    schedule = build("1f1b", 4, 32)
    even, uneven = step_time(schedule), step_time(schedule, slowness=[1, 1, 2, 1])
    assert even == 105.0  # (32 + 4 - 1) · 3
    # Two forwards come before the slow rank, two backwards after it, and it is hardly ever idle in between.
    assert 2 + 32 * 6 + 2 * 2 <= uneven <= 32 * 6 + 3 * 3
    with pytest.raises(HeddleError, match="Got 2 slowness factors"):
        step_time(schedule, slowness=[1, 2])


def test_jitter_is_repeatable_and_costs_time():
    schedule = build("1f1b", 8, 64)
    once = step_time(schedule, noise=jitter(schedule, 0.05, seed=1))
    assert once == step_time(schedule, noise=jitter(schedule, 0.05, seed=1))
    assert once != step_time(schedule, noise=jitter(schedule, 0.05, seed=2))
    assert once > step_time(schedule)
    assert step_time(schedule, noise=jitter(schedule, 0.0)) == pytest.approx(step_time(schedule))
    with pytest.raises(HeddleError, match="spread must be 0 or more"):
        jitter(schedule, -0.1)


def test_what_does_not_fit_is_told_with_stage_and_amount():
    small = replace(A100, device=replace(A100.device, memory_gib=4.0))
    found = heddle.simulate(job(cluster=small, pipeline=2, microbatch=4))
    assert not found.fits
    worst = int(np.argmax([float(breakdown.total) for breakdown in found.memory]))
    with pytest.raises(HeddleError, match=rf"stage {worst} needs [\d.]+ GiB, [\d.]+ GiB more than the 4 GiB"):
        found.check_fits()
    heddle.simulate(job(pipeline=2, microbatch=4)).check_fits()


def test_more_devices_than_there_are_is_refused():
    with pytest.raises(HeddleError, match="needs 128 devices, but cluster 'dgx-a100-80gb' has 64") as error:
        heddle.simulate(job(batch=128, tensor=8, data=16))
    assert "cluster.nodes = 16" in error.value.hint


def test_a_cluster_that_states_too_little_is_refused():
    bare = Cluster(device=Device(name="cpu core", memory_gib=4.0))
    with pytest.raises(HeddleError, match=r"has no device\.tflops"):
        heddle.simulate(job(cluster=bare))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_plan_is_priced_alike_whether_layers_are_told_one_by_one(zero, recompute, monkeypatch):
    """One setting for all layers, or the same for each: two ways through the code, one answer."""
    planned = job(data=8, zero=zero, recompute=recompute)
    alike = heddle.simulate(planned)
    monkeypatch.setattr(Plan, "by_layer", property(lambda self: True))
    each = heddle.simulate(planned)
    assert each.step_seconds == pytest.approx(alike.step_seconds, rel=1e-9)
    assert each.worst == pytest.approx(alike.worst, rel=1e-9)
