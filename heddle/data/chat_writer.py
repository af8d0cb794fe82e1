"""Rows of conversations to tokens: texts by the chat template, encoded, with what is learned, in one stream."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heddle.data.chats import Plain, Sample, sample_of
from heddle.data.pairs import pair_of
from heddle.data.rows import RowError, RowFiles, RowsRead, refuse
from heddle.data.template import ChatTemplate, Encoded, WrittenChat, encode, find_template, samples_of
from heddle.data.tokenizer import Tokenizer, check_tokenizer, make_tokenizer
from heddle.spec.data import Data

BATCH = 256  # texts that are tokenized together
NOTHING = "nothing to learn"
MARK = re.compile(r"\d+|'[^']*'|\"[^\"]*\"")


@dataclass
class ChatTally:
    """What reading has come across. Nothing is left out without being counted here."""

    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, RowError] = field(default_factory=dict)  # the first of each kind that was left out
    progress: RowsRead = field(default_factory=RowsRead)

    def skip(self, error: RowError) -> None:
        """Leave a row out and count why."""
        reason = kind_of(error)
        self.skipped[reason] += 1
        self.first.setdefault(reason, error)


def kind_of(error: RowError) -> str:
    """The reason without its place: "has no role" for "chat.jsonl, line 7, message 2 has no role."."""
    what = re.sub(r"^.*?, (?:line|row) \d+(?: \(line \d+\))?(?:, (?:message|turn) \d+)?:? ?", "", error.what)
    return MARK.sub("…", what).rstrip(".")


@dataclass(frozen=True)
class ChatWriter:
    """What turns rows into tokens: the template, the tokenizer, and what is learned."""

    template: ChatTemplate
    tokenizer: Tokenizer
    data: Data

    def encoded(
        self, rows: RowFiles, key: str | None, tally: ChatTally
    ) -> Iterator[tuple[str, WrittenChat | Plain, Encoded]]:
        """Every sample of some rows that has anything to learn, with its place and its text."""
        bad: Callable[[RowError], None] = tally.skip if self.data.bad_rows == "skip" else refuse
        batch: list[tuple[str, WrittenChat | Plain]] = []
        for placed in rows.rows(tally.progress, bad):
            tally.rows += 1
            try:
                read: Iterable[Sample] = pair_of(placed) if self.pairs else (sample_of(placed, key),)
                texts = [
                    text for each in read for text in samples_of(each, self.template, self.data.learn, placed.where)
                ]
                batch += [(placed.where, text) for text in texts]
            except RowError as error:
                bad(error)
            if len(batch) >= BATCH:
                yield from self._made(batch, tally, bad)
                batch = []
        yield from self._made(batch, tally, bad)

    @property
    def pairs(self) -> bool:
        """Whether samples come two by two: what is preferred, and what is not."""
        return self.data.learn == "preference"

    def _made(
        self, batch: list[tuple[str, WrittenChat | Plain]], tally: ChatTally, bad: Callable[[RowError], None]
    ) -> Iterator[tuple[str, WrittenChat | Plain, Encoded]]:
        together = 2 if self.pairs else 1  # of which both are used, or neither
        every = zip(batch, encode(batch, self.tokenizer), strict=True)
        for group in zip(*[every] * together, strict=True):
            wrong = next((made for _, made in group if isinstance(made, RowError)), None)
            if wrong is not None:
                bad(wrong)
                continue
            whole = [(where, text, made) for (where, text), made in group if isinstance(made, Encoded)]
            if all(made.learned[1:].any() for _, _, made in whole):
                yield from whole
            else:
                tally.skipped[NOTHING] += 1


def writer_of(data: Data, base: Path, rows: RowFiles) -> ChatWriter:
    """The template and the tokenizer that a job names."""
    kind = check_tokenizer(data.tokenizer_word, base)
    folder = kind.parent if isinstance(kind, Path) else None
    tokenizer = make_tokenizer(data.tokenizer_word, base, lambda: _texts(rows))
    return ChatWriter(find_template(data.template, base, folder, data.template_options or {}), tokenizer, data)


def _texts(rows: RowFiles) -> Iterator[str]:
    """What a tokenizer is trained on: whatever text the rows hold."""

    def strings(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for entry in value.values() if isinstance(value, dict) else value:
                yield from strings(entry)

    for _, row in rows.rows(bad=lambda _: None):
        yield from strings(row)
