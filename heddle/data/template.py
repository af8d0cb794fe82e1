"""A conversation written out by its tokenizer's chat template, and which of its tokens the assistant wrote.

Hugging Face's own renderer writes the text. Where a template marks what the assistant generates ({% generation %}),
these marks say what is learned. Where it does not, each turn is found by what the template writes before it: the
conversation up to the turn, with the prompt for an answer, must be a prefix of the whole, and so must the conversation
with the turn. A template that writes earlier turns otherwise than the last one, as those do that leave out earlier
thoughts, fails that check: then nobody can be sure, and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heddle.data.chats import Chat, Message, Plain, Sample
from heddle.data.rows import RowError
from heddle.data.tokenizer import CONFIG_FILE, Ids, Tokenizer
from heddle.errors import HeddleError, how_to_install, shorten
from heddle.files import read_text
from heddle.spec.data import Learn
from heddle.spec.tables import read_foreign_json

TEMPLATE_FILE = "chat_template.jinja"
SPECIAL_FILE = "special_tokens_map.json"
MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")

# A template for models that have none: ChatML, as plain text where the tokenizer has no tokens for it.
CHATML = """\
{% for message in messages %}\
<|im_start|>{{ message['role'] }}
{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>
{% endgeneration %}{% else %}{{ message['content'] }}<|im_end|>
{% endif %}{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
BUILT_IN = {"chatml": CHATML}


class Encoded(NamedTuple):
    """Tokens, and which of them are learned."""

    ids: Ids
    learned: NDArray[np.bool_]


class WrittenChat(NamedTuple):
    """A text, and the spans of characters that are learned."""

    text: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ChatTemplate:
    """How a model's conversations are written."""

    text: str | None  # None: the tokenizer has none, and plain text needs none
    special: dict[str, str] = field(default_factory=dict)  # the names of special tokens that templates know
    options: dict[str, Any] = field(default_factory=dict)  # other words that the template knows, as enable_thinking

    @cached_property
    def marked(self) -> bool:
        """Whether it marks what the assistant generates."""
        return self.text is not None and MARKED.search(self.text) is not None

    def write(
        self, messages: list[Message], tools: list[Any] | None = None, prompt: bool = False
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text of some messages, with the prompt for an answer where wanted; and what is marked of it."""
        if self.text is None:
            raise HeddleError(
                "The tokenizer has no chat template.",
                f"Conversations are written by the {TEMPLATE_FILE} beside a tokenizer, or by chat_template in its "
                f"{CONFIG_FILE}; this one has neither.",
                'Name one: [data] template = "FILE.jinja", or template = "chatml", which comes with Heddle.',
            )
        rendered, marks = _renderer()(
            conversations=[messages],
            tools=tools,
            chat_template=self.text,
            return_assistant_tokens_mask=self.marked and not prompt,
            add_generation_prompt=prompt,
            **self.special | self.options,
        )
        return rendered[0], [(int(start), int(stop)) for start, stop in marks[0]] if marks else []

    def written(self, chat: Chat, learn: Learn, where: str) -> Iterator[WrittenChat]:
        """A conversation as texts with what is learned of each: one, or one for each turn."""
        turns = [number for number, message in enumerate(chat.messages) if message["role"] == "assistant"]
        wanted = [number for number in turns if chat.learned[number]]
        try:
            if learn == "all":
                text, _ = self.write(chat.messages, chat.tools)
                yield WrittenChat(text, ((0, len(text)),))
            elif learn in ("assistant", "preference"):
                yield self._turns(chat, turns, wanted, where)
            else:
                for number in wanted[-1:] if learn == "last" else wanted:
                    text, _ = self.write(chat.messages[: number + 1], chat.tools)
                    yield WrittenChat(text, (self._turn(chat, number, text, where),))
        except HeddleError:
            raise
        except RecursionError:
            raise RowError(f"{where} is nested too deeply.", "No template writes it.", "Leave it out.") from None
        except Exception as error:  # whatever the template raises, or its engine
            raise RowError(
                f"{where} cannot be written by the chat template.",
                f"It says: {shorten(str(error))}",
                'Change the row, or leave such rows out: bad_rows = "skip".',
            ) from None

    def _turns(self, chat: Chat, turns: list[int], wanted: list[int], where: str) -> WrittenChat:
        text, marks = self.write(chat.messages, chat.tools)
        if self.marked:
            if wanted != turns:
                if len(marks) != len(turns):
                    raise _unsure(where, f"it marks {len(marks)} spans for {len(turns)} turns of the assistant")
                marks = [marks[turns.index(number)] for number in wanted]
            if wanted and not any(start < stop for start, stop in marks):
                raise _unsure(where, "none of its {% generation %} marks has a character of this row in it")
            return WrittenChat(text, tuple(marks))
        return WrittenChat(text, tuple(self._turn(chat, number, text, where) for number in wanted))

    def _turn(self, chat: Chat, number: int, text: str, where: str) -> tuple[int, int]:
        """Where a turn of the assistant begins and ends in a text: both ends are checked by rendering."""
        before, _ = self.write(chat.messages[:number], chat.tools, prompt=True) if number else ("", [])
        through, _ = self.write(chat.messages[: number + 1], chat.tools)
        if not text.startswith(through):  # some templates write the end of a text behind the last message alone
            through = through.removesuffix(self.special.get("eos_token", ""))
        turn = f"message {number + 1}"
        if not number:
            raise _unsure(where, f"{turn}, the assistant's, has nothing before it that the template writes")
        if not text.startswith(through):
            raise _unsure(where, f"it writes {turn} otherwise when more messages follow")
        if not through.startswith(before):
            raise _unsure(where, f"its prompt for an answer is not how it begins {turn}")
        if len(through) == len(before):
            raise _unsure(where, f"it writes nothing of {turn}")
        return len(before), len(through)


def _unsure(where: str, why: str) -> RowError:
    return RowError(
        f"{where}: what the assistant wrote cannot be told for sure.",
        f"The chat template has no {{% generation %}} marks that tell it, and {why}."
        if "marks" not in why
        else f"Of the chat template, {why}.",
        'learn = "each" makes every answer a sample of its own, written as when it is generated; learn = "last" takes '
        'the last one alone; or give a template with such marks: [data] template = "FILE.jinja".',
    )


def encode(samples: list[tuple[str, WrittenChat | Plain]], tokenizer: Tokenizer) -> Iterator[Encoded | RowError]:
    """Tokens of texts with their places, in order; a token that is half learned and half not makes a bad row."""
    flat = [sample.prompt if isinstance(sample, Plain) else sample.text for _, sample in samples]
    completions = [sample.completion for _, sample in samples if isinstance(sample, Plain)]
    spanned = tokenizer.encode_with_ends(flat)
    completed = iter(tokenizer.encode_batch(completions))
    end = np.array([tokenizer.end], np.int64)
    for (where, sample), (ids, ends) in zip(samples, spanned, strict=True):
        if isinstance(sample, Plain):
            # as it is generated: what was given is tokenized by itself, and what is learned goes on from there
            given = np.concatenate([np.array(tokenizer.beginning, np.int64), ids.astype(np.int64)])
            answer = np.concatenate([next(completed).astype(np.int64), end])
            if len(answer) == 1:
                yield RowError(f"{where} has an empty completion.", "There is nothing to learn.", "Leave it out.")
                continue
            learned = np.repeat([False, True], [len(given), len(answer)])
            yield Encoded(np.concatenate([given, answer]), learned)
            continue
        begins = np.concatenate([np.zeros(1, np.int64), np.maximum.accumulate(ends)[:-1]]) if len(ends) else ends
        learned = np.zeros(len(ids), bool)
        torn = False
        for start, stop in sample.spans:
            inside = (begins >= start) & (ends <= stop) & (ends > start)
            touched = (begins < stop) & (ends > start) & (ends > begins)
            torn |= bool((touched & ~inside).any())
            learned |= inside
        if torn:
            yield RowError(
                f"{where}: a token is half the assistant's and half not.",
                "The tokenizer joins the end of what is given with the beginning of what is learned.",
                "Use a template that ends its prompt with a special token or the end of a line.",
            )
            continue
        yield Encoded(ids, learned)


# ---------------------------------------------------------------------------------------------------------- finding


def find_template(word: str | None, base: Path, tokenizer: Path | None, options: dict[str, Any]) -> ChatTemplate:
    """The template that data.template names, or the one that lies beside a tokenizer.json."""
    special = {} if tokenizer is None else _special(tokenizer)
    if word in BUILT_IN:
        return ChatTemplate(BUILT_IN[word], special, options)
    if word is not None:
        path = base / word
        if not path.is_file():
            raise HeddleError(
                f"There is no chat template {path}.",
                f"data.template = '{word}' is the path of a .jinja file, or the name of one that comes with Heddle.",
                f"Heddle brings {', '.join(BUILT_IN)}.",
            )
        return _checked(ChatTemplate(read_text(path, "a chat template"), special, options), path)
    return ChatTemplate(None, special, options) if tokenizer is None else _beside(tokenizer, special, options)


def _beside(folder: Path, special: dict[str, str], options: dict[str, Any]) -> ChatTemplate:
    path = folder / TEMPLATE_FILE
    if path.is_file():
        return _checked(ChatTemplate(read_text(path, "a chat template"), special, options), path)
    config = folder / CONFIG_FILE
    given = read_foreign_json(config, "a tokenizer's configuration").get("chat_template") if config.is_file() else None
    if isinstance(given, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, dict)}
        given = named.get("default")
    if given is not None and not isinstance(given, str):
        raise HeddleError(
            f"{config}: chat_template is not text.", f"It is {shorten(given)}.", "Name one: [data] template = …"
        )
    return _checked(ChatTemplate(given, special, options), config)


def _checked(template: ChatTemplate, path: Path) -> ChatTemplate:
    """Refuse what is no template before a million rows are read."""
    if template.text is not None:
        compiled = _compiler()
        try:
            compiled(template.text)
        except Exception as error:
            raise HeddleError(
                f"The chat template of {path} is not one.",
                f"{type(error).__name__}: {shorten(str(error))}",
                "It should be a Jinja template, as Hugging Face's models bring one.",
            ) from None
    return template


def _special(folder: Path) -> dict[str, str]:
    """The special tokens that a tokenizer's files name, as templates see them."""
    found: dict[str, str] = {}
    for name in (SPECIAL_FILE, CONFIG_FILE):
        path = folder / name
        table = read_foreign_json(path, "a tokenizer's configuration") if path.is_file() else {}
        for key, value in table.items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                found[key] = text
    return found


def _renderer() -> Any:
    return _library().render_jinja_template


def _compiler() -> Any:
    return _library()._compile_jinja_template


def _library() -> Any:
    try:
        import jinja2  # noqa: F401
        from transformers.utils import chat_template_utils
    except ImportError:
        raise HeddleError(
            "The libraries 'transformers' and 'jinja2' are not both installed.",
            "Chat templates are written out by Hugging Face's own renderer.",
            f"Install them: {how_to_install('data')}.",
        ) from None
    return chat_template_utils


def samples_of(sample: Sample, template: ChatTemplate, learn: Learn, where: str) -> Iterator[WrittenChat | Plain]:
    """What a row gives to learn."""
    if isinstance(sample, Plain):
        yield sample
    else:
        yield from template.written(sample, learn, where)
