"""Shrinking a job without losing what its plan does with it, and laying two runs side by side."""

from __future__ import annotations

import dataclasses
import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import heddle.parallel.apply
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.collect import ShardBox, assemble
from heddle.training.prove.compare import Observed, compare, compare_boxes, likely_cause
from heddle.training.prove.prove import (
    conclude,
    exact_gradients,
    gradient_rounding,
    observe_serial,
    prove,
    synthetic_tokens,
)
from heddle.training.prove.shrink import PROCESSES, shrink

GPT2 = ModelSpec(layers=12, hidden=768, heads=12, vocab=50257, sequence=1024, dropout=0.1)
LLAMA = ModelSpec(
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    vocab=128256,
    sequence=8192,
    norm="rmsnorm",
    activation="swiglu",
    positions="rotary",
    bias="none",
    tied=False,
    window=4096,
)


def job(model: ModelSpec, plan: Plan | None, batch: int, **train) -> Job:
    return Job(model=model, data=Data(text="-"), train=Train(global_batch=batch, **train), plan=plan)


def per_layer(values, layers):
    """One for all, or one for each."""
    return values | st.lists(values, min_size=layers, max_size=layers).map(tuple)


@st.composite
def jobs(draw) -> Job:
    tensor = draw(st.integers(1, 4))
    pipeline = draw(st.integers(1, 6))
    virtual = draw(st.integers(1, 3)) if pipeline > 1 else 1
    schedule = draw(st.sampled_from(["gpipe", "interleaved"] if virtual > 1 else ["gpipe", "1f1b", "interleaved"]))
    stages = draw(st.lists(st.integers(1, 4), min_size=pipeline * virtual, max_size=pipeline * virtual))
    kind = st.sampled_from(["none", "selective", "full"])
    layers = sum(stages)
    recompute = draw(st.one_of(kind, st.lists(kind, min_size=layers, max_size=layers).map(tuple)))
    group, kv = draw(st.sampled_from([1, 2, 4])), tensor * draw(st.integers(1, 3))
    sequence = draw(st.integers(8, 64))
    parallel_sequence = tensor > 1 and draw(st.booleans())
    if parallel_sequence:
        sequence *= tensor
    plan = Plan(
        tensor=tensor,
        sequence=parallel_sequence,
        pipeline=pipeline,
        virtual=virtual,
        data=draw(st.integers(1, 5)),
        zero=draw(st.sampled_from([0, 1] if pipeline > 1 else [0, 1, 2, 3])),
        microbatch=draw(st.integers(1, 3)),
        schedule=schedule,
        stages=tuple(stages),
        recompute=recompute,
    )
    model = ModelSpec(
        layers=layers,
        hidden=64 * group * kv,
        heads=group * kv,
        kv_heads=kv,
        vocab=draw(st.integers(500, 600)),
        sequence=sequence * draw(st.integers(1, 2)),
        ffn=draw(per_layer(st.sampled_from([128 * tensor, 256 * tensor]), layers)),
        window=draw(st.none() | per_layer(st.integers(0, 100).filter(lambda size: size != 1), layers)),
        qk_norm=draw(st.booleans()),
        tied=draw(st.booleans()),
        dropout=draw(st.sampled_from([0.0, 0.1])),
    )
    batch = plan.data * plan.microbatch * draw(st.integers(1, 20))
    return job(model, plan, batch, sequence=sequence, clip=draw(st.sampled_from([0.0, 1.0])))


def kinds(a_job: Job, degrees: Plan) -> dict[str, object]:
    """How the sizes of a job relate to each other, where a plan cares."""
    model, plan, train = a_job.model, a_job.planned.plan, a_job.train
    microbatches = plan.microbatches(train.global_batch)
    return {
        "uneven": len(set(plan.stages)) > 1,
        "padding": model.vocab % plan.tensor > 0 and degrees.tensor > 1,
        "even tokens": plan.microbatch * a_job.sequence % plan.tensor == 0 or degrees.tensor == 1,
        # fewer microbatches than two stages, where a longer pipeline had to shrink to two, is one
        "accumulates": microbatches > 1 or (microbatches < plan.pipeline and degrees.pipeline == 2),
        "few": microbatches < plan.pipeline,
        "fills": microbatches % plan.pipeline == 0,
        "several key/value heads a rank": model.kv_heads > plan.tensor,
        "group": model.group,
        "room for longer sequences": a_job.sequence < model.sequence,
        "windows": {shape.window is not None and shape.window < a_job.sequence for shape in model.shapes},
        "widths": len({shape.ffn for shape in model.shapes}),
        "features": (model.norm, model.activation, model.positions, model.bias, model.qk_norm, model.tied),
        "dropout": model.dropout,
        "clips": train.clip > 0,
        "plan": (plan.sequence, plan.zero, plan.schedule, plan.virtual, plan.data > 1, plan.pipeline > 1),
    }


