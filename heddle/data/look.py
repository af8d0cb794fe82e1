"""What a job would learn from conversations, looked at before it does: texts with what is learned, counts, lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heddle.data.chat_writer import ChatTally, writer_of
from heddle.data.documents import Documents, MixedDocuments, Trained, usable
from heddle.data.rows import RowError, find_rows
from heddle.data.tokenizer import Tokenizer
from heddle.spec.data import Data

if TYPE_CHECKING:
    from rich.text import Text

LONGEST_SHOWN = 2000  # characters of a sample
QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class TextRun:
    """Some text that is learned, or is not."""

    text: str
    learned: bool


@dataclass(frozen=True)
class ShownSample:
    """A sample as it is shown: where it stands, and its text in runs."""

    where: str
    runs: tuple[TextRun, ...]
    tokens: int
    learned: int


@dataclass
class DataLook:
    """What was found in one source."""

    name: str
    samples: list[ShownSample] = field(default_factory=list)
    rows: int = 0
    lengths: list[int] = field(default_factory=list)
    learned: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, RowError] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Of all samples."""
        return sum(self.lengths)

    def quantiles(self) -> dict[float, int]:
        """How long samples are."""
        ordered = np.sort(np.array(self.lengths or [0]))
        return {q: int(ordered[min(len(ordered) - 1, int(q * len(ordered)))]) for q in QUANTILES}

    def longer_than(self, sequence: int) -> int:
        """Samples that do not fit."""
        return sum(length > sequence + 1 for length in self.lengths)


def look(data: Data, base: Path, samples: int = 3) -> list[DataLook]:
    """Read all conversations as a job would, write nothing, and keep the first few samples."""
    found = []
    for source in data.chat_sources:
        rows = find_rows(source.paths, base, source.split)
        writer, tally = writer_of(data, base, rows), ChatTally()
        looked = DataLook(", ".join(source.paths))
        for where, _, made in writer.encoded(rows, source.key, tally):
            if len(looked.samples) < samples:
                looked.samples.append(shown(where, made.ids, made.learned, writer.tokenizer))
            looked.lengths.append(len(made.ids))
            looked.learned += int(made.learned[1:].sum())
        looked.rows, looked.skipped, looked.first = tally.rows, tally.skipped, tally.first
        found.append(looked)
    return found


def shown(where: str, ids: NDArray[np.generic], learned: NDArray[np.generic], tokenizer: Tokenizer) -> ShownSample:
    """Tokens as text again: what is shown is what the model sees, not what the file says."""
    changes = np.flatnonzero(np.diff(np.asarray(learned, np.int8))) + 1
    runs, left = [], LONGEST_SHOWN
    for part, mark in zip(np.split(ids, changes), np.split(learned, changes), strict=True):
        text = tokenizer.decode(part.tolist())
        if len(text) > left:
            text = text[:left] + " …"
        left -= len(text)
        runs.append(TextRun(text, bool(mark[0])))
        if left <= 0:
            break
    return ShownSample(where, tuple(runs), len(ids), int(np.asarray(learned)[1:].sum()))


def colored(sample: ShownSample, color: bool) -> Text:
    """A sample for a terminal: what is learned is green, or stands between ⟦ and ⟧ where there are no colors."""
    from rich.text import Text

    text = Text()
    for run in sample.runs:
        clean = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in run.text)
        if color:
            text.append(clean, style="green" if run.learned else "dim")
        else:
            text.append(f"⟦{clean}⟧" if run.learned else clean)
    return text


def first_samples(trained: Trained, tokenizer: Tokenizer, sequence: int, count: int = 3) -> list[ShownSample]:
    """The first documents that a run trains on, as many as wanted of all sources together."""
    parts: Sequence[Documents] = trained.parts if isinstance(trained, MixedDocuments) else ()
    if isinstance(trained, Documents):
        parts = (trained,)
    found: list[ShownSample] = []
    for turn in range(count):
        for part in parts:
            used = usable(part, sequence)
            if turn < len(used.documents) and len(found) < count:
                number = int(used.documents[turn])
                start, stop = int(part.starts[number]), int(part.starts[number]) + int(used.places[turn]) + 1
                where = f"document {number + 1}"
                found.append(shown(where, part.tokens[start:stop], part.learned[start:stop], tokenizer))
    return found
