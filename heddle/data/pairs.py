"""Rows of which one answer is preferred to another: {"prompt", "chosen", "rejected"}, as text or as messages.

A prompt may also be left out: what both answers begin with is the prompt then, as TRL reads such rows. Learned are the
answers alone, and never a part of the prompt.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, NamedTuple

from heddle.data.chats import Chat, Plain, Sample, chat_of, list_of, text_of
from heddle.data.rows import PlacedRow, Row, RowError
from heddle.errors import shorten

ANSWERS = ("chosen", "rejected")
SHAPE = 'Write {"prompt": "…", "chosen": "…", "rejected": "…"}, or messages in place of each text.'


class AnswerPair(NamedTuple):
    """The answer that is preferred, and the other one, each behind the same prompt."""

    chosen: Sample
    rejected: Sample


def pair_of(placed: PlacedRow) -> AnswerPair:
    """What a row says."""
    where, row = placed
    row = {name: value for name, value in row.items() if value is not None}
    for name in ANSWERS:
        if name not in row:
            found = ", ".join(map(repr, list(row)[:8])) or "nothing"
            raise RowError(f"{where} has no '{name}'.", f"It has {found}.", SHAPE)
    if row["chosen"] == row["rejected"]:
        raise RowError(
            f"{where}: chosen and rejected are the same.",
            "There is nothing to prefer.",
            'Leave the row out: bad_rows = "skip".',
        )
    texts = [isinstance(row[name], str) and row[name][:1] != "[" for name in ANSWERS]
    if texts[0] != texts[1]:
        raise RowError(f"{where}: one of chosen and rejected is text, the other is not.", "Both are of a kind.", SHAPE)
    if all(texts) and not isinstance(row.get("prompt", ""), list):
        return _as_text(where, row)
    return _as_messages(where, row)


def _as_text(where: str, row: Row) -> AnswerPair:
    chosen, rejected = (text_of(where, name, row[name]) for name in ANSWERS)
    if "prompt" in row:
        prompt = text_of(where, "prompt", row["prompt"])
    else:
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))
        prompt = "".join(one for one, _ in alike)
        prompt = prompt[:-1] if prompt.endswith(" ") else prompt  # a space belongs to the word behind it
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    for name, answer in zip(ANSWERS, (chosen, rejected), strict=True):
        if not answer:
            raise RowError(f"{where}: '{name}' is empty.", "There is nothing to learn.", "Leave the row out.")
    return AnswerPair(Plain(prompt, chosen), Plain(prompt, rejected))


def _as_messages(where: str, row: Row) -> AnswerPair:
    answers = [_messages(where, name, row[name], "assistant") for name in ANSWERS]
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*answers, strict=False))))
    given = row.get("prompt")
    begins = isinstance(answers[0][0], dict) and answers[0][0].get("role") in ("assistant", None)
    if given is not None and begins:
        prompt = _messages(where, "prompt", given, "user")
        return AnswerPair(*(_answered(where, row, prompt, answer) for answer in answers))
    if not same:
        raise RowError(
            f"{where}: chosen and rejected do not begin alike.",
            "Without a prompt, the messages that both begin with are the prompt.",
            SHAPE,
        )
    return AnswerPair(*(_answered(where, row, answers[0][:same], answer[same:]) for answer in answers))


def _messages(where: str, name: str, value: object, role: str) -> list[Any]:
    """Messages, or a text that one of this role says."""
    if isinstance(value, str) and value[:1] != "[":
        if not value:
            raise RowError(f"{where}: '{name}' is empty.", "There is nothing to learn.", "Leave the row out.")
        return [{"role": role, "content": value}]
    if isinstance(value, dict):
        return [value]
    return list_of(where, name, value)


def _answered(where: str, row: Row, prompt: list[Any], answer: list[Any]) -> Chat:
    if not answer:
        raise RowError(
            f"{where}: one of the answers is only the beginning of the other.",
            f"It ends with {shorten(prompt[-1])}, where the other goes on.",
            SHAPE,
        )
    chat = chat_of(where, [*prompt, *answer], row)
    learned = tuple(mark and number >= len(prompt) for number, mark in enumerate(chat.learned))
    if not any(mark and message["role"] == "assistant" for mark, message in zip(learned, chat.messages, strict=True)):
        raise RowError(f"{where}: an answer is not the assistant's.", "There is nothing to learn.", SHAPE)
    return Chat(chat.messages, learned, chat.tools)
