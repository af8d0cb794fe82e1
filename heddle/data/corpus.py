"""Which files the text lies in, and the text itself, read in pieces small enough to hold in memory."""

from __future__ import annotations

import fnmatch
import glob
import io
import json
import os
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from heddle.errors import HeddleError, nearest

# A corpus is often one file of many gigabytes; no more than a piece of it is ever in memory.
PIECE = 1 << 18  # characters
LOOK_BACK = 1 << 14  # characters searched for a good place to cut
# Text has lines of any length, read in pieces. A line of JSONL is in memory whole, and again when it is parsed.
LONGEST_LINE = 1 << 26  # characters, 64 Mi: thirteen times the text of the Bible

STDLIB = "stdlib:"
NOT_STDLIB = frozenset({"site-packages", "__pycache__"})  # inside its folder, but not part of Python's library
PACKED = {".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".parquet", ".arrow"}

TABLES = (".json", ".csv", ".tsv")  # that conversations are read from, too
RECORDS = {".json", ".csv", ".tsv", ".ndjson"}  # text to a computer: brackets, quotes and commas to a reader

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class TextPiece(NamedTuple):
    """A document, or as much of a long one as is read at a time."""

    text: str
    size: int  # bytes of the text in UTF-8
    last: bool  # whether its document ends here


@dataclass
class CorpusTally:
    """What reading has come across so far. Nothing is passed over without being counted here."""

    documents: int = 0
    characters: int = 0
    bytes: int = 0  # of text, in UTF-8
    empty: int = 0  # files and JSONL texts without a character in them, which make no document
    replaced: int = 0  # bytes that are not UTF-8, each read as U+FFFD
    read: int = 0  # bytes of the files, for a progress bar: JSONL has more than its texts


@dataclass(frozen=True)
class Corpus:
    """The files of a corpus by name, in the order they are read, and the JSONL field to read."""

    files: dict[str, Path]
    key: str = "text"

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(path.stat().st_size for path in self.files.values())

    def documents(self) -> Iterator[str]:
        """Every document whole."""
        parts: list[str] = []
        for piece in self.pieces():
            parts.append(piece.text)
            if piece.last:
                yield "".join(parts)
                parts.clear()

    def pieces(self, tally: CorpusTally | None = None) -> Iterator[TextPiece]:
        """Every document in pieces of at most PIECE characters, counted into `tally`."""
        tally = tally or CorpusTally()
        for path in self.files.values():
            done = tally.read
            try:
                with path.open("rb") as raw, _decoded(raw) as file:
                    texts = _jsonl_texts(path, file, self.key) if path.suffix.lower() == ".jsonl" else iter([file])
                    for text in texts:
                        before = tally.documents
                        for part, last in _cut(text, path):
                            tally.read = done + raw.tell()
                            yield _count(part, last, tally)
                        tally.empty += tally.documents == before
            except OSError as error:
                raise HeddleError(
                    f"{path} cannot be read.",
                    f"{error.strerror or error}.",
                    "Make it readable, or leave it out of data.text.",
                ) from None
        if not tally.documents:
            raise HeddleError(
                f"There is no text in the {len(self.files)} file(s) of the corpus.",
                f"All are empty, or JSONL with an empty '{self.key}'; the first is {next(iter(self.files))}.",
                "Point data.text at files with text in them.",
            )


def find_corpus(text: str | tuple[str, ...], base: Path, key: str = "text") -> Corpus:
    """The files that `text` names: paths and globs relative to `base`, or "stdlib:*.py" of Python itself."""
    files = find_files((text,) if isinstance(text, str) else text, base)
    for path in files.values():
        _check_text(path)
    return Corpus(files, key)


def find_files(patterns: tuple[str, ...], base: Path) -> dict[str, Path]:
    """The files that paths and globs name, in the order of their names."""
    found: dict[str, Path] = {}
    for pattern in patterns:
        found |= _match(pattern, base)
    # Two patterns may name one file in two ways; it is read once.
    unique: dict[tuple[int, int], str] = {}
    for name in sorted(found):
        stat = found[name].stat()
        unique.setdefault((stat.st_dev, stat.st_ino), name)
    return {name: found[name] for name in unique.values()}


def _match(pattern: str, base: Path) -> dict[str, Path]:
    prefix, folder, wanted, skipped = "", base, pattern, frozenset[str]()
    if pattern.startswith(STDLIB):
        prefix, folder = STDLIB, Path(sysconfig.get_path("stdlib"))
        wanted, skipped = pattern.removeprefix(STDLIB), NOT_STDLIB
    parts = Path(wanted).parts
    # A name may hold the characters of a glob, such as "notes[1].txt".
    literal = (folder / wanted).is_file() and skipped.isdisjoint(parts)
    paths = [folder / wanted] if literal else list(_expand(folder, _collapsed(parts), skipped, set()))
    files = {prefix + os.path.relpath(path, folder): path for path in paths if path.is_file()}
    if not files:
        raise HeddleError(
            f"No file matches '{pattern}'.",
            f"Looked in {'the standard library of Python' if prefix else folder.absolute()}.",
            _instead(pattern, paths) if paths else _beside(folder, wanted),
        )
    for path in files.values():
        _refuse_kernel(path)
    return files


def _check_text(path: Path) -> None:
    """Refuse a file that is not text to a reader."""
    kind = path.suffix.lower()
    if kind in RECORDS:
        chats = f' Conversations are read as they are, with chat = "{path.name}" in place of text.'
        raise HeddleError(
            f"{path} holds records, not text.",
            f"Of a {kind} file the model would learn the syntax: brackets, quotes, commas and the names of fields.",
            'Write each document as a line of a .jsonl file, {"text": "…"}; where each line is an object already, '
            f"rename it to .jsonl and name the field with data.key.{chats * (kind in TABLES)} To train on the syntax, "
            "rename it to .txt.",
        )
    if kind in PACKED:
        raise HeddleError(
            f"{path} is not text.",
            f"Files that end in {kind} are compressed; the model would be trained on those bytes.",
            "Unpack it to .txt or .jsonl first, or use a pattern that excludes it.",
        )


def _collapsed(parts: tuple[str, ...]) -> tuple[str, ...]:
    """A pattern with one `**` for several in a row, which find the same."""
    return tuple(part for before, part in zip(("", *parts), parts, strict=False) if not before == part == "**")


def _expand(
    folder: Path, parts: tuple[str, ...], skipped: frozenset[str], seen: set[tuple[int, int, int]]
) -> Iterator[Path]:
    """What a glob finds. Unlike the glob module it can leave folders aside, and tells what it cannot read.

    A folder is looked through once for each part of the pattern, by the first of its names, however links lead to it.
    """
    if not parts:
        yield folder
        return
    first, rest = parts[0], parts[1:]
    if first == "**":
        if not folder.is_dir():
            return
        found = folder.stat()
        state = found.st_dev, found.st_ino, len(parts)
        if state in seen:
            return
        seen.add(state)
        yield from _expand(folder, rest or ("*",), skipped, seen)
        for child in _children(folder, skipped):
            if child.is_dir() and child.name[0] != ".":
                yield from _expand(child, parts, skipped, seen)
    elif glob.has_magic(first):
        for child in _children(folder, skipped):
            if fnmatch.fnmatchcase(child.name, first) and (first[0] == "." or child.name[0] != "."):
                yield from _expand(child, rest, skipped, seen)
    elif (folder / first).exists() and first not in skipped:
        yield from _expand(folder / first, rest, skipped, seen)


def _instead(pattern: str, paths: list[Path]) -> str:
    """What to name where a pattern matched nothing but what is no file."""
    if any(path.is_dir() for path in paths):
        return f"That is a folder; try '{pattern.rstrip('/')}/**/*.txt'."
    return "That is a pipe, a socket or a device; write its text to a file first."


def _refuse_kernel(path: Path) -> None:
    """Refuse what the kernel makes up when it is read: it calls itself a file, and may wait for ever."""
    if (top := _kernel_devices().get(path.stat().st_dev)) is not None:
        raise HeddleError(
            f"{path} is not text of yours.",
            f"What lies in {top} is the kernel's, made up whenever it is read.",
            "Copy what you need to a file of your own.",
        )


@cache
def _kernel_devices() -> dict[int, str]:
    return {Path(top).stat().st_dev: top for top in ("/proc", "/sys") if os.path.ismount(top)}


def _children(folder: Path, skipped: frozenset[str]) -> list[Path]:
    try:
        if not folder.is_dir():
            return []
        _refuse_kernel(folder)
        # in the order of the names that come of it, in which a folder's begins
        return sorted((child for child in folder.iterdir() if child.name not in skipped), key=lambda c: f"{c.name}/")
    except OSError as error:
        raise HeddleError(
            f"The folder {folder} cannot be read.", f"{error.strerror}.", "Use a pattern that excludes it."
        ) from None


def _beside(folder: Path, wanted: str) -> str:
    """What there is at the first part of a path that leads nowhere."""
    at = folder
    for part in Path(wanted).parts[:-1]:
        if glob.has_magic(part):
            break
        if not (at / part).is_dir():
            return f"There is no folder '{part}'. {nearest(part, _names(at))}" if _names(at) else f"{at} is empty."
        at = at / part
    return f"That folder holds: {', '.join(_names(at)[:8])}." if _names(at) else f"{at} is empty."


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) if folder.is_dir() else []


