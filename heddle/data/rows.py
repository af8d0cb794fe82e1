"""Rows of files – JSONL, JSON, CSV, TSV, Parquet, or whatever `datasets` reads – one at a time, each with its place."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from heddle.data.corpus import LONGEST_LINE, find_files
from heddle.errors import HeddleError, how_to_install, nearest, shorten

DATASETS = "datasets:"  # before a name or folder that the library of that name reads
LARGEST_JSON = 1 << 30  # bytes of a .json file, which is in memory whole
ROWS_AT_ONCE = 256  # of a Parquet file

Row = dict[str, Any]


class PlacedRow(NamedTuple):
    """A row, and where it stands: "chats.jsonl, line 7"."""

    where: str
    row: Row


class RowError(HeddleError):
    """A row that cannot be used. Whoever skips bad rows counts it and goes on; all others see an error."""


LONGEST_SKIPPED = 1 << 30  # bytes of a line that is left out: whoever has more has no file of lines


@dataclass
class RowsRead:
    """How far reading has come, in bytes of all files or, where nobody knows these, in rows."""

    done: int = 0
    total: int = 0


Skip = Callable[[RowError], None]


def refuse(error: RowError) -> None:
    """What happens to a bad row by default."""
    raise error


@dataclass(frozen=True)
class RowFiles:
    """Files of rows, or a dataset of the library `datasets`, and what to do with rows that are not right."""

    files: dict[str, Path]
    dataset: str | None = None
    split: str = "train"

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.files.values())

    def rows(self, progress: RowsRead | None = None, bad: Skip = refuse) -> Iterator[PlacedRow]:
        """Every row; what cannot be read as one is given to `bad`."""
        progress = progress or RowsRead()
        progress.total = self.size
        if self.dataset is not None:
            yield from _of_dataset(self.dataset, self.split, progress, bad)
        for name, path in self.files.items():
            before = progress.done
            try:
                yield from _READERS[_kind(path)](path, name, progress, bad)
            except (OSError, EOFError, zlib.error) as error:  # gzip's: not its format, cut short, damaged
                raise HeddleError(
                    f"{path} cannot be read.",
                    f"{getattr(error, 'strerror', None) or error}.",
                    "Make it readable, or leave it out of data.chat.",
                ) from None
            progress.done = before + path.stat().st_size


def find_rows(patterns: tuple[str, ...], base: Path, split: str = "train") -> RowFiles:
    """What paths, globs and names of datasets stand for."""
    named = [pattern for pattern in patterns if pattern.startswith(DATASETS)]
    if named and len(patterns) > 1:
        raise HeddleError(
            f"'{named[0]}' stands beside other files.",
            "A dataset is a source of its own.",
            f'Write chat = [{{ path = "{named[0]}" }}, {{ path = "…" }}].',
        )
    if named:
        return RowFiles({}, named[0].removeprefix(DATASETS), split)
    files = find_files(patterns, base)
    for path in files.values():
        _kind(path)
    return RowFiles(files)


def _kind(path: Path) -> str:
    kind = "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if kind in _READERS:
        return kind
    raise HeddleError(
        f"{path} is of no kind that holds rows.",
        f"By its name it is a '{kind}' file." if kind else "Its name has no ending that says what it holds.",
        nearest(kind, _READERS),
    )


# ---------------------------------------------------------------------------------------------------------- readers


def _jsonl(path: Path, name: str, progress: RowsRead, bad: Skip) -> Iterator[PlacedRow]:
    start = progress.done
    with path.open("rb") as raw:
        unpacked: BinaryIO = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw  # type: ignore[assignment]
        found = False
        for number, line in enumerate(iter(lambda: unpacked.readline(LONGEST_LINE + 1), b""), 1):
            where, found = f"{name}, line {number}", True
            progress.done = start + raw.tell()
            if len(line) > LONGEST_LINE:
                bad(_too_long(where))
                _leave_out(unpacked, line, where)
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode())
            except UnicodeDecodeError as error:
                bad(
                    RowError(f"{where} is not UTF-8.", f"Byte {error.start + 1} of it is no text.", "Convert the file.")
                )
                continue
            except (ValueError, RecursionError) as error:
                bad(
                    RowError(
                        f"{where} is not valid JSON.",
                        f"{error}.",
                        'Each line of a .jsonl file is one JSON object; bad_rows = "skip" leaves such lines out.',
                    )
                )
                continue
            yield from _checked(where, value, bad)
    if not found:
        raise _empty(path)


def _leave_out(file: BinaryIO, line: bytes, where: str) -> None:
    """Read on to the end of a line."""
    left = LONGEST_SKIPPED
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE)
        left -= len(line)
        if left < 0:
            raise HeddleError(
                f"{where} has more than {LONGEST_SKIPPED >> 30} GiB.",
                "A .jsonl file has a row in each line, and this one does not end.",
                "Is it a file of rows? Look at its beginning with `head -c 300`.",
            )


def _json(path: Path, name: str, progress: RowsRead, bad: Skip) -> Iterator[PlacedRow]:
    size = path.stat().st_size
    if size > LARGEST_JSON:
        raise HeddleError(
            f"{path} has {size:,} bytes.",
            "A .json file is one value, which is in memory whole.",
            "Write each row as a line of a .jsonl file, which is read line by line.",
        )
    text = path.read_bytes()
    if not text.strip():
        raise _empty(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeddleError(
            f"{path} is not valid JSON.",
            f"{error}.",
            "A .json file is a list of rows. If each of its lines is an object, rename it to .jsonl.",
        ) from None
    if isinstance(value, dict):  # such as {"data": […]}
        lists = [key for key, entry in value.items() if isinstance(entry, list)]
        if len(lists) != 1:
            raise HeddleError(
                f"{path} is not a list of rows.",
                f"It is an object with {', '.join(map(repr, list(value)[:5]))}.",
                "Write the rows as a list, or as lines of a .jsonl file.",
            )
        value = value[lists[0]]
    if not isinstance(value, list):
        raise HeddleError(f"{path} is not a list of rows.", f"It is {shorten(value)}.", "Write [{…}, {…}].")
    if not value:
        raise _empty(path)
    begun = progress.done
    for number, entry in enumerate(value, 1):
        progress.done = begun + size * number // len(value)
        yield from _checked(f"{name}, row {number}", entry, bad)


def _csv(path: Path, name: str, progress: RowsRead, bad: Skip) -> Iterator[PlacedRow]:
    start = progress.done
    csv.field_size_limit(min(LONGEST_LINE, sys.maxsize))
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open("rb") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        number = 0
        try:
            header = next(reader, None)
            if header is None:
                raise _empty(path)
            if len(set(header)) < len(header) or not all(word.strip() for word in header):
                raise HeddleError(
                    f"{path} has no proper header.",
                    f"Its first line is {shorten(header)}: names that are missing, or there twice.",
                    "Write the names of the columns in the first line, such as prompt,completion.",
                )
            for number, cells in enumerate(reader, 1):
                progress.done = start + raw.tell()
                if not cells:
                    continue
                where = f"{name}, row {number} (line {reader.line_num})"
                if len(cells) != len(header):
                    bad(
                        RowError(
                            f"{where} has {len(cells)} cells.",
                            f"The header names {len(header)} columns.",
                            "Quote cells that hold the delimiter or the end of a line.",
                        )
                    )
                    continue
                row = dict(zip(header, cells, strict=True))
                yield PlacedRow(where, {key: _cell(value) for key, value in row.items()})
        except csv.Error as error:
            raise HeddleError(
                f"{path}, row {number + 1}, is not proper CSV.",
                f"{error}.",
                "Quote cells that hold quotes or line ends, or convert the file to .jsonl.",
            ) from None
        except UnicodeDecodeError as error:
            raise HeddleError(
                f"{path} is not UTF-8.", f"Near row {number + 1}: {error.reason}.", "Convert it to UTF-8."
            ) from None


def _cell(value: str) -> Any:
    """What a cell holds: messages stand in a cell as JSON."""
    if value[:1] in "[{" and value[:1]:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _parquet(path: Path, name: str, progress: RowsRead, bad: Skip) -> Iterator[PlacedRow]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise HeddleError(
            f"{path} needs the library 'pyarrow'.", "It reads Parquet.", f"Install it: {how_to_install('data')}."
        ) from None
    size = path.stat().st_size
    if not size:
        raise _empty(path)
    begun, number = progress.done, 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            if not rows:
                raise _empty(path)
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from _of_batch(batch, name, number, bad)
                number += len(batch)
                progress.done = begun + size * number // rows
    except pyarrow.ArrowException as error:
        raise HeddleError(
            f"{path} is not a Parquet file that can be read.",
            f"After {number:,} rows: {shorten(str(error))}.",
            "Copy or write it again.",
        ) from None


def _of_batch(batch: Any, name: str, before: int, bad: Skip) -> Iterator[PlacedRow]:
    """Rows as Python has them; of a batch with values that it has not, all others."""
    try:
        rows = batch.to_pylist()
    except (OverflowError, ValueError):  # a day after the year 9999, text that is not UTF-8
        rows = [None] * len(batch)
    for at, row in enumerate(rows):
        where = f"{name}, row {before + at + 1}"
        try:
            yield PlacedRow(where, batch.slice(at, 1).to_pylist()[0] if row is None else row)
        except (OverflowError, ValueError) as error:
            bad(
                RowError(
                    f"{where} has a value that Python cannot hold.",
                    f"{shorten(str(error))}.",
                    'Write it as text, or leave its column out; bad_rows = "skip" leaves such rows out.',
                )
            )


def _of_dataset(name: str, split: str, progress: RowsRead, bad: Skip) -> Iterator[PlacedRow]:
    try:
        import datasets
    except ImportError:
        raise HeddleError(
            f"'{DATASETS}{name}' needs the library 'datasets'.",
            "It reads datasets of the Hugging Face Hub, and folders of them.",
            f"Install it: {how_to_install('data')}.",
        ) from None
    try:
        rows = datasets.load_dataset(name, split=split, streaming=True)
        for number, row in enumerate(rows, 1):
            progress.done = number
            yield from _checked(f"{name} ({split}), row {number}", row, bad)
    except HeddleError:
        raise
    except Exception as error:  # whatever the library and its readers raise
        raise HeddleError(
            f"The dataset '{name}' cannot be read.",
            f"{type(error).__name__}: {shorten(str(error))}",
            f'Its name, or the folder it lies in, stands after "{DATASETS}"; split = "{split}" is asked for.',
        ) from None


def _checked(where: str, value: object, bad: Skip) -> Iterator[PlacedRow]:
    if isinstance(value, dict):
        yield PlacedRow(where, value)
    else:
        bad(RowError(f"{where} is not a JSON object.", f"It is {shorten(value)}.", 'A row is {"messages": […]}.'))


def _too_long(where: str) -> RowError:
    return RowError(
        f"{where} has more than {LONGEST_LINE:,} bytes.",
        "A row is read whole; no conversation is that long.",
        'Are there line ends missing? bad_rows = "skip" leaves such rows out.',
    )


def _empty(path: Path) -> HeddleError:
    return HeddleError(f"{path} has no rows.", "It is empty.", "Leave it out of data.chat, or write it again.")


_READERS = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".jsonl.gz": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}
