"""What a word stands for: a preset, a file or this machine in place of a table's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.spec.cluster import Cluster
from heddle.spec.huggingface import read_config
from heddle.spec.model import ModelSpec
from heddle.spec.presets import cluster_presets, model_presets, preset
from heddle.spec.tables import build, read_json, read_toml, to_table, wrong_type
from heddle.spec.this_machine import this_machine


def model_from_table(table: dict[str, Any], folder: Path = Path()) -> ModelSpec:
    """A model from its numbers, `preset = "gpt2"` or `config = "config.json"`; other keys override."""
    table = dict(table)
    if "preset" in table and "config" in table:
        raise HeddleError(
            "[model] has both 'preset' and 'config'.", "A model starts from one of them.", "Leave one out."
        )
    if "preset" in table:
        table = preset("model", _pop_word(table, "preset", "model"), model_presets()) | table
    elif "config" in table:
        config = folder / _pop_word(table, "config", "model")
        table = to_table(read_config(read_json(config, "a Hugging Face model configuration"))) | table
    return build(ModelSpec, table, "model")


SHORT_NAMES = {"dgx-a100": "dgx-a100-80gb"}  # what people call a preset that there are several of


def cluster_from_table(table: dict[str, Any], folder: Path = Path()) -> Cluster:
    """A cluster from its numbers, `preset = "dgx-a100-80gb"` or `"this"`, or `file = "mine.toml"`."""
    table = dict(table)
    if "preset" in table and "file" in table:
        raise HeddleError(
            "[cluster] has both 'preset' and 'file'.", "A cluster starts from one of them.", "Leave one out."
        )
    if "preset" in table:
        name = _pop_word(table, "preset", "cluster")
        name = SHORT_NAMES.get(name, name)
        start = to_table(this_machine()) if name == "this" else None
        table = (start or preset("cluster", name, {"this": {}, **cluster_presets()})) | table
    elif "file" in table:
        path = folder / _pop_word(table, "file", "cluster")
        start = read_toml(path).get("cluster")
        if not isinstance(start, dict):
            raise HeddleError(
                f"{path} has no table [cluster].",
                "It should describe a cluster.",
                "`heddle profile -o FILE` writes one for this machine.",
            )
        table = start | table
    return build(Cluster, table, "cluster")


def _pop_word(table: dict[str, Any], key: str, where: str) -> str:
    value = table.pop(key)
    if not isinstance(value, str):
        raise wrong_type(f"{where}.{key}", value, "a string")
    return value
