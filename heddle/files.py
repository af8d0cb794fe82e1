"""Files that users name: the one way they are read, and the one way what a command makes is written.

A path may lead anywhere: to nothing, to a folder, to a pipe that nobody writes to, to a device that never ends, to a
loop of links, to a gigabyte of zeros. What kind of file it is and how large is asked before anything is read, and every
refusal is a `HeddleError`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from heddle.errors import HeddleError, shorten

MIB = 1 << 20
# Far above what people write, far below what fills a machine: a parsed file takes ten times its size.
LARGEST = 256 * MIB
LARGEST_TOML = 4 * MIB  # Python's parser of TOML takes a second per megabyte
DEEPEST = 64  # lists in lists in lists: nobody means more, and what is deeper could not even be shown
DIGITS = 19  # of the largest 64-bit integer, which is TOML's limit too
PYTHON_DIGITS = 4000  # of a whole number; Python itself reads 4,300

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
REASONS = {
    errno.ENOENT: "Nothing has that name.",
    errno.ENOTDIR: "A part of its path is a file, not a folder.",
    errno.ELOOP: "It is a symbolic link that leads back to itself.",
    errno.ENAMETOOLONG: "Its name is longer than this system allows.",
    errno.EACCES: "You do not have permission to read it.",
}
FULL = "Free some space, or write to another disk."


def check_readable(path: Path, purpose: str, largest: int | None = None) -> int:
    """Refuse what is not a plain file of a bearable size, without opening it; returns its size.

    `purpose` says what it should hold: "a Piper workload".
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: the name holds a NUL
        raise unreadable(path, purpose, error) from None
    _check_kind(path, found, purpose)
    if largest is not None and found.st_size > largest:
        raise HeddleError(
            f"{shown(path)} has {found.st_size / MIB:,.0f} MiB.",
            f"It should hold {purpose}, of {largest / MIB:,.0f} MiB at most.",
            "Is it the right file?",
        )
    return found.st_size


def refuse_pipes(path: Path, purpose: str) -> None:
    """Refuse what a library would wait for, or read for ever; whether the file is there is the library's to say."""
    with suppress(OSError, ValueError):
        _check_kind(path, path.stat(), purpose)


def _check_kind(path: Path, found: os.stat_result, purpose: str) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        raise HeddleError(
            f"{shown(path)} is {KINDS.get(kind, 'not a file')}.",
            f"It should be a file that holds {purpose}.",
            _beside(path) if kind == stat.S_IFDIR else "Write its output to a file, and name that.",
        )


def read_bytes(path: Path, purpose: str, largest: int = LARGEST) -> bytes:
    """All of a file."""
    size = check_readable(path, purpose, largest)
    try:
        with path.open("rb") as file:
            found = file.read(size)
            # A file may grow meanwhile, and those of /proc say that they are empty; room is made for what is asked for.
            while len(found) <= largest and (more := file.read(1 << 16)):
                found += more
    except OSError as error:
        raise unreadable(path, purpose, error) from None
    if len(found) > largest:
        raise HeddleError(
            f"{shown(path)} is growing while it is read.",
            f"It should hold {purpose}.",
            "Try again when it is complete.",
        )
    return found


def read_text(path: Path, purpose: str, largest: int = LARGEST) -> str:
    """All of a text file, in UTF-8. The mark that some editors put first is left out."""
    raw = read_bytes(path, purpose, largest)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeddleError(
            f"{shown(path)} is not text.",
            f"Byte {error.start:,} is {raw[error.start]:#04x}, which is not UTF-8; it should hold {purpose}.",
            "Save it as UTF-8, or name another file.",
        ) from None


def read_lines(path: Path, purpose: str, largest: int = LARGEST) -> list[str]:
    """The lines of a file that a crash may have left in any state: what is not UTF-8 spoils its own line only."""
    return read_bytes(path, purpose, largest).decode("utf-8-sig", "replace").split("\n")


def read_json(path: Path, purpose: str, largest: int = LARGEST) -> dict[str, Any]:
    """A JSON object from a file that is written for Heddle, for people who expect it to be there."""
    return _object(path, purpose, largest, parse_json)


