"""Rows as conversations: the shapes that people keep theirs in – messages, ShareGPT, Alpaca, prompt and completion,
text – read as one, and whatever is wrong with a row said with its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from heddle.data.corpus import LONE_SURROGATE
from heddle.data.rows import PlacedRow, Row, RowError
from heddle.errors import nearest, shorten

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
FIRST_ONLY = ("system", "developer")
ANSWERS = ("tool", "function")  # of tools; several calls have several
SPEAKERS = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bot": "assistant", "model": "assistant", "system": "system", "tool": "tool", "observation": "tool",
    "function_response": "tool", "function_call": "assistant",
}  # fmt: skip
SHAPES = (
    ("messages", "messages with roles"),
    ("conversations", "ShareGPT's from and value"),
    ("prompt", "prompt and completion"),
    ("instruction", "Alpaca's instruction, input and output"),
    ("text", "text"),
)
MOST_MESSAGES = 100_000


@dataclass(frozen=True)
class Chat:
    """A conversation, to be written by a chat template."""

    messages: list[Message]
    learned: tuple[bool, ...]  # of each message, whether it may be learned from
    tools: list[Any] | None = None


@dataclass(frozen=True)
class Plain:
    """Text that no template writes: what is given, and what is learned."""

    prompt: str
    completion: str


Sample = Chat | Plain


def sample_of(placed: PlacedRow, key: str | None = None) -> Sample:
    """What a row says; `key` names the field to look at where it is not one of the usual."""
    where, row = placed
    row = {name: value for name, value in row.items() if value is not None}
    if key is not None:
        if key not in row:
            raise RowError(f"{where} has no field '{key}'.", "data.key names what is learned.", nearest(key, row))
        row = row | {_shape_of_value(where, key, row[key]): row[key]}
        if "text" not in row or key == "text":
            row = {name: value for name, value in row.items() if name not in ("prompt", "instruction")}
    for shape, reader in _READERS.items():
        if shape in row:
            return reader(where, row)
    if "chosen" in row and "rejected" in row:
        raise RowError(
            f"{where} has a chosen and a rejected answer, but nothing to learn word by word.",
            "That is data for preferences.",
            'Add the table [preference] to learn to prefer, or name one, key = "chosen", to learn to write it.',
        )
    shapes = "; ".join(f"'{name}' ({words})" for name, words in SHAPES)
    found = ", ".join(map(repr, list(row)[:8])) or "nothing"
    raise RowError(f"{where} is of no known shape.", f"It has {found}.", f"Known: {shapes}. Or name a field: key = …")


def _shape_of_value(where: str, key: str, value: object) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "conversations" if "from" in value[0] else "messages"
    raise RowError(
        f"{where}: '{key}' is neither text nor a list of messages.", f"It is {shorten(value)}.", "Name another field."
    )


# ------------------------------------------------------------------------------------------------------------ shapes


def _messages(where: str, row: Row) -> Chat:
    given = list_of(where, "messages", row["messages"])
    if given and isinstance(given[0], dict) and "from" in given[0] and "role" not in given[0]:
        return _sharegpt(where, row | {"conversations": given})
    return chat_of(where, given, row)


def _sharegpt(where: str, row: Row) -> Chat:
    turns = list_of(where, "conversations", row["conversations"])
    if turns and isinstance(turns[0], dict) and "role" in turns[0]:
        return chat_of(where, turns, row)
    messages: list[Message] = []
    if isinstance(row.get("system"), str) and row["system"]:
        messages.append({"role": "system", "content": row["system"]})
    for number, turn in enumerate(turns, 1):
        place = f"{where}, turn {number}"
        if not isinstance(turn, dict) or "from" not in turn or "value" not in turn:
            raise RowError(f"{place} lacks 'from' or 'value'.", f"It is {shorten(turn)}.", _shown("conversations"))
        speaker = turn["from"]
        if not isinstance(speaker, str) or speaker.lower() not in SPEAKERS:
            raise RowError(
                f"{place} is from {shorten(speaker)}.", "Nobody knows who that is.", nearest(str(speaker), SPEAKERS)
            )
        message: Message = {"role": SPEAKERS[speaker.lower()], "content": turn["value"]}
        if speaker.lower() == "function_call":
            message = {"role": "assistant", "content": "", "tool_calls": [_call(place, turn["value"])]}
        if "weight" in turn:
            message["weight"] = turn["weight"]
        messages.append(message)
    return chat_of(where, messages, row)


def _call(place: str, value: object) -> dict[str, Any]:
    call = _parsed(value)
    if not isinstance(call, dict) or "name" not in call:
        raise RowError(
            f"{place} is no call of a function.",
            f"It is {shorten(value)}.",
            'Write {"name": "…", "arguments": {…}}.',
        )
    return {"type": "function", "function": {"name": call["name"], "arguments": _parsed(call.get("arguments", {}))}}


def _prompt(where: str, row: Row) -> Sample:
    name = "completion" if "completion" in row else "response" if "response" in row else None
    if name is None:
        raise RowError(
            f"{where} has a prompt, but no completion.", "There is nothing to learn.", 'Add "completion": "…".'
        )
    prompt, completion = row["prompt"], row[name]
    if isinstance(prompt, list) and isinstance(completion, list):
        given = [*prompt, *completion]
        chat = chat_of(where, given, row)
        early = [index < len(prompt) for index in range(len(given))]
        return Chat(
            chat.messages,
            tuple(learned and not before for learned, before in zip(chat.learned, early, strict=True)),
            chat.tools,
        )
    return Plain(text_of(where, "prompt", prompt), text_of(where, name, completion))


def _alpaca(where: str, row: Row) -> Chat:
    if "output" not in row:
        raise RowError(
            f"{where} has an instruction, but no output.", "There is nothing to learn.", 'Add "output": "…".'
        )
    asked, extra = text_of(where, "instruction", row["instruction"]), text_of(where, "input", row.get("input", ""))
    messages: list[Message] = []
    if isinstance(row.get("system"), str) and row["system"]:
        messages.append({"role": "system", "content": row["system"]})
    for number, pair in enumerate(list_of(where, "history", row.get("history", []), empty=True), 1):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise RowError(
                f"{where}: entry {number} of 'history' is no pair.", f"It is {shorten(pair)}.", 'Write ["…", "…"].'
            )
        question, answer = pair
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": f"{asked}\n\n{extra}" if extra else asked})
    messages.append({"role": "assistant", "content": text_of(where, "output", row["output"])})
    return chat_of(where, messages, row)


def _text(where: str, row: Row) -> Plain:
    return Plain("", text_of(where, "text", row["text"]))


_READERS: dict[str, Callable[[str, Row], Sample]] = {
    "messages": _messages,
    "conversations": _sharegpt,
    "conversation": lambda where, row: _sharegpt(where, row | {"conversations": row["conversation"]}),
    "prompt": _prompt,
    "instruction": _alpaca,
    "text": _text,
}


# ------------------------------------------------------------------------------------------------------------ checks


def chat_of(where: str, given: list[Any], row: Mapping[str, Any]) -> Chat:
    """A conversation of checked messages."""
    if not given:
        raise RowError(f"{where} has no messages.", "The list is empty.", _shown("messages"))
    if len(given) > MOST_MESSAGES:
        raise RowError(f"{where} has {len(given):,} messages.", f"{MOST_MESSAGES:,} are the most.", "Split it.")
    messages, learned = [], []
    before = ""
    for number, message in enumerate(given, 1):
        place = f"{where}, message {number}"
        clean = _message(place, message)
        role = clean["role"]
        if role in FIRST_ONLY and number > 1:
            raise RowError(
                f"{place} is a {role} message.", "Only the first message may be.", "Move it to the beginning."
            )
        if role == before and role not in ANSWERS:
            raise RowError(
                f"{place} is the {role}'s again.",
                f"Two messages of the {role} follow each other; chat templates write turns in turn.",
                'Join the two, or leave such rows out: bad_rows = "skip".',
            )
        if role in ANSWERS and before in ("", "user", *FIRST_ONLY):
            raise RowError(f"{place} is a tool's answer.", "Nobody has called one.", "Add the assistant's tool_calls.")
        weight = clean.pop("weight", 1)
        if weight not in (0, 1, True, False):
            raise RowError(f"{place} has weight {shorten(weight)}.", "A message is learned or not.", "Write 0 or 1.")
        messages.append(clean)
        learned.append(bool(weight))
        before = role
    if not any(message["role"] == "assistant" for message in messages):
        raise RowError(f"{where} has no message of the assistant.", "There is nothing to learn.", _shown("messages"))
    return Chat(messages, tuple(learned), _tools(where, row.get("tools")))


def _message(place: str, message: object) -> Message:
    if not isinstance(message, dict):
        raise RowError(f"{place} is not an object.", f"It is {shorten(message)}.", _shown("messages"))
    clean = {key: value for key, value in message.items() if value is not None}  # as transformers does
    if "role" not in clean:
        raise RowError(
            f"{place} has no role.", f"It has {', '.join(map(repr, clean)) or 'nothing'}.", _shown("messages")
        )
    role = clean["role"]
    if not isinstance(role, str) or role not in ROLES:
        raise RowError(f"{place} has the role {shorten(role)}.", "Nobody knows that one.", nearest(str(role), ROLES))
    content = clean.get("content")
    if content is None and not (role == "assistant" and clean.get("tool_calls")):
        raise RowError(
            f"{place} has no content.", "Only an assistant that calls tools may say nothing.", 'Add "content": "…".'
        )
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise RowError(
                    f"{place} has a part that is not text: {shorten(part)}.",
                    "Heddle's models read text alone.",
                    'Leave out images and sounds; a part of text is {"type": "text", "text": "…"}.',
                )
    elif content is not None and not isinstance(content, str):
        raise RowError(f"{place}: the content is not text.", f"It is {shorten(content)}.", 'Write "content": "…".')
    calls = clean.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise RowError(
                f"{place}: tool_calls is no list of calls.",
                f"It is {shorten(calls)}.",
                'Write [{"type": "function", "function": {"name": "…", "arguments": {…}}}].',
            )
        if role != "assistant" and calls:
            raise RowError(
                f"{place}: the {role} calls tools.", "Only the assistant does.", "Give it the role assistant."
            )
    for name in ("reasoning_content", "reasoning", "thinking"):
        if name in clean and not isinstance(clean[name], str):
            raise RowError(f"{place}: {name} is not text.", f"It is {shorten(clean[name])}.", f'Write "{name}": "…".')
    return dict(_written(clean))


def _tools(where: str, value: object) -> list[Any] | None:
    tools = _parsed(value)
    if tools is None or tools in ([], ""):
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError(
            f"{where}: tools is no list of functions.",
            f"It is {shorten(value)}.",
            'Write [{"type": "function", "function": {"name": "…", "parameters": {…}}}].',
        )
    return list(_written(tools))


def _parsed(value: object) -> object:
    """Some keep what is nested as JSON in a string."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _written(value: Any) -> Any:
    """The same without halves of characters, which no tokenizer takes: as in other text, U+FFFD stands for them."""
    if isinstance(value, str):
        return value if value.isascii() else LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_written(key): _written(entry) for key, entry in value.items()}
    return [_written(entry) for entry in value] if isinstance(value, list | tuple) else value


def text_of(where: str, name: str, value: object) -> str:
    """A field that must be text."""
    if not isinstance(value, str):
        raise RowError(
            f"{where}: '{name}' is not text.",
            f"It is {shorten(value)}, {type(value).__name__}.",
            f'Write "{name}": "…"; a column of a table must hold strings.',
        )
    return str(_written(value))


def list_of(where: str, name: str, value: object, empty: bool = False) -> list[Any]:
    """A field that must be a list, or JSON of one."""
    value = _parsed(value)
    if not isinstance(value, list | tuple) or not (value or empty):
        what = "is empty" if value in ([], ()) else "is not a list"
        raise RowError(f"{where}: '{name}' {what}.", f"It is {shorten(value)}.", _shown(name))
    return list(value)


def _shown(shape: str) -> str:
    if shape == "conversations":
        return 'Write {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}.'
    return 'Write {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}.'
