"""The walk-through on eight GPUs, as the page writes it, up to the script: nothing in it needs a GPU."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from heddle.data.tokenizer import ByteTokenizer
from tests.helpers.commands import REPOSITORY, call

PAGE = (REPOSITORY / "docs" / "train" / "fine-tuning.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## On eight GPUs")[2].partition("\n## ")[0]
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (job,) = re.findall(r"^```toml\n(.*?)^```$", SECTION, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "sft.toml").write_text(job)
    (tmp_path / "chats.jsonl").write_text(json.dumps({"prompt": "a", "completion": "b"}))
    (tmp_path / "llama-folder").mkdir()
    (tmp_path / "llama-folder" / "config.json").write_text(json.dumps(CONFIG))
    ByteTokenizer().save(tmp_path / "llama-folder")
    return tmp_path


def commands() -> list[list[str]]:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", SECTION, flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


@pytest.mark.parametrize("tries", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_walk_through_on_eight_gpus_plans_tries_and_launches(folder, capsys, tries):
    plan, dry, prove, launch = commands()
    assert prove == ["heddle", "prove", "planned.toml"]  # whose own tests are elsewhere
    assert call(*plan[1:]) == 0
    told = capsys.readouterr().out
    for method in ("full", "LoRA", "QLoRA"):
        assert re.search(rf"^  {method} .*tensor 1 × pipeline 1 × data 8", told, flags=re.MULTILINE), told
    assert dry == ["heddle", "train", "planned.toml", "--dry-run"]
    if tries:
        assert call(*dry[1:]) == 0
        assert "8 ranks" in capsys.readouterr().out
    assert call(*launch[1 : launch.index(">")]) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --nodes=1" in script
    assert "#SBATCH --time=4:00:00" in script
