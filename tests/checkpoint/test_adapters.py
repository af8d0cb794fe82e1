"""Adapters on disk: with their base by reference, as PEFT has them, and added to the weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import heddle
from heddle.checkpoint.index import read_index
from heddle.checkpoint.load_model import load_for_inference
from heddle.errors import HeddleError
from heddle.models import Microbatch
from heddle.spec.hf.peft import lora_of
from heddle.spec.tune import Lora
from tests.helpers.commands import call
from tests.helpers.tuned_base import ignore_old_name, save_base

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

pytestmark = ignore_old_name

IDS = torch.arange(12) * 7 % 200


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model", transformers)


def write_job(folder: Path, base: Path, lora: str, name: str = "run", more: str = "") -> Path:
    rows = [{"prompt": f"{i} and {i}", "completion": f" make {2 * i}"} for i in range(40)]
    (folder / "chat.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = f"""
[data]
chat = "chat.jsonl"
[train]
from = "{base}"
name = "{name}"
steps = 4
global_batch = 4
learning_rate = 1e-2
precision = "fp32"
sequence = 32
save_every = 2
[tune]
{lora}
{more}
[plan]
"""
    (folder / f"{name}.toml").write_text(text)
    return folder / f"{name}.toml"


LORA = "lora = { rank = 4, alpha = 16.0 }"


def logits_of(folder: Path) -> torch.Tensor:
    model, _ = load_for_inference(folder, print)
    with torch.no_grad():
        return model(IDS, Microbatch(sequence=len(IDS)))


@pytest.fixture
def run(tmp_path, monkeypatch, base) -> Path:
    monkeypatch.chdir(tmp_path)
    heddle.train(write_job(tmp_path, base, LORA))
    return tmp_path / "runs" / "run"


def test_a_run_with_adapters_goes_to_peft_and_back(run, tmp_path, base):
    checkpoint = run / "checkpoints" / "step-00000004"
    assert all(".adapters." in name for name in read_index(checkpoint))
    merged = logits_of(run)
    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    assert not torch.allclose(merged, plain(IDS[None]).logits[0], atol=1e-3)
    folder = heddle.export_peft(run, tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(plain, folder)
    with torch.no_grad():
        torch.testing.assert_close(merged, theirs(IDS[None]).logits[0], rtol=0, atol=1e-4)
    # PEFT writes its own, a run begins with it, and what it writes is the same, bit for bit
    theirs.save_pretrained(tmp_path / "theirs")
    job = write_job(tmp_path, base, 'adapter = "theirs"', "again")
    loaded = heddle.load_job(job, ["train.steps=1", "train.learning_rate=0.0"])
    assert loaded.tune.lora.rank == 4
    assert loaded.tune.lora.scale == 4
    heddle.train(loaded)
    again = heddle.export_peft(tmp_path / "runs" / "again", tmp_path / "second")
    first, second = (load_file(each / "adapter_model.safetensors") for each in (folder, again))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_adapters_are_added_to_the_weights_by_an_export(run, tmp_path):
    heddle.export_hf(run, tmp_path / "merged")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    with torch.no_grad():
        torch.testing.assert_close(logits_of(run), model(IDS[None]).logits[0], rtol=0, atol=1e-4)


def test_a_resumed_run_goes_on_exactly_and_refuses_another_base(tmp_path, monkeypatch, base):
    monkeypatch.chdir(tmp_path)
    job = write_job(tmp_path, base, LORA)
    heddle.train(heddle.load_job(job, ["train.name=whole"]))
    heddle.train(heddle.load_job(job, ["train.name=parts", "train.steps=2"]), allow_changes=True)
    heddle.train(heddle.load_job(job, ["train.name=parts"]), resume=True, allow_changes=True)
    about = json.loads((tmp_path / "runs" / "parts" / "base.json").read_text())
    assert len(about["sha256"]) == 64
    other = tmp_path / "other"
    other.mkdir()
    for file in base.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    tensors = load_file(other / "model.safetensors")
    tensors["model.norm.weight"] += 1
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(HeddleError, match="are not those that"):
        heddle.train(heddle.load_job(job, ["train.name=parts", f"train.from={other}", "train.steps=5"]), resume=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"peft_type": "IA3"}, "is not LORA"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"target_modules": ["c_attn"]}, "target_modules"),
        ({"target_modules": "all-linear"}, "target_modules"),
        ({"r": 0}, r"rank must be in \[1, 1e9\]"),
        ({"rank_pattern": {"q_proj": 3}}, "rank_pattern"),
    ],
)
def test_adapters_that_compute_something_else_are_refused(tmp_path, change, words):
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    assert lora_of(tmp_path) == Lora(rank=4, alpha=8.0, targets=("q",))
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(HeddleError, match=words):
        lora_of(tmp_path)


def test_what_is_no_adapter_is_said(tmp_path):
    with pytest.raises(HeddleError, match="is not a folder of PEFT's"):
        lora_of(tmp_path / "gone")
    with pytest.raises(HeddleError, match="there is no 'query'"):
        Lora(targets=("query",))


def test_adapters_beside_four_bits_are_added_to_either_base(tmp_path, monkeypatch, base, capsys):
    monkeypatch.chdir(tmp_path)
    job = write_job(tmp_path, base, LORA + '\nbase = "nf4"')
    heddle.train(heddle.load_job(job, ["train.steps=2"]), allow_changes=True)
    heddle.train(heddle.load_job(job), resume=True, allow_changes=True)  # from the base, quantized again
    run = tmp_path / "runs" / "run"
    trained = logits_of(run)
    assert call("export", "hf", run, "-o", tmp_path / "trained") == 0
    told = capsys.readouterr().out
    errors = [float(found) for found in re.findall(r"by (\d\.\de-?\+?\d+)", told.partition("Logits of")[2])]
    assert errors[0] < 1e-6 < 1e-3 < errors[1]
    heddle.export_hf(run, tmp_path / "original", onto="original")
    with torch.no_grad():
        models = [
            transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("trained", "original")
        ]
        same, other = (model(IDS[None]).logits[0] for model in models)
    torch.testing.assert_close(trained, same, rtol=0, atol=1e-4)
    assert (trained - other).abs().max() / trained.abs().max() == pytest.approx(errors[1], rel=0.9)
    folder = heddle.export_peft(run, tmp_path / "adapter")
    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        theirs = peft.PeftModel.from_pretrained(plain, folder)(IDS[None]).logits[0]
    torch.testing.assert_close(theirs, other, rtol=0, atol=1e-4)


def test_only_a_base_in_four_bits_has_two(run, tmp_path):
    with pytest.raises(HeddleError, match="--onto original is for runs with"):
        heddle.export_hf(run, tmp_path / "merged", onto="original")
