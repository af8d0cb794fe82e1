"""A pattern that is missing, doubled or wrong is named: before training where shapes do not fit, else by a proof."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from heddle.errors import HeddleError
from heddle.parallel.tensor.patterns import check_split
from heddle.spec import Plan
from heddle.spec.own import OwnModel, own_model
from heddle.training.prove.prove import conclude, observe
from heddle.training.prove.shrink import shrink
from tests.helpers.own_modules import TOKENS, VOCAB
from tests.helpers.world import World
from tests.models.own.files import OPT, PLANS, RESEARCH, job, write


def model(folder: Path, name: str, plan: dict[str, Any] | None = None) -> OwnModel:
    return own_model({"module": write(folder, name, plan), "vocab": VOCAB, "sequence": TOKENS})


def test_every_parameter_is_covered_by_exactly_one_pattern(tmp_path):
    uncovered = {**OPT, "replicated": ["*.embed_positions"]}
    with pytest.raises(
        HeddleError, match=r"14 parameters are covered by no pattern of plan, 0 by more than one"
    ) as told:
        model(tmp_path, "opt", uncovered)
    assert "no pattern: model.decoder.final_layer_norm.weight" in told.value.why
    twice = {**OPT, "replicated": ["*layer_norm*", "*.embed_positions", "*.0.fc1.bias"]}
    with pytest.raises(HeddleError, match="0 parameters are covered by no pattern of plan, 1 by more than one") as told:
        model(tmp_path, "opt", twice)
    assert "model.decoder.layers.0.fc1.bias by '*.fc1' (column) and '*.0.fc1.bias' (replicated)" in told.value.why
    with pytest.raises(HeddleError, match=re.escape("the pattern '*.qproj' (column) matches no parameter")):
        model(tmp_path, "opt", {**OPT, "column": [*OPT["column"], "*.qproj"]})


def test_hugging_faces_own_plan_is_the_default(tmp_path):
    assert model(tmp_path, "llama").tensor_degrees == [1, 2]
    assert model(tmp_path, "bloom").tensor_degrees == [1]
    with pytest.raises(HeddleError, match="tensor = 2, but nobody says how the module is split"):
        job(write(tmp_path, "bloom"), Plan(tensor=2))


SWAPPED = {**OPT, "column": [*OPT["column"][:3], "*.fc2"], "row": ["*.out_proj", "*.fc1"]}
NORM = {**OPT, "column": [*OPT["column"], "*self_attn_layer_norm"], "replicated": [*OPT["replicated"][1:], "*final_*"]}
WRONG = {
    "row and column of the MLP swapped": (SWAPPED, "'*.fc1' (row) for model.decoder.layers.0.fc1"),
    "row and column of attention swapped": (
        {**OPT, "column": ["*.out_proj", "*.fc1"], "row": ["*.q_proj", "*.k_proj", "*.v_proj", "*.fc2"]},
        "'*.q_proj' (row) for model.decoder.layers.0.self_attn.q_proj",
    ),
    "a norm is column": (NORM, "'*self_attn_layer_norm' (column) for model.decoder.layers.0.self_attn_layer_norm"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_pattern_that_does_not_fit_is_named_before_training(tmp_path, case):
    plan, named = WRONG[case]
    with pytest.raises(HeddleError, match="tensor = 2 does not fit") as told:
        check_split(model(tmp_path, "opt", plan), 2)
    assert f"the pattern {named}" in told.value.why


def test_right_patterns_fit(tmp_path):
    for name in ("opt", "research", "with_middle", "llama"):
        check_split(model(tmp_path, name), 2)


def test_a_row_of_what_is_no_product_is_refused(tmp_path):
    wrong = {
        **RESEARCH,
        "row": [*RESEARCH["row"], "end"],
        "replicated": [x for x in RESEARCH["replicated"] if x != "end"],
    }
    with pytest.raises(HeddleError, match=re.escape("The pattern 'end' (row) is wrong for end, which is a Norm")):
        check_split(model(tmp_path, "research", wrong), 2)


# What fits and computes something else, only a proof finds.
LIES = {
    "a norm over columns": ("with_middle", None, r"at body.stack.0.middle: the pattern '\*.middle' \(column\)"),
    "a norm of heads is replicated": (
        "research",
        {**RESEARCH, "replicated": [*RESEARCH["replicated"], "*.scale"], "partial": []},
        r"gradients are wrong from body.stack.4.scale.weight on: the pattern '\*.scale' \(replicated\) .*partial",
    ),
}


@pytest.mark.dist
@pytest.mark.parametrize("lie", LIES)
def test_a_proof_names_the_pattern(world: World, tmp_path, lie):
    name, plan, named = LIES[lie]
    shrunk = shrink(job(write(tmp_path, name, plan), Plan(tensor=2, microbatch=2)), steps=2)
    proof = conclude(shrunk, world.run(observe, shrunk.job.plan, shrunk.job)[0], 0.0)
    assert not proof.comparison.equal
    assert proof.cause is not None
    assert re.search(named, proof.cause), proof.cause


@pytest.mark.slow
@pytest.mark.dist
def test_a_proof_of_the_right_patterns_is_equal(world: World, tmp_path):
    plan = Plan(tensor=2, pipeline=2, data=2, zero=1, microbatch=2, stages=(3, 2))
    shrunk = shrink(job(write(tmp_path, "research"), plan), steps=4)
    proof = conclude(shrunk, world.run(observe, shrunk.job.plan, shrunk.job)[0], 0.0)
    assert proof.comparison.equal, proof.cause
    assert shrunk.job.plan.stages == (3, 2)
    assert "idle" in proof.comparison.gradients  # which nothing uses


def test_plans_are_read(tmp_path):
    with pytest.raises(HeddleError, match="plan has no key 'columns'"):
        model(tmp_path, "opt", {"columns": ["*"]})
    with pytest.raises(
        HeddleError, match=re.escape("plan['blocks'] = 'model.layers.*' matches no list of blocks")
    ) as told:
        model(tmp_path, "opt", {"blocks": "model.layers.*"})
    assert "model.decoder.layers.*" in told.value.hint
    assert set(PLANS) >= {"opt", "bloom", "mpt", "mamba"}
