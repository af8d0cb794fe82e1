"""What a job learns from: text, conversations or tokens, and how they become samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from heddle.errors import HeddleError
from heddle.spec.ranges import Positive, ShareBelowOne, check_ranges
from heddle.spec.tables import WHERE_SAID

Learn = Literal["assistant", "last", "each", "all", "preference"]


@dataclass(frozen=True, kw_only=True)
class ChatSource:
    """One source of conversations, and how much of the samples are its own."""

    path: tuple[str, ...] | str  # files or globs, or "datasets:NAME"
    weight: Positive = 1.0
    key: str | None = None  # the field to learn from, where it is not one of the usual
    split: str = "train"  # of a dataset

    def __post_init__(self) -> None:
        check_ranges(self, "data.chat")

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files or globs."""
        return (self.path,) if isinstance(self.path, str) else self.path


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the text comes from and how it becomes tokens. Give one of `text`, `chat` and `tokens`."""

    text: tuple[str, ...] | str = ()  # files or globs, .jsonl or any text; "stdlib:" is Python's own library
    # conversations: files or globs of .jsonl, .json, .csv, .parquet; or tables with a path and a weight, for a mixture
    chat: tuple[str | ChatSource, ...] | str = field(default=(), metadata=WHERE_SAID)
    tokens: str | None = None  # a folder made by `heddle data prepare`
    # "bytes", "bpe:SIZE" (trained on the text), or the path of a tokenizer.json; in a file, train.from brings its own;
    # None is bytes too, which a model with a large vocabulary does not train on unless it is said
    tokenizer: str | None = None
    key: str = "text"  # the field of a JSONL line that holds the text
    validation: ShareBelowOne = 0.05  # share of the tokens that is kept for evaluation
    # conversations to evaluate on, instead of a share of `chat`
    held_out: tuple[str, ...] | str = field(default=(), metadata=WHERE_SAID)
    # of conversations, what is learned: the assistant's turns, the last one, each in a sample of its own, everything,
    # or (with [preference]) which of two answers is better
    learn: Learn = field(default="assistant", metadata=WHERE_SAID)
    template: str | None = None  # a .jinja file, or "chatml"; the tokenizer's own if left out
    template_options: dict[str, Any] | None = field(
        default=None, hash=False
    )  # what the template is told, as enable_thinking
    # several documents in a sample, which do not see each other
    pack: bool = field(default=False, metadata=WHERE_SAID)
    # rows that are not right are an error, or left out and counted
    bad_rows: Literal["refuse", "skip"] = field(default="refuse", metadata=WHERE_SAID)
    cache: str = "prepared"  # where tokens made from `text` are kept
    verify: bool = True  # check the checksum of the token files before training

    def __post_init__(self) -> None:
        check_ranges(self, "data")
        if sum(map(bool, (self.text, self.chat, self.tokens))) != 1:
            raise HeddleError(
                "[data] needs one of 'text', 'chat' and 'tokens'.",
                "Training reads text files, conversations, or a folder of tokens made by `heddle data prepare`.",
                'For example text = "corpus/**/*.txt", or chat = "chats.jsonl".',
            )

    @property
    def chat_sources(self) -> tuple[ChatSource, ...]:
        """Where conversations come from. Files that are only named are one source; a table is one of its own."""
        if isinstance(self.chat, str):
            return (ChatSource(path=self.chat),)
        files = tuple(entry for entry in self.chat if isinstance(entry, str))
        return (*((ChatSource(path=files),) if files else ()), *(e for e in self.chat if isinstance(e, ChatSource)))

    @property
    def tokenizer_word(self) -> str:
        """What text is made into tokens by."""
        return "bytes" if self.tokenizer is None else self.tokenizer


def located(data: Data, folder: Path) -> Data:
    """Inputs lie relative to the job file; what is written lies where the command is run."""

    def place(path: str) -> str:
        return path if path.startswith(("stdlib:", "datasets:")) else str((folder / path).absolute())

    def places(paths: str | tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(place, (paths,) if isinstance(paths, str) else paths))

    chats = (data.chat,) if isinstance(data.chat, str) else data.chat
    return replace(
        data,
        text=places(data.text),
        chat=tuple(place(e) if isinstance(e, str) else replace(e, path=places(e.path)) for e in chats),
        held_out=places(data.held_out),
        template=place(data.template) if data.template is not None and "." in data.template else data.template,
        tokens=None if data.tokens is None else place(data.tokens),
        tokenizer=place(data.tokenizer_word) if data.tokenizer_word.endswith(".json") else data.tokenizer,
    )