def read_foreign_json(path: Path, purpose: str, largest: int = LARGEST) -> dict[str, Any]:
    """A JSON object from a file that was written for other programs: whatever is valid JSON is read."""
    return _object(path, purpose, largest, parse_foreign_json)


def _object(path: Path, purpose: str, largest: int, parse: Callable[[str], Any]) -> dict[str, Any]:
    text = read_text(path, purpose, largest)
    try:
        value = parse(text)
    except ValueError as error:
        raise HeddleError(f"{shown(path)} is not valid JSON.", f"{error}.", f"It should hold {purpose}.") from None
    if not isinstance(value, dict):
        raise HeddleError(
            f"{shown(path)} is not a JSON object.",
            f"It should hold {purpose}.",
            "A JSON object is written in braces: {…}.",
        )
    return value


def parse_json(text: str) -> Any:
    """What a JSON text says; a ValueError says why it cannot be had."""
    # Numbers of more than 64 bits, and halves of surrogate pairs, are valid JSON that nothing can be done with.
    hook = {"parse_int": _whole} if re.search(rf"[0-9]{{{DIGITS}}}", text) else {}
    try:
        value = json.loads(text, object_pairs_hook=_unique, **hook)  # type: ignore[arg-type]
    except RecursionError:
        raise ValueError(f"It nests deeper than {DEEPEST} levels") from None
    _check_depth(value)
    if re.search(r"\\u[dD][89a-fA-F]", text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("A \\u escape in it is half of a surrogate pair, which is not a character") from None
    return value


def parse_foreign_json(text: str) -> Any:
    """What a JSON text says that was not written for Heddle; a ValueError says why it is not JSON.

    Such a file is full of what Heddle never asks for, so none of it is refused: numbers of any length, keys that stand
    twice (the last counts, as for every other reader), halves of surrogate pairs (read as "?"), any depth (what lies
    too deep is left out).
    """
    hook = {"parse_int": _any_whole} if re.search(rf"[0-9]{{{PYTHON_DIGITS}}}", text) else {}
    try:
        value = json.loads(text, **hook)  # type: ignore[arg-type]
    except RecursionError:
        raise ValueError("It nests deeper than Python can follow") from None
    _cut_depth(value)
    if re.search(r"\\u[dD][89a-fA-F]", text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


def read_toml(path: Path, purpose: str = "a job, described in TOML") -> dict[str, Any]:
    """The tables of a TOML file; a missing or malformed one is the user's to fix, not a traceback."""
    text = read_text(path, purpose, LARGEST_TOML)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise HeddleError(
            f"{shown(path)} is not valid TOML.", f"{error}.", "Strings need quotes; tables are written [model]."
        ) from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; a ValueError says why they cannot be had."""
    import tomllib

    _check_keys(text)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"It nests deeper than {DEEPEST} levels") from None
    _check_depth(tables)
    _check_values(tables)
    return tables


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose keys must differ: of two that are alike Python would drop one without a word."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"The key {shorten(next(key for key in keys if keys.count(key) > 1))} stands twice in an object"
        )
    return table


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS or abs(int(digits)) >= 2**63:
        raise ValueError(f"The number {digits[:12]}… has {len(digits.lstrip('-'))} digits, more than 64 bits hold")
    return int(digits)


def _any_whole(digits: str) -> int | float:
    """Python refuses to read very long whole numbers; as floats they are infinite."""
    return int(digits) if len(digits) <= PYTHON_DIGITS else float(digits)


# Strings, comments and keys, each read once: one that nobody ends goes on to the end of its line, or of the text.
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?)"""
_DOT = r"[ \t]*+\.[ \t]*+"
_TOML = re.compile(
    rf"""\"{{3}}(?:[^\\]|\\.)*?(?:\"{{3}}|\Z)|'{{3}}.*?(?:'{{3}}|\Z)|\#[^\n]*+|({_PART}(?:{_DOT}{_PART})*+)""",
    re.DOTALL,
)
_DEEP = re.compile(rf"{_PART}(?:{_DOT}{_PART}){{{DEEPEST}}}", re.DOTALL)


def _check_keys(text: str) -> None:
    """No key of too many parts: Python's parser takes time and memory by the square of their number."""
    for found in _TOML.finditer(text):
        if found[1] and _DEEP.match(found[1]):
            raise ValueError(f"The key {shorten(found[1])} nests deeper than {DEEPEST} levels")


def _check_depth(value: Any) -> None:
    if _deepest(value):
        raise ValueError(f"It nests deeper than {DEEPEST} levels")


def _cut_depth(value: Any) -> None:
    """Empty whatever lies too deep to be shown."""
    for each in _deepest(value):
        each.clear()


def _deepest(value: Any) -> list[Any]:
    """The lists and objects just below the deepest level that is allowed.

    Level by level rather than by recursion, which is what a deep value would break.
    """
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(item, dict | list)
        ]
    return level


def _check_values(value: Any, where: str = "") -> None:
    """No whole number of more than 64 bits, as TOML has it, and no NUL, which no path and no name may hold."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(key, where)
            _check_values(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for item in value:
            _check_values(item, where)
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"{where} is a whole number of more than 64 bits")
    elif isinstance(value, str) and "\0" in value:
        raise ValueError(f"{where or 'A key'} holds the character NUL")


def unreadable(path: Path, purpose: str, error: Exception) -> HeddleError:
    """Why a file cannot be read, and what there is instead."""
    number = error.errno if isinstance(error, OSError) else None
    reason = REASONS.get(number or 0) or (f"{os.strerror(number)}." if number else "Its name holds the character NUL.")
    missing = number in (errno.ENOENT, errno.ENOTDIR)
    return HeddleError(
        f"There is no file {shown(path)}." if missing else f"{shown(path)} cannot be read.",
        f"It should hold {purpose}." if missing else f"{reason} It should hold {purpose}.",
        _beside(path) if missing else "Name another file.",
    )


def _beside(path: Path) -> str:
    """Files of the same kind where the missing one should be."""
    folder = path if path.is_dir() else path.parent
    others: list[str] = []
    with suppress(OSError, ValueError):
        others = sorted(str(other) for other in folder.glob(f"*{path.suffix or '.toml'}") if other.is_file())
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        kind = (path.suffix or ".toml")[1:].upper()
        return f"{kind} files there: {', '.join(others[:8])}{more}."
    return f"Is the folder {shown(folder)} right?"


def shown(path: Path | str) -> str:
    """A path as a message can show it: without what a terminal would obey, and not a page long."""
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(path))
    return text if len(text) <= 200 else f"{text[:90]}…{text[-90:]}"


def check_output(path: Path) -> None:
    """Refuse a file that cannot be written before minutes are spent on what it is to hold."""
    if not path.absolute().parent.is_dir():
        raise unwritable(path, FileNotFoundError(errno.ENOENT, ""))
    if path.is_dir():
        raise unwritable(path, IsADirectoryError(errno.EISDIR, ""))


def write_output(path: Path, content: str | bytes) -> None:
    """Write what a command was asked for: all of it, or nothing, and then what was there before stays."""
    with _written(path) as file:
        file.write(content if isinstance(content, bytes) else content.encode())


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """What to write to: a file beside it, which gets its name at the end; a pipe or a device is written to itself."""
    try:
        final = path.resolve()  # where a link leads: the link stays one
        if final.exists() and not final.is_file() and not final.is_dir():
            with path.open("wb") as file:
                yield file
            return
        # A new file, by a name that nobody can know: a link that stands there would be followed to another file.
        partial = final.with_name(f".{final.name[:200]}.{secrets.token_hex(8)}.partial")
        try:
            with partial.open("xb") as file:
                yield file
            if final.exists():
                partial.chmod(stat.S_IMODE(final.stat().st_mode))
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: Exception) -> HeddleError:
    """Why a file cannot be written."""
    if isinstance(error, OSError) and error.errno is not None:
        number = error.errno
    else:
        number = errno.ELOOP if isinstance(error, RuntimeError) else errno.EINVAL  # ValueError: a NUL in the name
    reasons = {errno.ENOENT: f"There is no folder {shown(path.parent)}.", errno.EISDIR: "It is a folder."}
    hints = {errno.ENOENT: "Make the folder first, or choose another file.", errno.ENOSPC: FULL}
    return HeddleError(
        f"{shown(path)} cannot be written.",
        reasons.get(number, f"{os.strerror(number)}."),
        hints.get(number, "Choose another file."),
    )
