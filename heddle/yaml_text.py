"""Tables and lists as YAML, for launchers and trainers that read it: only what they need, nothing that is misread."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
RESERVED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # which YAML takes for something else


def to_yaml(document: dict[str, Any]) -> str:
    """The document, a key to a line; what is empty is left out by whoever makes it."""
    return "\n".join(_lines(document))


def _lines(value: Any, depth: int = 0) -> Iterator[str]:
    pad = "  " * depth
    items = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    for key, each in items:
        begin = f"{pad}- " if key is None else f"{pad}{_scalar(key)}:"
        if isinstance(each, dict | list) and each:
            inner = list(_lines(each, depth + 1))
            if key is None:  # the first line stands behind the dash
                yield begin + inner[0].strip()
                yield from inner[1:]
            else:
                yield begin
                yield from inner
        elif isinstance(each, str) and "\n" in each:
            assert key is not None
            yield f"{begin} |"
            yield from (f"{pad}  {line}".rstrip() for line in each.splitlines())
        else:
            yield f"{begin}{'' if key is None else ' '}{_scalar(each)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in RESERVED:
        return value
    text = json.dumps(value, ensure_ascii=False)  # JSON is YAML
    # but for a float with an exponent and without a point, which is read as a word
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text
