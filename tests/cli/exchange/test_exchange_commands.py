"""`heddle import hf` and `heddle export hf`, the page that describes them, and how they refuse."""

import json
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from heddle.checkpoint.exchange import agreement
from heddle.data.tokenizer import ByteTokenizer
from heddle.models.huggingface_names import GPT2, LLAMA
from tests.helpers.commands import ENVIRONMENT, REPOSITORY, call, heddle, run_commands, write_job, write_named_blocks
from tests.helpers.hf_folder import CONFIGS, random_weights, write_folder

PAGE = REPOSITORY / "docs" / "train/huggingface.md"


@pytest.fixture(autouse=True)
def _without_transformers(monkeypatch):
    """These tests are about commands; what they say must not depend on what is installed."""
    monkeypatch.setattr(agreement, "_transformers", lambda: None)


@pytest.fixture
def folder(tmp_path):
    folder = write_folder(tmp_path / "hf", CONFIGS["llama"], random_weights(CONFIGS["llama"]), shards=2)
    ByteTokenizer().save(folder)
    return folder


@pytest.fixture
def refused(capsys):
    """Run a command that must be refused; give what it said on stderr."""

    def run(*arguments):
        capsys.readouterr()
        assert call(*arguments) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        first, *others = said.splitlines()
        assert first.startswith("error: ")
        assert others, "an error says more than what is wrong"
        return said

    return run


@pytest.mark.dist
def test_every_command_of_the_page_works_in_order(tmp_path):
    assert len(write_named_blocks(PAGE, tmp_path)) == 2
    ran = run_commands(PAGE, tmp_path)
    assert {command.split()[1] for command in ran} == {"train", "export", "import", "generate", "inspect"}
    assert load_file(tmp_path / "exported" / "model.safetensors")["lm_head.weight"].dtype == torch.float32
    small = list((tmp_path / "exported-small").glob("*.safetensors"))
    assert len(small) > 1
    assert {tensor.dtype for path in small for tensor in load_file(path).values()} == {torch.bfloat16}


def spelled_out(cell):
    """'`a.b`, `c`' is a.b and a.c."""
    first, *others = re.findall(r"`([^`]+)`", cell) or [""]
    return [first, *(f"{first.rpartition('.')[0]}.{other}" for other in others)]


def test_the_map_of_the_page_is_the_map():
    rows = re.findall(r"^\| (`[^|]*) \|([^|]*)\|([^|]*)\|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for column, names in ((1, GPT2), (2, LLAMA)):
        told = {tuple(spelled_out(row[0])): spelled_out(row[column]) for row in rows if row[column].strip()}
        expected = {}
        for ours, theirs in names.modules.items():
            expected[ours.format("N")] = [
                each.format("N") for each in ([theirs] if isinstance(theirs, str) else theirs)
            ]
        pairs = {
            key: [value]
            for keys, values in told.items()
            if len(keys) > 1
            for key, value in zip(keys, values, strict=True)
        }
        assert pairs | {keys[0]: values for keys, values in told.items() if len(keys) == 1} == expected


def test_import_and_export_say_what_they_did(folder, capsys):
    assert call("import", "hf", folder, "-o", "in") == 0
    said = capsys.readouterr().out
    assert re.search(r"llama: [\d,]+ parameters, [\d.]+ KiB in 1 file at in, with tokenizer.json", said)
    assert "Not compared with transformers: transformers is not installed" in said
    assert "pip install transformers" in said
    assert 'from = "in"' in said
    assert call("export", "hf", "in", "-o", "out", "--dtype", "fp16", "--shard-gib", "0.00002") == 0
    said = capsys.readouterr().out
    files = len(list(Path("out").glob("*.safetensors")))
    assert files > 1
    assert f"in {files} files at out" in said
    assert "Not compared" in said
    before = {k: v for path in folder.glob("*.safetensors") for k, v in load_file(path).items()}
    after = {k: v for path in Path("out").glob("*.safetensors") for k, v in load_file(path).items()}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key].half(), after[key]) for key in before)


def test_a_folder_may_be_exported_without_an_import(folder):
    assert call("export", "hf", folder, "-o", "out", "--no-check") == 0
    assert Path("out/model.safetensors").is_file()


def test_imported_models_and_plain_folders_write_text(folder, capsys):
    assert call("import", "hf", folder, "-o", "in") == 0
    capsys.readouterr()
    said = []
    for path in (folder, "in"):
        assert call("generate", path, "--prompt", "thread", "--tokens", "8", "--temperature", "0") == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].startswith("thread")


def test_a_trained_run_is_exported_from_a_real_process(tmp_path):
    job = write_job(tmp_path)
    with chdir(tmp_path):
        assert call("train", job, "--set", "train.steps=2") == 0
    assert "model.safetensors" not in heddle("export", "hf", "runs/small", "-o", "out", "--no-check", cwd=tmp_path)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert json.loads((tmp_path / "out" / "config.json").read_text())["eos_token_id"] == 256


@pytest.mark.parametrize("arguments", [("import", "hf"), ("export", "hf")], ids=["import", "export"])
def test_what_is_no_model_is_refused(arguments, refused, tmp_path):
    Path("empty").mkdir()
    for path in ("empty", "nowhere"):
        assert path in refused(*arguments, path, "-o", "out")
    assert not Path("out").exists()


def test_an_existing_output_is_refused(folder, refused):
    assert "hf exists already" in refused("import", "hf", folder, "-o", folder)
    assert "hf exists already" in refused("export", "hf", folder, "-o", folder)


def test_damage_and_tampering_are_refused(folder, refused):
    index = folder / "model.safetensors.index.json"
    plain = index.read_text()
    index.write_text(plain.replace("model-00002-of-00002.safetensors", "../x.safetensors"))
    assert "'../x.safetensors'" in refused("import", "hf", folder, "-o", "out")
    index.write_text(plain)
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"\xff" * 100)
    assert "model-00002-of-00002.safetensors is damaged" in refused("import", "hf", folder, "-o", "out")
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").touch()
    assert "never unpickles anything" in refused("import", "hf", folder, "-o", "out")
    (folder / "config.json").write_text('{"model_type": "bloom"}')
    assert "ALiBi" in refused("import", "hf", folder, "-o", "out")
    assert not Path("out").exists()


def test_files_without_room_are_refused(folder, refused):
    assert "--shard-gib must be in (0, 1e9], got 0" in refused("export", "hf", folder, "-o", "out", "--shard-gib", "0")


@pytest.mark.parametrize("arguments", [("import", "hf"), ("export", "hf"), ("inspect",)], ids=lambda words: words[0])
def test_help_imports_neither_torch_nor_numpy(arguments):
    command = [sys.executable, "-X", "importtime", "-m", "heddle", *arguments, "--help"]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "heddle.cli.app" in imported
    assert {name for name in imported if name.partition(".")[0] in ("torch", "numpy", "safetensors")} == set()
