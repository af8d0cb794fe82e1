"""What lies beside a model's weights and goes where they go: a tokenizer, a chat template, how to generate."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from heddle.checkpoint.huggingface import refuse_links
from heddle.checkpoint.source import WeightSource
from heddle.data.tokenizer import CONFIG_FILE, vocabulary
from heddle.spec.start import CONFIG, TOKENIZER_FILE

# Carried byte for byte, where they are there.
OF_TOKENIZERS = (
    CONFIG_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
OF_MODELS = ("chat_template.jinja", "generation_config.json")
COMPANIONS = (TOKENIZER_FILE, *OF_TOKENIZERS, *OF_MODELS)


def carry(source: WeightSource, folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Copy what is there of some files that lie beside the weights."""
    companions = source.companions
    if companions is not None:
        refuse_links(companions, *names)
    there = tuple(name for name in names if companions is not None and (companions / name).is_file())
    for name in there:
        assert companions is not None
        shutil.copyfile(companions / name, folder / name)
    return there


def check_companions(source: WeightSource) -> None:
    """Refuse links to elsewhere before a run has a folder."""
    if source.companions is not None:
        refuse_links(source.companions, *COMPANIONS, CONFIG)


def carry_into_run(source: WeightSource, folder: Path) -> None:
    """Give a run, which has its tokenizer in this folder, whatever else came with the weights that it starts from.

    The tokenizer is the one of its data. Where that has more tokens than the weights came with, what describes the old
    one stays behind.
    """
    own = None if source.companions is None else source.companions / TOKENIZER_FILE
    same = own is not None and own.is_file() and vocabulary(own) == vocabulary(folder / TOKENIZER_FILE)
    carry(source, folder, (*(OF_TOKENIZERS if same else ()), *OF_MODELS, CONFIG))
