"""Models, clusters and networks that go by a name; the TOML files beside this one hold their numbers and sources."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, nearest
from heddle.spec.cluster import Device
from heddle.spec.tables import build, read_toml

FOLDER = Path(__file__).parent


@cache
def model_presets() -> dict[str, dict[str, Any]]:
    """Tables of `[model]` by name."""
    return read_toml(FOLDER / "models.toml")


@cache
def cluster_presets() -> dict[str, dict[str, Any]]:
    """Tables of `[cluster]` by name, without `this`, which is found by looking."""
    return read_toml(FOLDER / "clusters.toml")


@cache
def network_presets() -> dict[str, dict[str, Any]]:
    """Published links between regions, by the name of who has the regions."""
    return read_toml(FOLDER / "networks.toml")


def preset(kind: str, name: str, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A copy of the table that goes by this name."""
    if name not in known:
        raise HeddleError(f"There is no {kind} preset '{name}'.", "Presets ship with Heddle.", nearest(name, known))
    return {"name": name, **known[name]}


def known_devices() -> dict[str, Device]:
    """Device presets by the word that nvidia-smi uses for them."""
    tables = [table["device"] for table in cluster_presets().values()]
    return {table["name"]: build(Device, table, "device") for table in tables}