@given(jobs())
def test_relations_stay_and_sizes_shrink(a_job):
    small = shrink(a_job).job
    before, after = a_job.planned.plan, small.plan
    assert after.world <= PROCESSES
    before_all, after_all = kinds(a_job, after), kinds(small, after)
    if before.world > PROCESSES:  # chunks that are no longer there may have had layers of their own
        before_all |= {name: after_all[name] for name in ("windows", "widths")}
    assert after_all == before_all
    assert small.model.layers <= max(a_job.model.layers, after.chunks + 1)
    assert small.model.hidden <= 256
    assert small.train.global_batch <= a_job.train.global_batch
    assert small.train.precision == "fp32"
    if before.world <= PROCESSES:
        assert (after.tensor, after.pipeline, after.data) == (before.tensor, before.pipeline, before.data)
        words = [{plan.recompute_of(layer) for layer in range(model.layers)} for plan, model in
                 ((before, a_job.model), (after, small.model))]  # fmt: skip
        assert words[0] == words[1]
        assert not shrink(a_job).notes


def test_a_large_plan_shrinks_in_replicas_first():
    shrunk = shrink(job(LLAMA, Plan(tensor=4, pipeline=2, data=64, zero=1), 512))
    assert (shrunk.job.plan.tensor, shrunk.job.plan.pipeline, shrunk.job.plan.data) == (4, 2, 2)
    assert shrunk.notes == ("data 64 → 2: replicas are alike, so two are enough.",)


def test_what_cannot_be_tried_is_said():
    model = dataclasses.replace(LLAMA, layers=96)
    plan = Plan(
        tensor=8,
        pipeline=8,
        virtual=6,
        data=24,
        schedule="interleaved",
        recompute=(*95 * ("none",), "full"),
        stages=(*23 * (2,), 1, 3, *23 * (2,)),
    )
    shrunk = shrink(job(model, plan, 24 * 9))
    after = shrunk.job.plan
    assert (after.tensor, after.pipeline, after.virtual, after.data) == (4, 2, 4, 2)
    assert [note.split(":")[0] for note in shrunk.notes] == [
        "data 24 → 2",
        "tensor 8 → 4",
        "pipeline 8 → 2",
        "virtual 6 → 4",
    ]
    assert len(set(after.stages)) == 2
    assert after.recompute_of(sum(after.stages) - 1) == "full"
    assert after.microbatches(shrunk.job.train.global_batch) == 3  # nine over eight stages: one more than a multiple


def test_a_launcher_with_more_processes_keeps_the_degrees():
    plan = Plan(tensor=8, data=4)
    assert shrink(job(LLAMA, plan, 8), processes=32).job.plan.world == 32


def test_everything_that_is_not_compared_with_one_device_is_named():
    plan = Plan(data=2, local_steps=10, compress_gradients="int8", pipeline=2, compress_activations="bf16")
    words = shrink(job(GPT2, plan, 8, compile=True)).left_out
    assert words == (
        "local_steps = 10",
        'compress_gradients = "int8"',
        'compress_activations = "bf16"',
        "compile = true",
    )
    assert shrink(job(GPT2, Plan(data=2, zero=1), 8)).left_out == ()


def test_late_updates_are_held_against_their_own_recurrence():
    plan = Plan(pipeline=2, update="ouroboros")
    shrunk = shrink(job(GPT2, plan, 8), steps=2)
    observed = Observed([1.0, 1.0], [1.0], [], [])
    with patch("heddle.training.prove.prove.observe_recurrence", return_value=observed):
        proof = conclude(shrunk, observed, 0.0)
    assert proof.compared_with == "the recurrence of update = 'ouroboros'"


