"""The base of fine-tunings beside PEFT: a small Qwen3 with a tokenizer of bytes, as transformers writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from heddle.data.tokenizer import ByteTokenizer

# PEFT still asks transformers by an old name
ignore_old_name = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")


def save_base(folder: Path, transformers: Any) -> Path:
    """The folder, written."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, vocab_size=257, max_position_embeddings=64, tie_word_embeddings=False, eos_token_id=256,
        bos_token_id=None,
    )  # fmt: skip
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    ByteTokenizer().save(folder)
    return folder
