"""A pattern that is missing, doubled or wrong is named: before training where shapes do not fit, else by a proof."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from heddle.errors import HeddleError
from heddle.parallel.tensor.patterns import check_split
from heddle.planning.search.legal import SEARCHED_AXES
from heddle.spec import Plan
from heddle.spec.own import OwnModel, own_model
from heddle.training.prove.prove import conclude, observe
from heddle.training.prove.shrink import shrink
from tests.helpers.cases import thinned
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


def moved(name: str, pattern: str, to: str) -> dict[str, Any]:
    """The plan of a module with one of its patterns somewhere else."""
    plan = {key: [each for each in value if each != pattern] for key, value in PLANS[name].items() if key != "blocks"}
    return plan | {"blocks": PLANS[name]["blocks"], to: [*plan.get(to, []), pattern]}


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


ODD_WRONG = {  # pattern, where it was put, and what is named
    "rwkv": [("*.o", "column", r"at the pattern '\*.o' \(column\)"), ("*.decay", "replicated", r"'\*.decay' \(repl")],
    "hybrid": [("*.wide", "row", r"at the pattern '\*.wide' \(row\)"), ("*.back", "replicated", r"'\*.back' \(repl")],
    "mixture": [("*.up.*", "row", r"at the pattern '\*.up.\*' \(row\)"), ("*.v", "replicated", r"'\*.v' \(repl")],
    "two_ahead": [("*.norm", "column", r"at the pattern '\*.norm' \(column\)")],
}


@pytest.mark.parametrize("name", ODD_WRONG)
def test_patterns_of_odd_modules_that_do_not_fit_are_named(tmp_path, name):
    for pattern, to, named in ODD_WRONG[name]:
        with pytest.raises(HeddleError, match="tensor = 2 does not fit") as told:
            check_split(model(tmp_path, name, moved(name, pattern, to)), 2)
        assert re.search(named, told.value.why), told.value.why


def test_right_patterns_fit(tmp_path):
    for name in ("opt", "research", "with_middle", "llama", *ODD_WRONG):
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
    "the gate of experts is column": (
        "mixture",
        moved("mixture", "*.choose", "column"),
        r"differs first at blocks.1.look.norm: .* or one before it: '\*.choose' \(column\)",
    ),
}


@pytest.mark.dist
@pytest.mark.parametrize("lie", thinned(LIES, slow=["a norm over columns", "the gate of experts is column"]))
def test_a_proof_names_the_pattern(world: World, tmp_path, lie):
    name, plan, named = LIES[lie]
    shrunk = shrink(job(write(tmp_path, name, plan), Plan(tensor=2, microbatch=2)), steps=2)
    proof = conclude(shrunk, world.run(observe, shrunk.job.plan, shrunk.job)[0], 0.0)
    assert not proof.comparison.equal
    assert proof.comparison.gradient_limit < 1e-2  # a key's bias, whose gradient is zero, allows nothing more
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


def test_a_block_that_runs_several_times_is_no_list_of_blocks(tmp_path):
    with pytest.raises(HeddleError, match=re.escape("ran in the order [0, 0, 0]")) as told:
        model(tmp_path, "universal", {"blocks": "blocks.*"})
    assert "data parallelism and ZeRO need none" in told.value.hint


@pytest.mark.parametrize("blocks", ["decoder.*", "encoder.*"])
def test_an_encoder_and_its_decoder_are_not_cut(tmp_path, blocks):
    """Every block of the decoder looks at what the encoder made, which no later stage has."""
    made = model(tmp_path, "towers", {"blocks": blocks})
    assert (made.layers, made.most_stages) == (2, 1)
    assert made.bypass == ("decoder.0" if blocks == "decoder.*" else "encoder.1")
    Plan(data=2, zero=3).check(made, 8, TOKENS)
    with pytest.raises(HeddleError, match="pipeline = 2 cannot cut this module") as told:
        Plan(pipeline=2).check(made, 8, TOKENS)
    assert made.bypass in told.value.why
    assert "pipeline = 1" in told.value.hint
    assert [SEARCHED_AXES["pipeline"](made, TOKENS, 8, degree) for degree in (1, 2)] == [True, False]


def test_plans_are_read(tmp_path):
    with pytest.raises(HeddleError, match="plan has no key 'columns'"):
        model(tmp_path, "opt", {"columns": ["*"]})
    with pytest.raises(
        HeddleError, match=re.escape("plan['blocks'] = 'model.layers.*' matches no list of blocks")
    ) as told:
        model(tmp_path, "opt", {"blocks": "model.layers.*"})
    assert "model.decoder.layers.*" in told.value.hint
    assert set(PLANS) >= {"opt", "bloom", "mpt", "mamba"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("sequence", -1), ("sequence", [3]), ("sequence", 1.5), ("vocab", 0), ("vocab", "all"), ("name", 3)],
)
def test_what_a_job_says_of_a_module_is_checked_before_its_code_runs(tmp_path, capfd, key, value):
    table = {"module": write(tmp_path, "opt"), "vocab": VOCAB, "sequence": TOKENS} | {key: value}
    with pytest.raises(HeddleError, match=rf"model\.{key} (=|must be|has)"):
        own_model(table)
    assert "Running the code" not in capfd.readouterr().err