def _decoded(raw: BinaryIO) -> TextIO:
    # surrogateescape tells what is not UTF-8, which is counted, from a U+FFFD that stands in the file;
    # newline="\n" leaves a text as it is, "\r" included.
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="\n")


def _jsonl_texts(path: Path, file: TextIO, key: str) -> Iterator[TextIO]:
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), ""), 1):
        where = f"{path}, line {number}"
        if len(line) > LONGEST_LINE:
            raise HeddleError(
                f"{where} has more than {LONGEST_LINE:,} characters.",
                "A line of a .jsonl file is one document, which is read whole.",
                "Write each document on its own line; a single text of any length goes into a .txt file.",
            )
        if line.isspace():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is no JSONDecodeError
            raise HeddleError(
                f"{where} is not valid JSON.", f"{error}.", "Each line of a .jsonl file is one JSON object."
            ) from None
        if not isinstance(value, dict):
            raise HeddleError(
                f"{where} is not a JSON object.",
                f"It is {_short(value)}.",
                f'Write each document as {{"{key}": "…"}}.',
            )
        if key not in value:
            raise HeddleError(f"{where} has no field '{key}'.", "data.key names the text.", nearest(key, value))
        if not isinstance(value[key], str):
            raise HeddleError(
                f"{where}: '{key}' is not a string.",
                f"It is {_short(value[key])}.",
                "data.key must name a field that holds text.",
            )
        yield io.StringIO(value[key], newline="\n")


