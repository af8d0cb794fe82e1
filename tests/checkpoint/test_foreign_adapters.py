"""Folders of adapters that are broken, hostile or not what they seem; without PEFT itself."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from heddle.checkpoint.adapters import PREFIX, load_peft, peft_name
from heddle.checkpoint.source import adapter_names
from heddle.errors import HeddleError
from heddle.spec.hf.peft import CONFIG, WEIGHTS, config_of, lora_of
from heddle.spec.job import job_from_tables
from heddle.spec.model import ModelSpec
from heddle.spec.tune import Lora

MODEL = ModelSpec(
    layers=1, hidden=16, heads=2, vocab=32, sequence=8, norm="rmsnorm", activation="swiglu", positions="rotary",
    bias="none", tied=False,
)  # fmt: skip
LORA = Lora(rank=2, alpha=4.0, targets=("q", "down"))


@pytest.fixture
def folder(tmp_path):
    tensors = {}
    for linear, target, _, a, b in adapter_names(MODEL, LORA):
        for letter, shape in (("A", a), ("B", b)):
            tensors[f"{PREFIX}{peft_name(MODEL, linear, target)}.lora_{letter}.weight"] = torch.ones(shape)
    save_file(tensors, tmp_path / WEIGHTS)
    (tmp_path / CONFIG).write_text(json.dumps(config_of(LORA, "base")))
    load_peft(tmp_path, MODEL, LORA, [])  # as it is, it is right
    return tmp_path


@pytest.mark.parametrize(
    "damaged",
    [lambda raw: b"", lambda raw: raw[:-20], lambda raw: (2**60).to_bytes(8, "little") + b"{}", lambda raw: b"x" * 99],
    ids=["empty", "cut", "header without end", "text"],
)
def test_damaged_weights_are_named(folder, damaged):
    (folder / WEIGHTS).write_bytes(damaged((folder / WEIGHTS).read_bytes()))
    with pytest.raises(HeddleError, match=f"{WEIGHTS} cannot be read as safetensors") as found:
        load_peft(folder, MODEL, LORA, [])
    assert found.value.hint


def test_whole_numbers_are_no_adapters(folder):
    tensors = load_file(folder / WEIGHTS)
    save_file({name: tensor.to(torch.int32) for name, tensor in tensors.items()}, folder / WEIGHTS)
    with pytest.raises(HeddleError, match="is of type I32"):
        load_peft(folder, MODEL, LORA, [])
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / WEIGHTS)
    load_peft(folder, MODEL, LORA, [])


def test_another_scale_than_the_adapters_were_trained_with_is_refused(folder):
    with pytest.raises(HeddleError, match="were trained with 2"):
        load_peft(folder, MODEL, Lora(rank=2, alpha=8.0, targets=("q", "down")), [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa'"),
        ({"init_lora_weights": "olora"}, "init_lora_weights = 'olora'"),
        ({"init_lora_weights": {"a": 1}}, "init_lora_weights"),
        ({"target_modules": [5, None]}, "target_modules"),
        ({"use_rslora": "x"}, "has the wrong type"),
    ],
    ids=str,
)
def test_what_was_begun_or_named_otherwise_is_refused(folder, change, words):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | change))
    with pytest.raises(HeddleError, match=words):
        lora_of(folder)


@pytest.mark.parametrize("start", [True, "gaussian", None])
def test_adapters_beside_unchanged_weights_are_read(folder, start):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"init_lora_weights": start}))
    assert lora_of(folder) == LORA


def test_a_rank_above_the_width_of_the_model_is_refused():
    tables = {"model": {"preset": "tiny"}, "data": {"text": "stdlib:*.py"}, "tune": {"lora": {"rank": 10**9}}}
    with pytest.raises(HeddleError, match=r"tune.lora.rank = 1000000000 with hidden = ") as found:
        job_from_tables(tables)
    assert "Use at most" in found.value.hint