def test_one_device_with_microbatches_is_proved_like_any_plan():
    proof = prove(job(GPT2, Plan(microbatch=2, recompute="full"), 8), steps=3)
    assert proof.comparison.equal
    assert proof.cause is None
    assert len(proof.comparison.losses) == 3
    assert proof.loss_rounding < 1e-6


def test_rounding_is_that_of_single_precision():
    """Gradients in double precision are right to the last bit that single precision has, and no better a match."""
    a_job = shrink(job(LLAMA, Plan(), 4)).job
    rounding = gradient_rounding(a_job, observe_serial(a_job))
    assert 2**-24 < rounding < 1e-5
    exact = exact_gradients(a_job)
    assert all(values.dtype == np.float64 for values in exact.values())


def test_synthetic_tokens_use_the_whole_vocabulary():
    a_job = shrink(job(GPT2, Plan(tensor=2), 8)).job
    assert set(synthetic_tokens(a_job)) == set(range(a_job.model.vocab))


def box(name: str, shape: tuple[int, ...], offset: tuple[int, ...], values: np.ndarray) -> ShardBox:
    return ShardBox(name, shape, offset, values.astype(np.float32))


WHOLE = {"a": np.arange(12.0).reshape(4, 3), "b": np.array([1.0, -2.0])}


def test_boxes_are_compared_in_their_places():
    boxes = [
        box("a", (4, 3), (0, 0), WHOLE["a"][:2]),
        box("a", (4, 3), (2, 0), WHOLE["a"][2:]),
        box("b", (2,), (0,), WHOLE["b"]),
    ]
    assert {name: d.relative for name, d in compare_boxes(boxes, WHOLE).items()} == {"a": 0.0, "b": 0.0}
    np.testing.assert_array_equal(assemble(boxes)["a"], WHOLE["a"])
    moved = [boxes[0]._replace(offset=(2, 0)), boxes[1]._replace(offset=(0, 0)), boxes[2]]
    assert compare_boxes(moved, WHOLE)["a"].relative == pytest.approx(6 / 11)


def test_every_copy_counts():
    boxes = [box("b", (2,), (0,), WHOLE["b"]), box("b", (2,), (0,), WHOLE["b"] + [0.0, 0.5])]
    assert compare_boxes(boxes, {"b": WHOLE["b"]})["b"].relative == 0.25
    assert compare_boxes(boxes[::-1], {"b": WHOLE["b"]})["b"].relative == 0.25


def test_what_nobody_holds_differs():
    boxes = [box("a", (4, 3), (0, 0), WHOLE["a"][:3])]
    assert compare_boxes(boxes, {"a": WHOLE["a"]})["a"].relative == math.inf
    assert np.isnan(assemble(boxes)["a"][3]).all()


def test_no_number_is_not_equal():
    right = Observed([1.0, 1.0], [1.0, 1.0], [box("b", (2,), (0,), WHOLE["b"])])
    assert compare(right, right, 1e-7).equal
    for wrong in (
        dataclasses.replace(right, losses=[1.0, math.nan]),
        dataclasses.replace(right, norms=[math.nan, 1.0]),
        dataclasses.replace(right, boxes=[box("b", (2,), (0,), WHOLE["b"] * math.nan)]),
    ):
        comparison = compare(wrong, right, 1e-7)
        assert not comparison.equal
        assert math.inf in (comparison.max_loss_diff, comparison.max_gradient_diff)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_proof_computes_in_the_precision_of_its_job(precision):
    proof = prove(job(GPT2, Plan(microbatch=2), 8, precision=precision), steps=3)
    assert proof is not None
    assert proof.shrunk.job.train.precision == precision
    assert proof.comparison.equal
    assert (proof.comparison.gradient_limit > 1e-4) == (precision != "fp32")


def test_masters_that_were_rounded_are_found():
    """As they would be if a plan took them from its low-precision parameters."""
    small = shrink(job(GPT2, Plan(), 2, precision="bf16"), steps=1).job
    serial = observe_serial(small)
    with patch.object(heddle.parallel.apply, "initialize_masters", lambda *_: None):
        rounded = observe_serial(small)
    comparison = compare(rounded, serial, 1.0, 1.0)
    assert "embed.tokens.weight" in comparison.unequal_start
    assert not comparison.equal
    assert "initial weights differ" in likely_cause(comparison, Plan(), GPT2)
