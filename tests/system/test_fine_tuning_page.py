"""The walk-through of the page on fine-tuning, as it is written: an answer changes from wrong to right."""

from __future__ import annotations

import re

import pytest
import torch

from tests.helpers.commands import REPOSITORY

PAGE = REPOSITORY / "docs" / "train" / "fine-tuning.md"

# PEFT still asks transformers by an old name
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")


def test_the_walk_through_on_a_laptop_works_as_it_is_written(tmp_path, monkeypatch):
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    space: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), space)
    assert (space["before"], space["after"]) == ("Green.", "Blue.")
    base = transformers.AutoModelForCausalLM.from_pretrained("base")
    model = peft.PeftModel.from_pretrained(base, "adapter")
    tokenizer = transformers.AutoTokenizer.from_pretrained("base")
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": space["question"]}], add_generation_prompt=True, return_tensors="pt"
    )
    ids = ids["input_ids"] if not isinstance(ids, torch.Tensor) else ids
    made = model.generate(input_ids=ids, max_new_tokens=5, do_sample=False)
    assert tokenizer.decode(made[0, ids.shape[1] :]) == "Blue."
