"""Ways to spoil a file: its bytes, its values, its lines, and what kind of file it is."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

Random = random.Random


class Raw(float):
    """A number as it is spelled, whatever Python would make of it."""

    def __new__(cls, text: str) -> Raw:
        made = super().__new__(cls, 1.0)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


HUGE = "9" * 5000
NUMBERS: list[Any] = [0, -1, 1, 2, 3, 7, 1e-9, 0.5, 1e9, 1e15, 1e18, 1e30, -1e30, 1e308, 2**31, 2**63 - 1, -(2**63)]
NUMBERS += [float("nan"), float("inf"), -float("inf"), 2**64, 10**400, Raw("1e999"), Raw(HUGE), Raw("-0.0"), 17, 4097]
WORDS: list[Any] = [
    "",
    "x",
    "none",
    "true",
    "1",
    "-1",
    "nan",
    "x" * 5000,
    "../" * 40,
    "/dev/zero",
    "/",
    ".",
    "~",
    "[plan]",
]
WORDS += [
    "a\0b",
    "\x1b[31m",
    "naïve …×",
    "\U0001f9f5",
    "a\nb",
    "{}",
    "%s%n",
    "stdlib:*.py",
    "gpt2",
    "fifo",
    "loop",
    "\u202e",
]
OTHERS: list[Any] = [True, False, None, [], {}, [[]], [None], {"": 1}, [1, "a", None], {"a": {"b": []}}, [1] * 3000]


def deep(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = [made]
    return made


def odd_value(chance: Random) -> Any:
    kind = chance.random()
    if kind < 0.45:
        return chance.choice(NUMBERS)
    if kind < 0.7:
        return chance.choice(WORDS)
    if kind < 0.97:
        return copy.deepcopy(chance.choice(OTHERS))
    return deep(chance.choice((30, 70, 250)))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Everything that can be replaced: (container, key)."""
    found, stack = [], [value]
    while stack:
        each = stack.pop()
        items = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, item in items:
            found.append((each, key))
            stack.append(item)
    return found


def mutate_value(value: Any, chance: Random) -> Any:
    """A copy with one to three changes somewhere."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        spots = places(value)
        if not spots:
            return odd_value(chance)
        container, key = chance.choice(spots)
        match chance.randrange(8):
            case 0 | 1 | 2 | 3:
                container[key] = odd_value(chance)
            case 4:
                del container[key]
            case 5 if isinstance(container, dict):
                container[str(odd_value(chance))[:300]] = container.pop(key)
            case 5:
                container.append(copy.deepcopy(container[key]))
            case 6:
                other, at = chance.choice(spots)
                if at in other if isinstance(other, dict) else at < len(other):
                    container[key] = copy.deepcopy(other[at])
            case 7:
                container[key] = [container[key]] if chance.random() < 0.5 else {"x": container[key]}
    return odd_value(chance) if chance.random() < 0.01 else value


def dumps(value: Any, ascii_only: bool = True) -> str:
    """JSON of any value; numbers as they are spelled."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumps, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**300:
        return "1" + "0" * 400
    return json.dumps(value, ensure_ascii=ascii_only)


def mutate_json(raw: bytes, chance: Random) -> bytes:
    return dumps(mutate_value(json.loads(raw), chance)).encode("utf-8", "surrogatepass")


def mutate_toml(raw: bytes, chance: Random) -> bytes:
    tables = mutate_value(tomllib.loads(raw.decode()), chance)
    try:
        return tomli_w.dumps(_without_none(tables)).encode()
    except (TypeError, ValueError, AttributeError, RecursionError):
        return mutate_bytes(raw, chance)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value if item is not None] if isinstance(value, list) else value


def mutate_lines(raw: bytes, chance: Random) -> bytes:
    """JSON lines: one line is spoiled, left out, doubled or cut."""
    lines = raw.decode().splitlines()
    at = chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        case 3:
            lines[at] = dumps(odd_value(chance))
        case _:
            lines[at] = mutate_json(lines[at].encode(), chance).decode("utf-8", "surrogatepass")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def mutate_cells(raw: bytes, chance: Random) -> bytes:
    """CSV: one to four cells, or a column's name."""
    rows = [line.split(",") for line in raw.decode().splitlines()]
    for _ in range(chance.randint(1, 4)):
        row = chance.choice(rows) if chance.random() < 0.9 else rows[0]
        value = odd_value(chance)
        row[chance.randrange(len(row))] = value.text if isinstance(value, Raw) else str(value)[:6000]
        if chance.random() < 0.1:
            row.pop()
    return "\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass")


def mutate_bytes(raw: bytes, chance: Random) -> bytes:
    """Any file."""
    data = bytearray(raw)
    at = chance.randrange(len(data) + 1)
    match chance.randrange(9):
        case 0:
            return bytes(data[:at])
        case 1:
            for _ in range(chance.choice((1, 1, 4, 64))):
                if data:
                    data[chance.randrange(len(data))] = chance.randrange(256)
        case 2:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 8, 300))))
        case 3:
            data[at:at] = b"\0" * chance.choice((1, 9000))
        case 4:
            return b"\xef\xbb\xbf" + raw
        case 5:
            return chance.choice((b"", b"\n", b"{}", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"a = 1\n"))
        case 6:
            data[at:at] = chance.choice((b"[", b"{", b'{"a":', b"[[[", b"(")) * chance.choice((1, 200, 100_000))
        case 7:
            data[at:at] = HUGE.encode()
        case 8:
            size = chance.randrange(1, 200)
            data[at:at] = data[at : at + size] * chance.choice((1, 3, 50))
    return bytes(data)


Mutator = Callable[[bytes, Random], bytes]
BY_KIND: dict[str, Mutator] = {
    "json": mutate_json,
    "toml": mutate_toml,
    "lines": mutate_lines,
    "csv": mutate_cells,
    "bytes": mutate_bytes,
}


def spoil(path: Path, kind: str, chance: Random) -> str:
    """Change a file of a kind in place; says what was done."""
    draw = chance.random()
    if draw < 0.08:
        return replace_file(path, chance)
    raw = path.read_bytes()
    mutator = mutate_bytes if draw < 0.25 else BY_KIND[kind]
    path.write_bytes(mutator(raw, chance))
    return f"{mutator.__name__} of {path.name}"


def replace_file(path: Path, chance: Random) -> str:
    """Something else of the same name."""
    path.unlink()
    what = chance.choice(("nothing", "folder", "fifo", "loop", "zero", "null", "full", "huge", "hidden", "dangling"))
    match what:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
        case "zero" | "null" | "full":
            path.symlink_to(f"/dev/{what}")
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 40)  # a hole: nothing is written
        case "hidden":
            path.touch(mode=0)
        case "dangling":
            path.symlink_to("x" * 200)
    return f"{what} in place of {path.name}"


def remove(path: Path) -> None:
    """Whatever has this name now."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
