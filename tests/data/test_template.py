"""Conversations as tokens, and what is learned of them, against Hugging Face's own tokenizer and its masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heddle.data import has_samples, prepare
from heddle.data import samples_of as cut_into_samples
from heddle.data.chats import Chat, Plain, sample_of
from heddle.data.rows import PlacedRow, RowError
from heddle.data.template import ChatTemplate, encode, find_template, samples_of
from heddle.data.tokenizer import ByteTokenizer, load_tokenizer
from heddle.errors import HeddleError
from heddle.spec import Data
from heddle.spec.model import IGNORE
from tests.helpers.chat_templates import FAMILIES, tokenizer_folder, unmarked

transformers = pytest.importorskip("transformers")
pytest.importorskip("jinja2")

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2, "ä"]}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def said(*turns: str, system: str | None = None) -> dict:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"messages": ([{"role": "system", "content": system}] if system is not None else []) + messages}


CHATS = {
    "one": said("2+2?", "4"),
    "system": said("hello", "yes", "and the rest", "no no", system="You are the assistant."),
    "unicode": said("ä € 😀 \u200b", "日本語 — ñ\n\n  indented\ttab"),
    "empty turns": said("", "", " ", ""),
    "white space": said("  hello \n", " yes \n\n"),
    "special tokens in the text": said("say <|im_end|> and <s>", "<|im_start|>user\nno"),
    "long": said(*["the question " * 30, "the answer " * 40] * 3),
    "tools": {
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": "add"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "3"},
            {"role": "assistant", "content": "three"},
        ],
    },
    "thoughts": {
        "messages": [
            {"role": "user", "content": "why"},
            {"role": "assistant", "content": "because", "reasoning_content": "hmm\nlet me see"},
        ]
    },
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("tokenizers")
    return {name: tokenizer_folder(place / name, template) for name, template in FAMILIES.items()}


def ours(folder: Path, row: dict, learn: str = "assistant", text: str | None = None) -> list:
    template = find_template(None, Path(), folder, {})
    if text is not None:
        template = ChatTemplate(text, template.special)
    tokenizer = load_tokenizer(folder)
    sample = sample_of(PlacedRow("here, line 1", row))
    texts = [("here, line 1", each) for each in samples_of(sample, template, learn, "here, line 1")]
    return list(encode(texts, tokenizer))


def theirs(folder: Path, row: dict, **options: Any) -> tuple[list[int], list[int]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    made = tokenizer.apply_chat_template(
        row["messages"],
        tools=row.get("tools"),
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
        **options,
    )
    return made["input_ids"], made["assistant_masks"]


def fits(family: str, name: str) -> bool:
    """Whether a family's template takes a conversation at all."""
    return (family, name) not in {("gemma", "system"), ("thinking", "tools")}


PAIRS = [(family, name) for family in FAMILIES for name in CHATS if fits(family, name)]


@pytest.mark.parametrize(("family", "name"), PAIRS)
def test_tokens_and_masks_are_those_of_transformers(folders, family, name):
    (made,) = ours(folders[family], CHATS[name])
    ids, mask = theirs(folders[family], CHATS[name])
    assert made.ids.tolist() == ids
    assert made.learned.astype(int).tolist() == mask
    assert any(mask)


@pytest.mark.parametrize("sequence", [20, 150])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_cut_is_cut_as_transformers_cuts_it(folders, tmp_path, family, sequence):
    row = CHATS["long"]
    (tmp_path / "c.jsonl").write_text(json.dumps(row))
    data = Data(chat="c.jsonl", tokenizer=str(folders[family]), validation=0.0)
    documents = prepare(data, tmp_path, tmp_path / "out").train
    # a sample has the targets of its tokens, so that it reaches one token further
    ids, mask = theirs(folders[family], row, truncation=True, max_length=sequence + 1)
    assert has_samples(documents, sequence) == any(mask[1:])
    if any(mask[1:]):
        tokens, targets = cut_into_samples(documents, sequence, 0).batch(0, 1)
        assert tokens[0].tolist() == ids[:-1]
        assert targets[0].tolist() == [
            one if learned else IGNORE for one, learned in zip(ids[1:], mask[1:], strict=True)
        ]


@pytest.mark.parametrize(("family", "name"), [pair for pair in PAIRS if pair[0] != "thinking"])
def test_without_marks_the_same_is_found_by_rendering_prefixes(folders, family, name):
    text = unmarked(FAMILIES[family])
    assert "generation %}" not in text
    (made,) = ours(folders[family], CHATS[name], text=text)
    ids, mask = theirs(folders[family], CHATS[name])
    assert made.ids.tolist() == ids
    assert made.learned.astype(int).tolist() == mask


def test_a_template_that_changes_earlier_turns_is_not_guessed_at(folders):
    row = said("a", "b", "c", "d")
    with pytest.raises(RowError) as error:
        ours(folders["thinking"], row, text=unmarked(FAMILIES["thinking"]))
    assert error.value.what == "here, line 1: what the assistant wrote cannot be told for sure."
    assert "message 2 otherwise when more messages follow" in error.value.why
    assert 'learn = "each"' in error.value.hint


def test_each_answer_can_be_a_sample_of_its_own_as_when_it_is_generated(folders):
    row, text = said("a", "b", "c", "d"), unmarked(FAMILIES["thinking"])
    made = ours(folders["thinking"], row, learn="each", text=text)
    tokenizer = load_tokenizer(folders["thinking"])
    assert [tokenizer.decode(each.ids[each.learned]) for each in made] == [
        "<think></think>b<|im_end|>\n",
        "<think></think>d<|im_end|>\n",
    ]
    assert tokenizer.decode(made[1].ids) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
        "<|im_start|>assistant\n<think></think>d<|im_end|>\n"
    )
    (last,) = ours(folders["thinking"], row, learn="last", text=text)
    assert last.ids.tolist() == made[1].ids.tolist()
    (everything,) = ours(folders["chatml"], row, learn="all")
    assert everything.learned.all()