def _short(value: object) -> str:
    words = json.dumps(value, ensure_ascii=False)
    return words if len(words) <= 40 else f"{words[:40]}…"


def _cut(source: TextIO, path: Path) -> Iterator[tuple[str, bool]]:
    """The text of one document in pieces, and with each whether it is the last."""
    held = ""
    while chunk := source.read(PIECE):
        if len(chunk) == PIECE and not chunk.strip("\0"):
            raise HeddleError(
                f"{path} is not all text.",
                f"It holds {PIECE:,} NUL characters in a row, as a file with a hole does: one that was truncated "
                "while it was copied, or given a size and never written.",
                "Copy or write it again, or leave it out of data.text.",
            )
        held += chunk
        while len(held) > PIECE:
            at = _good_cut(held, PIECE)
            yield held[:at], False
            held = held[at:]
    if held:
        yield held, True


def _good_cut(text: str, end: int) -> int:
    """The last place up to `end` where a tokenizer ends a word whatever comes after.

    That is between a letter or digit and white space: the splitting patterns of GPT-2, Llama 3 and their kin
    never join the two, so encoding the pieces gives the tokens of the whole.
    """
    for at in range(end, max(end - LOOK_BACK, 1), -1):
        if text[at].isspace() and text[at - 1].isalnum():
            return at
    return end


def _count(text: str, last: bool, tally: CorpusTally) -> TextPiece:
    size = len(text)
    if not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:  # a byte that was not UTF-8, or half a pair in a JSON escape
            text, count = LONE_SURROGATE.subn("\ufffd", text)
            tally.replaced += count
            size = len(text.encode())
    tally.documents += last
    tally.characters += len(text)
    tally.bytes += size
    return TextPiece(text, size, last)
