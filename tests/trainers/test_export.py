"""Plans in other trainers' words: every word is one that the trainer defines, and comes back as the same plan."""

import json
import shlex
import tomllib
from dataclasses import replace

import pytest

from heddle.errors import HeddleError
from heddle.spec.plan import Plan
from heddle.trainers.registry import READERS, WRITERS, exported_plan, imported_settings
from tests.trainers.cases import JOBS, job, settings

KINDS = {"int": int, "float": float, "str": str}


def arguments(text):
    """The arguments of a script's arrays, by name."""
    found = {}
    for line in text.splitlines():
        if line.startswith("    --") and not line.startswith("    --master"):
            name, *values = shlex.split(line)
            found[name] = values
    return found


@pytest.mark.parametrize("name", JOBS)
def test_megatron_defines_every_argument_that_is_written(name):
    known = settings("megatron")
    found = arguments(exported_plan(JOBS[name](), "megatron").text)
    assert len(found) > 20
    for argument, values in found.items():
        kind, words = known[argument]
        assert len(values) == (kind != "flag"), argument
        if kind in KINDS and values:
            KINDS[kind](values[0])
        assert not words or values[0] in words, argument


@pytest.mark.parametrize("name", JOBS)
def test_torchtitan_defines_every_key_that_is_written(name):
    known = settings("torchtitan")
    tables = tomllib.loads(exported_plan(JOBS[name](), "torchtitan").text)
    python = {"int": int, "float": (int, float), "str": str, "bool": bool, "list": list}
    for section, table in tables.items():
        for key, value in table.items():
            kind, words = known[f"{section}.{key}"]
            assert isinstance(value, python[kind]), key
            assert not words or value in words, key
    chunks = tables["parallelism"].get("module_fqns_per_model_part", [])
    layers = [name for chunk in chunks for name in chunk if name.startswith("layers.")]
    assert layers == [f"layers.{at}" for at in range(len(layers))]


@pytest.mark.parametrize("name", JOBS)
def test_nemo_has_every_field_that_is_written(name):
    known = settings("nemo")
    section = ""
    for line in exported_plan(JOBS[name](), "nemo").text.splitlines():
        if line.startswith("  "):
            assert f"{section}.{line.split(':')[0].strip()}" in known
        elif line and not line.startswith("#"):
            section = line.split(":")[0]


@pytest.mark.parametrize("trainer", READERS)
@pytest.mark.parametrize("name", JOBS)
def test_a_plan_comes_back_the_same_unless_something_is_said_to_be_missing(name, trainer, tmp_path):
    made = JOBS[name]()
    written = exported_plan(made, trainer)
    path = tmp_path / written.file
    path.write_text(written.text)
    found = imported_settings(trainer, str(path))
    again = found.job(base=made)
    plan = again.planned.plan
    missing = {line.split(" = ")[0].removeprefix("plan.") for line in written.plan_missing}
    beside = {"context_exchange"} if made.plan.context == 1 else set()
    if made.plan.pipeline == 1:
        beside |= {"schedule"}
    for field in Plan.__dataclass_fields__:
        if field not in missing | beside:
            assert getattr(plan, field) == getattr(made.plan, field), field
    assert again.train.global_batch == made.train.global_batch
    assert again.sequence == made.sequence
    assert found.unknown == []


@pytest.mark.parametrize("name", ["example", "zero 1", "experts", "smollm", "qwen2"])
def test_megatron_brings_the_model_back(name):
    made = JOBS[name]()
    written = exported_plan(made, "megatron")
    again = imported_settings("megatron", written.text).job(base=made).model
    assert [line for line in written.missing if line.startswith("model.") and "pads it" not in line] == []
    assert again == replace(made.model, name=again.name, family=again.family)
    assert again.name == made.model.name  # it has the shape of a preset, and its name


@pytest.mark.parametrize(
    ("trainer", "plan", "said"),
    [
        ("megatron", {"schedule": "zb-h1", "pipeline": 2, "data": 16}, "plan.schedule"),
        ("megatron", {"data": 32, "compress_gradients": "int8"}, "plan.compress_gradients"),
        ("megatron", {"data": 32, "local_steps": 10}, "plan.local_steps"),
        ("megatron", {"data": 32, "offload": ["activations:host"]}, "plan.offload"),
        ("megatron", {"data": 32, "layers": [{"layers": "3-9", "recompute": "full"}]}, "plan.layers"),
        ("torchtitan", {"data": 32, "zero": 1}, "plan.zero"),
        ("torchtitan", {"tensor": 4, "data": 8, "zero": 3}, "plan.sequence"),
        ("torchtitan", {"data": 32, "layers": [{"layers": "3-9", "recompute": "full"}]}, "plan.layers"),
        ("deepspeed", {"pipeline": 4, "data": 8}, "plan.pipeline"),
        ("deepspeed", {"data": 32, "recompute": "full"}, "plan.recompute"),
        ("accelerate", {"pipeline": 4, "data": 8, "stages": [7, 9, 9, 7]}, "plan.stages"),
        ("accelerate", {"data": 32, "zero": 3, "recompute": "selective"}, "plan.recompute"),
        ("nemo", {"data": 32, "compress_gradients": "int8"}, "plan.compress_gradients"),
    ],
)
def test_what_has_no_word_is_listed(trainer, plan, said):
    found = exported_plan(job(**plan), trainer)
    assert any(line.startswith(said) for line in found.plan_missing), found.plan_missing
    assert {*found.plan_missing} <= {*found.missing}
    if trainer not in ("deepspeed",):  # JSON has no comments
        assert f"# - {said}" in found.text


def test_models_that_a_trainer_does_not_know_are_listed():
    odd = exported_plan(JOBS["gemma"](), "megatron").missing
    for field in ("norm_place", "attention_cap", "logit_cap", "embedding_scale", "activation"):
        assert any(line.startswith(f"model.{field} ") for line in odd), field
    assert any("no flavor" in line for line in exported_plan(JOBS["gemma"](), "torchtitan").missing)


def test_deepspeed_has_the_batch_that_it_checks():
    for name in JOBS:
        made = JOBS[name]()
        found = json.loads(exported_plan(made, "deepspeed").text)
        product = found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * made.plan.data
        assert found["train_batch_size"] == product


def test_accelerate_chooses_the_backend_that_has_most_of_the_plan():
    kinds = {
        name: next(
            line.split()[1]
            for line in exported_plan(JOBS[name](), "accelerate").text.splitlines()
            if line.startswith("distributed_type")
        )
        for name in JOBS
    }
    assert kinds["zero 3"] == kinds["context"] == "FSDP"
    assert kinds["zero 2"] == "DEEPSPEED"
    assert kinds["example"] == kinds["pipeline"] == "MEGATRON_LM"
    assert kinds["replicas"] == "MULTI_GPU"
    assert kinds["one"] == '"NO"'  # else YAML reads it as false


def test_an_unknown_trainer_is_told():
    with pytest.raises(HeddleError, match="no trainer 'megatrn'"):
        exported_plan(JOBS["one"](), "megatrn")
    with pytest.raises(HeddleError, match="no trainer 'nemo'"):
        imported_settings("nemo", "x")
    assert set(READERS) <= set(WRITERS)
