"""Full, LoRA or QLoRA: the best plan of each on the same devices, or why none fits."""

from __future__ import annotations

import json
import re

import pytest

import heddle
from heddle.planning.methods import FULL, LORA, QLORA, fine_tunes, methods
from heddle.planning.request import PlanRequest
from tests.helpers.commands import call


def job(model: str = "llama-3-8b", **more: object) -> heddle.Job:
    tune = {"lora": {"rank": 16}}
    given = {"cluster": "dgx-h100", "global_batch": 8, "sequence_length": 2048, "precision": "bf16", "tune": tune}
    return heddle.job(model, **given | more)  # type: ignore[arg-type]


def test_what_learns_less_holds_less():
    smallest = PlanRequest(devices=1, objective="smallest", by_layer=False)
    full, lora, qlora = methods(job(), smallest)
    assert (full.name, lora.name, qlora.name) == (FULL, LORA, QLORA)
    assert full.found is None
    assert "none fits" in full.why
    assert lora.found is not None
    assert qlora.found is not None
    # 8.03 B parameters in two bytes, of which 6.98 B are in four bits
    assert lora.found.memory[0].weights == pytest.approx(2 * 8.03e9 + 2 * 41.9e6, rel=0.01)
    assert qlora.found.memory[0].weights == pytest.approx(0.5625 * 6.98e9 + 2 * 1.05e9 + 2 * 41.9e6, rel=0.01)
    assert lora.learned == qlora.learned == 41_943_040
    assert qlora.hours is not None
    assert lora.hours is not None
    assert full.hours is None
    assert qlora.hours > lora.hours  # four bits are made numbers anew


def test_experts_have_no_base_in_four_bits():
    found = methods(job("olmoe-1b-7b", tune={"lora": {"rank": 8, "targets": ["q", "v"]}}), PlanRequest(devices=8))
    assert [each.name for each in found] == [FULL, LORA]


def test_a_job_that_starts_anew_is_not_compared():
    assert not fine_tunes(job(tune=None))
    assert fine_tunes(job())


def test_explain_compares_them_and_json_has_the_numbers(tmp_path, capsys):
    path = tmp_path / "sft.toml"
    path.write_text(
        '[model]\npreset = "llama-3-8b"\n[cluster]\npreset = "dgx-h100"\n[train]\nglobal_batch = 8\nsequence = 2048\n'
        "[tune]\nlora = { rank = 16 }\n"
    )
    assert call("plan", path, "--explain", "--json") == 0
    found = {each["method"]: each for each in json.loads(capsys.readouterr().out)["methods"]}
    assert found.keys() == {FULL, LORA, QLORA}
    assert all(each["hours_per_million_tokens"] > 0 for each in found.values())
    # where the job itself does not fit, the others are shown before the error
    assert call("plan", path, "--explain", "--devices", "1", "--memory-gib", "15", "--no-by-layer") == 2
    told = capsys.readouterr()
    assert re.search(r"^  LoRA .*none fits", told.out, flags=re.MULTILINE)
    assert re.search(r"^  QLoRA .*tensor 1 × pipeline 1", told.out, flags=re.MULTILINE)
    assert "none fits" in told.err
