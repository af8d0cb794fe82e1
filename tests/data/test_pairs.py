"""Rows of preferences: every shape, every way in which they can be wrong, and the samples that are made of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from heddle.data import prepare, prepared_for, samples_of
from heddle.data.chats import Chat, Plain
from heddle.data.documents import Documents
from heddle.data.look import look
from heddle.data.pairs import pair_of
from heddle.data.rows import PlacedRow, RowError
from heddle.errors import HeddleError
from heddle.spec import Data
from tests.helpers.chat_templates import FAMILIES, tokenizer_folder, unmarked

pytest.importorskip("transformers")

USER = {"role": "user", "content": "2+2?"}
GOOD, BAD = {"role": "assistant", "content": "4"}, {"role": "assistant", "content": "5"}


def pair(row: dict):
    return pair_of(PlacedRow("f.jsonl, line 1", row))


def test_texts_are_a_prompt_and_two_answers():
    assert pair({"prompt": "2+2=", "chosen": "4", "rejected": "5"}) == (Plain("2+2=", "4"), Plain("2+2=", "5"))


def test_without_a_prompt_it_is_what_both_begin_with():
    """As TRL's extract_prompt does it: a space before the first difference belongs to the answers."""
    found = pair({"chosen": "Q: 2+2? A: four", "rejected": "Q: 2+2? A: five"})
    assert found == (Plain("Q: 2+2? A: f", "our"), Plain("Q: 2+2? A: f", "ive"))
    found = pair({"chosen": "The sky is blue.", "rejected": "The sky is green."})
    assert found == (Plain("The sky is", " blue."), Plain("The sky is", " green."))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [USER], "chosen": "4", "rejected": "5"},
        {"prompt": [USER], "chosen": GOOD, "rejected": BAD},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": "2+2?", "chosen": [USER, GOOD], "rejected": [USER, BAD]},  # as UltraFeedback has it
        {"prompt": "2+2?", "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": json.dumps([USER]), "chosen": json.dumps([GOOD]), "rejected": json.dumps([BAD])},
    ],
)
def test_every_shape_of_messages_is_the_same_pair(row):
    found = pair(row)
    for chat, answer in zip(found, (GOOD, BAD), strict=True):
        assert isinstance(chat, Chat)
        assert chat.messages == [USER, answer]
        assert chat.learned == (False, True)


def test_of_a_longer_conversation_only_what_differs_is_learned():
    start = [USER, GOOD, {"role": "user", "content": "and 3+3?"}]
    six, seven = {"role": "assistant", "content": "6"}, {"role": "assistant", "content": "7"}
    found = pair({"chosen": [*start, six], "rejected": [*start, seven]})
    assert found.chosen.learned == found.rejected.learned == (False, False, False, True)


