"""The files that a job names, when the job itself moves to another folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# keys that name inputs
PATHS = (
    ("data", "text"),
    ("data", "tokens"),
    ("data", "tokenizer"),
    ("train", "from"),
    ("model", "config"),
    ("model", "module"),
    ("cluster", "file"),
    ("network", "file"),
)


def moved(document: dict[str, Any], old: Path, new: Path) -> dict[str, Any]:
    """The tables of a file that goes into another folder: what its relative paths name stays the same."""
    if old.absolute() == new.absolute():
        return dict(document)

    def place(path: Any) -> Any:
        if isinstance(path, list):
            return [place(each) for each in path]
        if not isinstance(path, str) or path.startswith("stdlib:") or Path(path).is_absolute():
            return path
        return os.path.relpath(old / path, new)

    tables = {name: dict(table) for name, table in document.items()}
    for name, key in PATHS:
        table = tables.get(name, {})
        if key in table and (key != "tokenizer" or str(table[key]).endswith(".json")):
            table[key] = place(table[key])
    return tables
