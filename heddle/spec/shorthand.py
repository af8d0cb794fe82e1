"""What a word stands for: a preset, a file or this machine in place of a table's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.spec.cluster import Cluster
from heddle.spec.huggingface import read_config
from heddle.spec.model import ModelSpec
from heddle.spec.own import own_model
from heddle.spec.presets import cluster_presets, model_presets, preset
from heddle.spec.tables import build, read_foreign_json, read_toml, to_table, wrong_type
from heddle.spec.this_machine import this_machine


def model_from_table(table: dict[str, Any], folder: Path = Path()) -> ModelSpec:
    """A model from its numbers, `preset = "gpt2"`, `config = "config.json"` or `module = "mine.py:make"`."""
    table = dict(table)
    if "module" in table:
        return own_model(table, folder)
    if "preset" in table and "config" in table:
        raise HeddleError(
            "[model] has both 'preset' and 'config'.", "A model starts from one of them.", "Leave one out."
        )
    if "preset" in table:
        table = preset("model", _pop_word(table, "preset", "model"), model_presets()) | table
    elif "config" in table:
        config = folder / _pop_word(table, "config", "model")
        table = to_table(read_config(read_foreign_json(config, "a Hugging Face model configuration"))) | table
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
        table = _changed(start or preset("cluster", name, {"this": {}, **cluster_presets()}), table)
    elif "file" in table:
        path = folder / _pop_word(table, "file", "cluster")
        start = read_toml(path).get("cluster")
        if not isinstance(start, dict):
            raise HeddleError(
                f"{path} has no table [cluster].",
                "It should describe a cluster.",
                "`heddle profile -o FILE` writes one for this machine.",
            )
        table = _changed(start, table)
    return build(Cluster, table, "cluster")


def named_model(name: str) -> ModelSpec:
    """A model by the name of its preset, or from a Hugging Face config.json."""
    if name.endswith(".json") or Path(name).exists():
        return model_from_table({"config": str(Path(name).absolute())})
    return model_from_table({"preset": name})


def named_cluster(name: str) -> Cluster:
    """A cluster by the name of its preset, or from a file that has a [cluster] table."""
    if name.endswith(".toml") or Path(name).exists():
        return cluster_from_table({"file": str(Path(name).absolute())})
    return cluster_from_table({"preset": name})


def _changed(start: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """A cluster's table with some keys changed: those of [cluster.device] and [cluster.efficiency] one by one.

    A device that has a name is another one, of which nothing is known. What was fitted stays so but for the numbers
    that are given, and says which these are.
    """
    merged = start | table
    for name in ("device", "efficiency"):
        before, given = start.get(name), table.get(name)
        if not isinstance(before, dict) or not isinstance(given, dict) or (name == "device" and "name" in given):
            continue
        merged[name] = before | given
        if name == "efficiency" and given and "source" not in given and isinstance(before.get("source"), str):
            merged[name]["source"] = f"{before['source']}; {', '.join(given)} as given"
    return merged


def _pop_word(table: dict[str, Any], key: str, where: str) -> str:
    value = table.pop(key)
    if not isinstance(value, str):
        raise wrong_type(f"{where}.{key}", value, "a string")
    return value
