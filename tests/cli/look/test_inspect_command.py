"""`heddle inspect`: what a run, a checkpoint or a Hugging Face folder holds, and whether it is whole."""

import json
import re
from contextlib import chdir
from pathlib import Path

import pytest

from heddle.checkpoint.exchange.convert import import_huggingface
from heddle.checkpoint.source import huggingface_source
from heddle.spec.job import load_job
from tests.helpers.commands import call, write_job
from tests.helpers.hf_folder import CONFIGS, random_weights, shapes, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two checkpoints, a Hugging Face folder, and what was imported from it."""
    folder = tmp_path_factory.mktemp("inspect")
    job = write_job(folder)
    with chdir(folder):
        changes = ("model.layers=3", "train.steps=4", "train.save_every=2", "plan.microbatch=2")
        assert call("train", job, *(word for change in changes for word in ("--set", change))) == 0
        hf = write_folder(folder / "hf", CONFIGS["llama"], random_weights(CONFIGS["llama"]), shards=2)
        import_huggingface(huggingface_source(hf), folder / "imported")
    return folder


@pytest.fixture
def said(folder, monkeypatch, capsys):
    def inspect(*arguments, code=0):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "120")
        capsys.readouterr()
        assert call("inspect", *arguments) == code
        told = capsys.readouterr()
        return told.err if code else told.out

    return inspect


def rows(text: str) -> dict[str, str]:
    """The lines of the head, by their first word."""
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in text.partition("\n\n")[0].splitlines())


def test_a_run_stands_for_its_newest_checkpoint(folder, said):
    told = rows(said("runs/small"))
    job = load_job(folder / "runs" / "small" / "job.toml")
    assert job.plan is not None
    assert told["folder"] == "runs/small/checkpoints/step-00000004"
    assert told["kind"] == "checkpoint of step 4; older ones: step-00000002"
    assert told["model"] == "custom: 3 layers, hidden 32, 4 heads"
    assert told["plan"] == f"tensor 1 × pipeline 1 × data 1, hash {job.plan.hash}"
    assert told["parameters"] == f"{job.model.parameters:,}"
    assert told["optimizer"] == "included"
    assert "checksums" not in told
    assert "step 2" in rows(said("runs/small/checkpoints/step-00000002"))["kind"]


def test_layers_that_are_alike_take_one_line(folder, said):
    spec = load_job(folder / "runs" / "small" / "job.toml").model
    lines = said("runs/small").partition("\n\n")[2].splitlines()
    table = {re.split(r"\s{2,}", line)[0]: re.split(r"\s{2,}", line.strip())[1:] for line in lines}
    size = f"{3 * spec.layer(0).layer_parameters * 4 / 1024:.1f} KiB"
    assert table["layers.0–2"] == ["3 × 12", f"{3 * spec.layer(0).layer_parameters:,}", "F32", "36", size]
    assert table["optimizer of layers.0–2"][:2] == ["3 × 24", f"{6 * spec.layer(0).layer_parameters:,}"]
    # in the order of the model, the optimizer's last
    assert [name for name in table if "optimizer" not in name] == [
        "tensors",
        "embed.tokens.weight",
        "embed.positions.weight",
        "layers.0–2",
        "norm.weight",
        "norm.bias",
    ]
    assert next(iter(table)) == "tensors"
    assert "optimizer" in list(table)[-1]


def test_every_tensor_is_listed_if_asked(said):
    every = said("runs/small", "--all")
    lines = every.partition("\n\n")[2].splitlines()[1:]
    assert len(lines) == 3 * (2 + 3 * 12 + 2)
    (line,) = [line for line in lines if line.startswith("layers.1.attention.qkv.weight ")]
    assert line.split(maxsplit=1)[1].strip() == "96 × 32    F32      1  12.0 KiB"


def test_an_imported_checkpoint_says_where_it_is_from(said):
    told = rows(said("imported", "--verify"))
    assert told["kind"] == "checkpoint, imported from hf"
    assert told["optimizer"].startswith("none")
    assert "plan" not in told
    assert re.fullmatch(r"all \d+ match", told["checksums"])


def test_a_hugging_face_folder_keeps_its_names(said):
    text = said("hf", "--verify", "--all")
    assert rows(text)["kind"] == "Hugging Face"
    names = [line.split()[0] for line in text.partition("\n\n")[2].splitlines()[1:]]
    assert sorted(names) == sorted(shapes(CONFIGS["llama"]))
    assert names[0] == "model.embed_tokens.weight"
    assert names[-1] == "lm_head.weight"
    assert f"0 match, {len(names)} tensors have none" in rows(text)["checksums"]
    assert "model.layers.0–1" in said("hf")


def test_all_of_it_is_there_as_json(folder, said):
    told = json.loads(said("runs/small", "--json", "--verify"))
    job = load_job(folder / "runs" / "small" / "job.toml")
    assert job.plan is not None
    assert told["kind"] == "checkpoint"
    assert (told["step"], told["plan_hash"]) == (4, job.plan.hash)
    assert told["plan"]["microbatch"] == 2
    assert told["model"]["layers"] == 3
    assert told["parameters"] == job.model.parameters
    assert told["optimizer"] is True
    assert told["verified"] is True
    assert told["files"] == ["part-00000.safetensors"]
    qkv = told["tensors"]["layers.0.attention.qkv.weight:exp_avg"]
    assert qkv == {"shape": [96, 32], "dtype": "F32", "boxes": 1, "bytes": 96 * 32 * 4}
    plain = json.loads(said("hf", "--json"))
    assert "verified" not in plain
    assert (plain["kind"], plain["step"], plain["optimizer"]) == ("huggingface", None, False)


@pytest.mark.parametrize("as_json", [False, True])
def test_damage_is_found_only_if_asked_for(folder, said, as_json, tmp_path):
    copy = tmp_path / "copy"
    import_huggingface(huggingface_source(folder / "hf"), copy)
    part = copy / "part-00000.safetensors"
    content = bytearray(part.read_bytes())
    content[-5] ^= 1
    part.write_bytes(content)
    said(copy)
    options = ["--json"] if as_json else []
    told = said(copy, "--verify", *options, code=2)
    assert "copy is damaged" in told
    assert "checksum" in told
    part.unlink()
    assert "part-00000.safetensors is missing" in said(copy, "--verify", code=2)


def test_what_holds_nothing_is_refused(said, tmp_path):
    assert "is not a run, a checkpoint or a Hugging Face model" in said(tmp_path, code=2)
    (tmp_path / "job.toml").write_text(Path("job.toml").read_text())
    assert "There is no checkpoint in" in said(tmp_path, code=2)


def test_an_index_that_leads_elsewhere_is_refused(folder, said, tmp_path):
    copy = tmp_path / "copy"
    import_huggingface(huggingface_source(folder / "hf"), copy)
    index = copy / "index.json"
    index.write_text(index.read_text().replace("part-00000", "../../part-00000"))
    assert "'../../part-00000.safetensors'" in said(copy, code=2)