BAD_ROWS: dict[str, tuple[object, str]] = {
    "no chosen": ({"prompt": "a", "rejected": "b"}, "has no 'chosen'"),
    "no rejected": ({"prompt": "a", "chosen": "b"}, "has no 'rejected'"),
    "nothing": ({}, "has no 'chosen'"),
    "chosen is null": ({"prompt": "a", "chosen": None, "rejected": "b"}, "has no 'chosen'"),
    "the same": ({"prompt": "a", "chosen": "b", "rejected": "b"}, "are the same"),
    "the same messages": ({"prompt": [USER], "chosen": [GOOD], "rejected": [GOOD]}, "are the same"),
    "text and messages": ({"prompt": "a", "chosen": "b", "rejected": [BAD]}, "one of chosen and rejected is text"),
    "a number": ({"prompt": "a", "chosen": 4, "rejected": 5}, "'chosen' is not a list"),
    "prompt a number": ({"prompt": 3, "chosen": "b", "rejected": "c"}, "'prompt' is not text"),
    "chosen empty": ({"prompt": "a", "chosen": "", "rejected": "c"}, "'chosen' is empty"),
    "rejected begins chosen": ({"chosen": "The sky is blue", "rejected": "The sky is"}, "'rejected' is empty"),
    "empty list": ({"prompt": [USER], "chosen": [], "rejected": [BAD]}, "'chosen' is empty"),
    "prompt an empty list": ({"prompt": [], "chosen": [GOOD], "rejected": [BAD]}, "'prompt' is empty"),
    "nothing in common": ({"chosen": [USER, GOOD], "rejected": [GOOD, USER]}, "do not begin alike"),
    "one ends early": ({"chosen": [USER, GOOD], "rejected": [USER]}, "only the beginning of the other"),
    "user answers": (
        {"prompt": [USER, GOOD], "chosen": [USER | {"role": None}, GOOD], "rejected": [BAD]},
        "has no role",
    ),
    "answers by users": (
        {"chosen": [USER, GOOD, USER], "rejected": [USER, GOOD, USER | {"content": "x"}]},
        "assistant's",
    ),
    "role unknown": ({"prompt": [{"role": "usr", "content": "x"}], "chosen": [GOOD], "rejected": [BAD]}, "'usr'"),
    "message no object": ({"prompt": ["hello"], "chosen": [GOOD], "rejected": [BAD]}, "not an object"),
    "assistant twice": ({"prompt": [USER, GOOD], "chosen": [GOOD], "rejected": [BAD]}, "the assistant's again"),
    "content a number": ({"prompt": [USER], "chosen": [GOOD | {"content": 4}], "rejected": [BAD]}, "not text"),
    "a list": ([1], "is not a JSON object"),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return tokenizer_folder(tmp_path_factory.mktemp("tokenizer"), unmarked(FAMILIES["chatml"]))


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FINE = {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_named_and_nothing_else(tmp_path, tokenizer, name):
    row, words = BAD_ROWS[name]
    data = Data(chat=str(write(tmp_path / "p.jsonl", FINE, row, FINE)), tokenizer=str(tokenizer), learn="preference")
    with pytest.raises(RowError) as caught:
        prepare(data, Path(), tmp_path / "out")
    assert "p.jsonl, line 2" in caught.value.what
    assert words in str(caught.value)
    skipping = Data(**{**vars(data), "bad_rows": "skip", "validation": 0.0})
    made = prepare(skipping, Path(), tmp_path / "out")
    assert made.meta.chat.rows >= 2
    assert sum(made.meta.chat.skipped.values()) == 1
    assert made.meta.train.documents == 4


def test_pairs_stay_together_in_every_split(tmp_path, tokenizer):
    rows = [
        {"prompt": [USER], "chosen": [GOOD | {"content": "4" * i}], "rejected": [BAD | {"content": "5" * (20 - i)}]}
        for i in range(1, 20)
    ]
    data = Data(
        chat=str(write(tmp_path / "p.jsonl", *rows)), tokenizer=str(tokenizer), learn="preference", validation=0.3
    )
    made = prepare(data, Path(), tmp_path / "out")
    assert made.meta.train.documents + made.meta.validation.documents == 38
    assert made.meta.validation.documents > 4
    for part in (made.train, made.validation):
        assert part.pairs
        for number, start in enumerate(part.starts[:-1]):
            text = made.tokenizer.decode(part.tokens[start : part.starts[number + 1]].tolist())
            assert ("5" in text, "4" in text) == ((False, True), (True, False))[number % 2]


def test_a_sample_holds_both_answers_and_counts_one_pair():
    lengths = [4, 6, 3, 3, 20, 5, 2, 2]
    tokens = np.arange(sum(lengths))
    learned = np.ones(len(tokens), np.uint8)
    learned[sum(lengths[:6]) :] = 0  # of the last pair nothing is learned
    documents = Documents(tokens, learned, np.array(lengths), end=0, pairs=True)
    samples = samples_of(documents, 16, seed=3)
    assert samples.count == 3  # the last pair is left out
    found = {tuple(each) for each in samples.lengths_of(range(3))}
    assert found == {(3, 5), (2, 2), (8, 4)}  # a pair that does not fit has half of a sample for each
    assert samples.usable.cut == 1
    assert samples.targets(0, 3) == 3
    ids, targets = samples.batch(0, 3)
    for row, own in zip(range(3), samples.lengths_of(range(3)), strict=True):
        start, stop = 0, own[0]
        assert (np.diff(ids[row, start:stop]) == 1).all()
        assert ids[row, stop] - ids[row, stop - 1] != 1 or own == [8, 4]  # another document begins there
        assert (targets[row, : sum(own)] == ids[row, : sum(own)] + 1).all()
    packed = samples_of(Documents(tokens, learned, np.array(lengths), end=0, pack=True, pairs=True), 16, seed=3)
    assert packed.count == 2
    assert sorted(map(len, packed.lengths_of(range(2)))) == [2, 4]
    assert packed.targets(0, 2) == 3


def test_what_is_learned_can_be_looked_at(tmp_path, tokenizer):
    data = Data(chat=str(write(tmp_path / "p.jsonl", FINE)), tokenizer=str(tokenizer), learn="preference")
    (looked,) = look(data, Path())
    assert [run.text for sample in looked.samples for run in sample.runs if run.learned] == [
        "4<|im_end|>\n",
        "5<|im_end|>\n",
    ]


def test_a_folder_of_pairs_knows_that_it_is_one(tmp_path, tokenizer):
    data = Data(chat=str(write(tmp_path / "p.jsonl", FINE, FINE)), tokenizer=str(tokenizer), learn="preference")
    prepare(data, Path(), tmp_path / "out")
    assert prepared_for(Data(tokens=str(tmp_path / "out"))).train.pairs
    about = json.loads((tmp_path / "out" / "data.json").read_text())
    about["train"]["documents"] -= 1
    lengths = tmp_path / "out" / "train.lengths"
    both = np.fromfile(lengths, "<u4")
    np.array([both[0] + both[1], *both[2:]], "<u4").tofile(lengths)
    (tmp_path / "out" / "data.json").write_text(json.dumps(about))
    with pytest.raises(HeddleError, match="come in pairs"):
        prepared_for(Data(tokens=str(tmp_path / "out"), verify=False))
