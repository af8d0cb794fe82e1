"""What several commands share: finding torch, changing single keys of a job."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, how_to_install
from heddle.files import write_output as write_output


def require_torch(command: str) -> None:
    """Say which extra is missing before anything tries to import it."""
    missing = [name for name in ("torch", "safetensors", "tokenizers") if importlib.util.find_spec(name) is None]
    if missing:
        raise HeddleError(
            f"`heddle {command}` needs {', '.join(missing)}, which this environment lacks.",
            "Planning and simulating work without them; training does not.",
            f"Install them: {how_to_install('train')}.",
        )


def load_with_changes(path: Path, changes: list[str], name: str | None = None) -> Any:
    """Read a job file with some of its keys changed: ["train.steps=50", …], and with another name for its run."""
    from heddle.spec.job import job_from_tables
    from heddle.spec.tables import read_toml

    document = read_toml(path)
    for change in changes:
        apply_change(document, change)
    if name is not None and isinstance(train := document.setdefault("train", {}), dict):
        train["name"] = name  # not as a change, which would read 2024 as a number
    try:
        return job_from_tables(document, path.parent)
    except HeddleError as error:
        raise HeddleError(f"{path}: {error.what}", error.why, error.hint) from None


def write_trace(path: Path, trace: Any, memory: Any = None) -> str:
    """Write a trace as a picture or for Perfetto, by the name of the file; say what to do with it."""
    import json

    from heddle.trace import to_perfetto, to_png, to_svg

    match path.suffix:
        case ".svg":
            write_output(path, to_svg(trace))
        case ".png":
            write_output(path, to_png(trace))
        case ".json":
            write_output(path, json.dumps(to_perfetto(trace, memory)))
            return f"Written to {path}. Open it at https://ui.perfetto.dev."
        case _:
            raise HeddleError(
                f"{path} is neither .json, .svg nor .png.",
                "A trace is written for ui.perfetto.dev, or as a picture.",
                f"Name it {path.stem}.json, {path.stem}.svg or {path.stem}.png.",
            )
    return f"Written to {path}."


def load_cluster(name: str) -> Any:
    """A cluster by the name of its preset, or from a file that has a [cluster] table."""
    from heddle.spec.shorthand import cluster_from_table

    if name.endswith(".toml") or Path(name).exists():
        return cluster_from_table({"file": str(Path(name).absolute())})
    return cluster_from_table({"preset": name})


def apply_change(document: dict[str, Any], change: str) -> None:
    """Change one key of a document: "train.steps=50"."""
    from heddle.files import parse_toml

    name, equals, text = change.partition("=")
    table, dot, key = name.strip().partition(".")
    if not (equals and dot and table and key):
        raise HeddleError(
            f"--set {change} does not give a key and a value.",
            "A key is written with its table, and gets a value.",
            "Write it as --set train.steps=50.",
        )
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()  # a bare word is a string: shells eat quotes
    if isinstance(keys := document.setdefault(table, {}), dict):  # what is no table is told of when the job is made
        keys[key] = value


def check_page(path: Path) -> None:
    """A page goes to a file that is called one: nobody's job or cluster is written over by mistake."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise HeddleError(
            f"-o {path} is not the name of a page.",
            "The page is HTML, and would replace whatever is there.",
            f"Name it {path.stem or 'page'}.html.",
        )
