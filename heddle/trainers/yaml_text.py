"""YAML for tables of plain values: the little of it that configuration files need."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = {"no", "yes", "on", "off", "true", "false", "null", "y", "n"}


def to_yaml(table: dict[str, Any], indent: int = 0) -> str:
    """The table, sorted as it is given."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            lines.append(f"{' ' * indent}{key}:\n{to_yaml(value, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{key}: {_value(value)}\n")
    return "".join(lines)


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")  # else it is read as a word
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _WORDS):
        return json.dumps(value)
    return str(value) if not isinstance(value, list) else json.dumps(value)
