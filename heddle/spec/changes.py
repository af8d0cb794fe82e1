"""Keys of a job changed: single ones, as `--set` does, or its model, cluster and batch by name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.files import parse_toml
from heddle.spec.job import Job, job_from_tables
from heddle.spec.run_lengths import as_runs
from heddle.spec.tables import read_toml


def load_with_changes(path: str | Path, changes: Iterable[str], name: str | None = None) -> Job:
    """Read a job file with some of its keys changed: ["train.steps=50", …], and with another name for its run."""
    path = Path(path)
    document = read_toml(path)
    for change in changes:
        apply_change(document, change)
    if name is not None and isinstance(train := document.setdefault("train", {}), dict):
        train["name"] = name  # not as a change, which would read 2024 as a number
    try:
        return job_from_tables(document, path.parent)
    except HeddleError as error:
        raise HeddleError(f"{path}: {error.what}", error.why, error.hint) from None


def apply_change(document: dict[str, Any], change: str) -> None:
    """Change one key of a document, in however deep a table: "cluster.efficiency.matmul=0.6"."""
    name, equals, text = change.partition("=")
    if "\n" in change.strip():
        raise HeddleError(
            f"--set {change.strip().partition(chr(10))[0]} … has more than one line.",
            "A change is one key and its value; what follows would be another one.",
            "Write it on one line, and give --set again for another key.",
        )
    *tables, key = (word.strip() for word in name.split("."))
    if not (equals and tables and key and all(tables)):
        raise HeddleError(
            f"--set {change} does not give a key and a value.",
            "A key is written with its table, and gets a value.",
            "Write it as --set train.steps=50.",
        )
    place: Any = document
    for depth, table in enumerate(tables, start=1):
        place = place.setdefault(table, {})
        if isinstance(place, dict):
            continue
        if depth == 1:  # reported when the job is made
            return
        raise HeddleError(
            f"--set {change}: {'.'.join(tables[:depth])} is not a table.",
            f"It is {place!r}, and has no keys.",
            f"Set it as a whole: --set {'.'.join(tables[:depth])}=….",
        )
    place[key] = _value(text)


def _value(text: str) -> Any:
    """What a value says in TOML; a bare word is a string, because shells eat quotes."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text.strip()


def override(
    document: dict[str, Any],
    model: str | None,
    cluster: str | None,
    nodes: int | None,
    trained: dict[str, Any],
    network: str | Path | None = None,
) -> None:
    """Put a model, a cluster, keys of [train] and a network's file in place of a document's own."""
    if model is not None:
        document["model"] = {"config" if model.endswith(".json") else "preset": _here(model)}
    if cluster is not None:
        is_file = cluster.endswith(".toml")
        document["cluster"] = {"file" if is_file else "preset": _here(cluster)}
    if nodes is not None:
        document.setdefault("cluster", {"preset": "this"})["nodes"] = nodes
    if network is not None:
        document["network"] = {"file": str(Path(network).absolute())}
    if trained:
        document["train"] = document.get("train", {}) | trained


def _here(name: str) -> str:
    """Files that are named outside of a job lie where the command is run, not beside the job."""
    return str(Path(name).absolute()) if Path(name).suffix in (".json", ".toml") else name


def changes_of(table: str, values: dict[str, Any]) -> list[str]:
    """The reverse: what sets these keys of a table."""
    runs = {key: as_runs(value) if isinstance(value, list) else value for key, value in values.items()}
    return [f"{table}.{key}={_inline(value)}" for key, value in runs.items()]


def _inline(value: Any) -> str:
    """A value of TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(each) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    return repr(value)
