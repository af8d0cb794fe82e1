"""Memory: the formulas of arXiv 2205.05198, and what Heddle's own dry run holds."""

from dataclasses import replace

import pytest

from heddle.cost import memory
from heddle.cost.model_columns import model_columns
from heddle.cost.work import Work
from heddle.format import GIB
from heddle.schedule import rule_of
from heddle.simulating.simulation import simulate
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.shorthand import cluster_from_table
from tests.helpers.cases import thinned

A100 = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 64})


def megatron(layers, hidden, heads, **plan):
    model = ModelSpec(layers=layers, hidden=hidden, heads=heads, vocab=51_200, sequence=2048, dropout=0.1)
    return Work(**model_columns(model), batch=512, precision="fp16", fused=0, **plan)


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_layer_leaves_what_table_2_says(tensor, microbatch):
    """Table 2 of arXiv 2205.05198, s·b·h times: 10 + 24/t + 5as/(ht), 34/t + …, without the core, and full.

    The paper leaves out the two numbers that a norm keeps for a token.
    """
    s, b, h, a, t = 2048, microbatch, 12_288, 96, tensor
    work = megatron(96, h, a, tensor=t, microbatch=b)
    core = 5 * a * s / h
    found = memory.layer_activations(work)
    none, selective, full = found.none, found.selective, found.full
    norms = 2 * 2 * 4 * s * b  # two norms, two numbers per token in fp32
    assert float(none) - norms == pytest.approx(s * b * h * (10 + 24 / t + core / t))
    assert float(selective) - norms == pytest.approx(s * b * h * (10 + 24 / t))
    assert float(full) == pytest.approx(2 * s * b * h)
    split = memory.layer_activations(replace(work, sequence_parallel=1))
    assert float(split.none) - norms / t == pytest.approx(s * b * h / t * (34 + core))
    assert float(split.selective) - norms / t == pytest.approx(34 * s * b * h / t)


# Figures 1 and 7 of the paper, GiB on the first stage; its activations count layers only.
FIGURES = [
    (48, 6144, 64, 1, 1, 4, 59.25, 9.5625),
    (96, 12_288, 96, 8, 3, 1, 66.84, 12.35),
    (105, 20_480, 128, 35, 3, 1, 114.02, 23.08),
    (128, 25_600, 160, 64, 1, 1, 131.25, 26.56),
]


@pytest.mark.parametrize(("layers", "hidden", "heads", "p", "v", "b", "none", "least"), FIGURES)
def test_activations_of_the_paper_within_3_per_cent(layers, hidden, heads, p, v, b, none, least):
    work = megatron(layers, hidden, heads, tensor=8, pipeline=p, virtual=v, microbatch=b)
    chunk = layers / (p * v)
    held = float(rule_of("interleaved").in_flight(p, work.microbatches, v, 0)) * chunk
    assert held * float(memory.layer_activations(work).none) / GIB == pytest.approx(none, rel=0.03)
    split = memory.layer_activations(replace(work, sequence_parallel=1))
    assert held * float(split.selective) / GIB == pytest.approx(least, rel=0.03)


def test_an_uneven_pipeline_needs_the_memory_of_its_heaviest_stage():
    """Megatron-Bridge's case: layers [1, 2, 2, 3] hold 9952 parameters on the heaviest stage; 2 a stage hold 6792.

    So a layer has 3160 parameters and the last stage 472 beside its layers.
    """
    work = replace(
        megatron(8, 8, 1, pipeline=4), layer_parameters=3160, replicated_parameters=0, vocab=58, norm_parameters=8
    )
    one, ends = float(memory.layer_parameters(work)), float(memory.end_parameters(work, False, True))
    assert [stage * one + ends for stage in (3, 2)] == [9952, 6792]


def job(model, **plan):
    precision = plan.pop("precision", "bf16")
    train = Train(global_batch=16, precision=precision)
    return Job(model=model, data=Data(text="-"), train=train, plan=Plan(**{"microbatch": 2, **plan}), cluster=A100)


def test_uneven_stages_are_counted_one_by_one():
    model = ModelSpec(layers=8, hidden=256, heads=8, vocab=1000, sequence=128)
    breakdowns = simulate(job(model, pipeline=4, stages=(1, 2, 2, 3))).memory
    layer = model.layer(0).layer_parameters
    inside = [breakdown.weights / 2 for breakdown in breakdowns]
    assert inside[1] == inside[2] == 2 * layer
    assert inside[0] == layer + model.embedding_parameters
    assert inside[3] == 3 * layer + model.hidden * model.vocab + model.norm_parameters


PLANS = [
    {},
    {"recompute": "selective"},
    {"recompute": "full"},
    {"tensor": 2, "sequence": True},
    {"tensor": 2, "pipeline": 2},
    {"pipeline": 2, "virtual": 2, "schedule": "interleaved"},
    {"pipeline": 2, "stages": (1, 3)},
    {"data": 2, "zero": 1},
    {"data": 2, "zero": 2},
    {"data": 2, "zero": 3},
    {"data": 2, "zero": 1, "precision": "fp32"},
    {"data": 2, "zero": 3, "precision": "fp32"},
]


# levels and precisions meet in others
SLOW = [
    *(
        {"data": 2, "zero": 1},
        {"data": 2, "zero": 3, "precision": "fp32"},
        {"recompute": "selective"},
        {"data": 2, "zero": 2},
    ),
    *({"tensor": 2, "pipeline": 2}, {"pipeline": 2, "virtual": 2, "schedule": "interleaved"}),
]


@pytest.mark.parametrize("plan", thinned(PLANS, SLOW), ids=str)
def test_the_breakdown_is_what_the_trainer_holds(plan):
    """Against the dry run, which counts in the trainer itself what it keeps."""
    from heddle.training.dry_run.dry_run import dry_run

    model = ModelSpec(layers=4, hidden=256, heads=8, vocab=1000, sequence=128)
    kinds, breakdowns = dry_run(job(model, **plan)).kinds, simulate(job(model, **plan)).memory
    for kind in kinds:
        breakdown = breakdowns[kind.stages[0]]
        rows = 1e-3 if plan.get("zero", 0) >= 2 else 0  # shards are of whole rows
        assert breakdown.weights == pytest.approx(kind.held.parameter_bytes, rel=rows)
        assert breakdown.gradients == pytest.approx(kind.peak.gradients, rel=1e-3)
        assert breakdown.optimizer == pytest.approx(kind.held.optimizer_bytes, rel=1e-3)
        assert breakdown.activations == pytest.approx(kind.peak.saved, rel=0.02)