@pytest.mark.parametrize("marked", [True, False])
def test_messages_of_no_weight_are_not_learned(folders, marked):
    row = said("a", "first", "c", "second")
    row["messages"][1]["weight"] = 0
    (made,) = ours(folders["chatml"], row, text=FAMILIES["chatml"] if marked else unmarked(FAMILIES["chatml"]))
    assert load_tokenizer(folders["chatml"]).decode(made.ids[made.learned]) == "second<|im_end|>\n"


def test_marks_without_a_character_are_an_error(folders):
    empty = "{% for m in messages %}{{ m.content }}{% generation %}{% endgeneration %}{% endfor %}"
    with pytest.raises(RowError, match="cannot be told for sure"):
        ours(folders["chatml"], said("a", "b"), text=empty)


def test_a_token_across_the_border_is_an_error(folders):
    """The tokenizer joins the template's "s" with the answer's "ays"; neither is learned by half."""
    text = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}{{ m.content }}"
    text += "{% endgeneration %}{% endif %}{% endfor %}"
    (made,) = ours(folders["chatml"], said("the us", "er says"), text=text)
    assert isinstance(made, RowError)
    assert "half the assistant's" in made.what


@pytest.mark.parametrize("marked", [True, False])
def test_an_answer_that_begins_with_white_space_is_learned_whole(tmp_path, marked):
    """Where a tokenizer tells places without white space, transformers loses the first turn's mask: ours does not."""
    text = FAMILIES["phi"] if marked else unmarked(FAMILIES["phi"])
    row = said("  hello \n", " yes \n\n", "and", "no")
    (plain,) = ours(tokenizer_folder(tmp_path / "plain", None), row, text=text)
    (made,) = ours(tokenizer_folder(tmp_path / "trimmed", None, trimmed=True), row, text=text)
    assert made.ids.tolist() == plain.ids.tolist()
    assert made.learned.tolist() == plain.learned.tolist()


def test_what_a_template_raises_names_the_row(folders):
    with pytest.raises(RowError, match="System role not supported"):
        ours(folders["gemma"], CHATS["system"])


def test_a_completion_goes_on_from_its_prompt_and_ends(folders):
    tokenizer = load_tokenizer(folders["chatml"])
    (made,) = ours(folders["chatml"], {"prompt": "the us", "completion": "er"})
    given, answer = tokenizer.encode("the us"), tokenizer.encode("er")
    assert made.ids.tolist() == [*given, *answer, tokenizer.end]
    assert made.learned.tolist() == [False] * len(given) + [True] * (len(answer) + 1)


def test_bytes_have_places_too():
    chat = Chat([{"role": "user", "content": "ä"}, {"role": "assistant", "content": "€ ok"}], (True, True))
    template = find_template("chatml", Path(), None, {})
    text = next(template.written(chat, "assistant", "x"))
    (made,) = encode([("x", text)], ByteTokenizer())
    assert ByteTokenizer().decode(made.ids[made.learned]) == "€ ok<|im_end|>\n"
    assert len(ByteTokenizer().encode_with_ends(["a<|endoftext|>b"])[0][1]) == 3


def test_a_template_that_is_none_is_said_before_any_row(tmp_path, folders):
    (tmp_path / "bad.jinja").write_text("{% for %}")
    with pytest.raises(HeddleError, match="is not one"):
        find_template("bad.jinja", tmp_path, folders["chatml"], {})
    with pytest.raises(HeddleError, match="There is no chat template"):
        find_template("gone.jinja", tmp_path, folders["chatml"], {})


def test_a_template_in_the_configuration_is_found(tmp_path):
    folder = tokenizer_folder(tmp_path / "a", None)
    assert find_template(None, Path(), folder, {}).text is None
    with pytest.raises(HeddleError, match="has no chat template"):
        ours(folder, CHATS["one"])
    (folder / "tokenizer_config.json").write_text('{"chat_template": [{"name": "default", "template": "x"}]}')
    assert find_template(None, Path(), folder, {}).text == "x"


def test_options_reach_the_template(folders):
    template = ChatTemplate(
        "{{ messages[0].content }}{{ 'on' if enable_thinking else 'off' }}", {}, {"enable_thinking": True}
    )
    assert template.write([{"role": "user", "content": "x"}])[0] == "xon"


def test_masks_of_random_conversations_are_those_of_transformers(folders):
    rng = np.random.default_rng(0)
    letters = [*"ab \n.é😀<|>{}%", "user", "assistant", "<|im_end|>", "<|im_start|>"]
    for _ in range(30):
        turns = ["".join(rng.choice(letters, rng.integers(0, 12))) for _ in range(2 * rng.integers(1, 4))]
        family = str(rng.choice(["chatml", "phi"]))
        row = said(*turns)
        for text in (FAMILIES[family], unmarked(FAMILIES[family])):
            (made,) = ours(folders[family], row, text=text)
            ids, mask = theirs(folders[family], row)
            assert made.ids.tolist() == ids
            assert made.learned.astype(int).tolist() == mask


def test_plain_text_needs_no_template():
    (made,) = encode([("x", Plain("", "ab"))], ByteTokenizer())
    assert made.ids.tolist() == [97, 98, 256]
    assert made.learned.all()
