"""Rows of every shape, and every way in which they can be wrong: the row and the reason are named, nothing else."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from heddle.data import prepare, prepared_for
from heddle.data.chats import Chat, Plain, sample_of
from heddle.data.rows import PlacedRow, RowError, RowsRead, find_rows
from heddle.errors import HeddleError
from heddle.spec import ChatSource, Data
from tests.helpers.chat_templates import FAMILIES, tokenizer_folder, unmarked

pytest.importorskip("transformers")

GOOD = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
USER, ANSWER = GOOD["messages"]


def sample(row: dict, key: str | None = None):
    return sample_of(PlacedRow("f.jsonl, line 1", row), key)


def roles(chat: Chat) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in chat.messages]


def test_every_shape_is_the_same_conversation():
    asked = [("user", "2+2?"), ("assistant", "4")]
    turns = [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]
    for row in (
        GOOD,
        {"conversations": turns},
        {"conversation": turns},
        {"messages": turns},
        {"conversations": GOOD["messages"]},
        {"instruction": "2+2?", "output": "4"},
        {"instruction": "2+2?", "input": "", "output": "4", "history": []},
        {"messages": json.dumps(GOOD["messages"])},
        {"prompt": [USER], "completion": [ANSWER]},
        {"text": "as text", **GOOD},
        {"chosen": GOOD["messages"], "rejected": [], "messages": None, "tools": None} | GOOD,
    ):
        assert roles(sample(row)) == asked, row
    assert sample({"prompt": "a", "completion": "b"}) == Plain("a", "b")
    assert sample({"text": "a"}) == Plain("", "a")
    assert sample({"body": "a"}, "body") == Plain("", "a")
    assert roles(sample({"talk": GOOD["messages"]}, "talk")) == asked
    assert roles(sample({"talk": turns}, "talk")) == asked


def test_alpaca_joins_instruction_and_input_and_keeps_history():
    chat = sample({"instruction": "Add", "input": "1 2", "output": "3", "system": "s", "history": [["a", "b"]]})
    assert roles(chat) == [
        ("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "Add\n\n1 2"), ("assistant", "3"),
    ]  # fmt: skip


def test_of_prompt_and_completion_only_the_completion_is_learned():
    chat = sample({"prompt": [USER, ANSWER, USER], "completion": [ANSWER]})
    assert chat.learned == (False, False, False, True)


def test_calls_and_answers_of_tools_are_kept():
    chat = sample(
        {
            "tools": '[{"type": "function", "function": {"name": "f"}}]',
            "conversations": [
                {"from": "human", "value": "go"},
                {"from": "function_call", "value": '{"name": "f", "arguments": "{\\"a\\": 1}"}'},
                {"from": "observation", "value": "3"},
                {"from": "gpt", "value": "three"},
            ],
        }
    )
    assert chat.tools == [{"type": "function", "function": {"name": "f"}}]
    assert chat.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert [message["role"] for message in chat.messages] == ["user", "assistant", "tool", "assistant"]


def test_halves_of_characters_are_replaced_as_in_other_text():
    chat = sample({"messages": [{"role": "user", "content": "a\ud800"}, ANSWER]})
    assert chat.messages[0]["content"] == "a\ufffd"


def with_message(**message: object) -> dict:
    return {"messages": [USER, ANSWER, USER, {"role": "assistant", "content": "x"} | message]}


# what is wrong: the row, and words of the answer
BAD_ROWS: dict[str, tuple[object, str]] = {
    "nothing known": ({"question": "a", "answer": "b"}, "of no known shape"),
    "empty object": ({}, "of no known shape"),
    "messages empty": ({"messages": []}, "'messages' is empty"),
    "messages no list": ({"messages": "hello"}, "'messages' is not a list"),
    "messages a number": ({"messages": 7}, "'messages' is not a list"),
    "message no object": ({"messages": ["hello"]}, "message 1 is not an object"),
    "no role": ({"messages": [{"content": "x"}]}, "message 1 has no role"),
    "role unknown": ({"messages": [{"role": "usr", "content": "x"}, ANSWER]}, "Did you mean 'user'"),
    "role no text": ({"messages": [{"role": 3, "content": "x"}, ANSWER]}, "has the role 3"),
    "role repeats": ({"messages": [USER, USER, ANSWER]}, "message 2 is the user's again"),
    "assistant repeats": ({"messages": [USER, ANSWER, ANSWER]}, "message 3 is the assistant's again"),
    "system late": ({"messages": [USER, {"role": "system", "content": "s"}, ANSWER]}, "Only the first message"),
    "no assistant": ({"messages": [USER]}, "no message of the assistant"),
    "no content": (with_message(content=None), "message 4 has no content"),
    "content a number": (with_message(content=4), "the content is not text"),
    "content an image": (with_message(content=[{"type": "image", "url": "x"}]), "a part that is not text"),
    "part without text": (with_message(content=[{"type": "text"}]), "a part that is not text"),
    "weight of a half": (with_message(weight=0.5), "weight 0.5"),
    "tool out of nowhere": ({"messages": [{"role": "tool", "content": "3"}, ANSWER]}, "Nobody has called one"),
    "tool calls no list": (with_message(tool_calls={"name": "f"}), "tool_calls is no list"),
    "user calls tools": ({"messages": [USER | {"tool_calls": [{}]}, ANSWER]}, "the user calls tools"),
    "tools no list": (GOOD | {"tools": "add"}, "tools is no list"),
    "thinking no text": (with_message(reasoning_content=["x"]), "reasoning_content is not text"),
    "speaker unknown": ({"conversations": [{"from": "alien", "value": "x"}]}, "is from 'alien'"),
    "turn without value": ({"conversations": [{"from": "human"}]}, "turn 1 lacks 'from' or 'value'"),
    "value a number": ({"conversations": [{"from": "human", "value": 3}]}, "the content is not text"),
    "function call no JSON": (
        {"conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "f(1)"}]},
        "no call of a function",
    ),
    "prompt alone": ({"prompt": "a"}, "no completion"),
    "prompt a number": ({"prompt": 1, "completion": "b"}, "'prompt' is not text"),
    "completion a list": ({"prompt": "a", "completion": ["b"]}, "'completion' is not text"),
    "completion empty": ({"prompt": "a", "completion": ""}, "an empty completion"),
    "instruction alone": ({"instruction": "a"}, "no output"),
    "output a number": ({"instruction": "a", "output": 3}, "'output' is not text"),
    "history no pairs": ({"instruction": "a", "output": "b", "history": ["x"]}, "is no pair"),
    "text a number": ({"text": 3}, "'text' is not text"),
    "preferences": ({"chosen": [ANSWER], "rejected": [ANSWER]}, "data for preferences"),
    "a list": ([1, 2], "is not a JSON object"),
    "a number": (3, "is not a JSON object"),
    "nothing": (None, "is not a JSON object"),
    "assistant first": ({"messages": [ANSWER, USER, ANSWER]}, "has nothing before it"),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return tokenizer_folder(tmp_path_factory.mktemp("tokenizer"), unmarked(FAMILIES["chatml"]))


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_named_and_can_be_skipped(tmp_path, tokenizer, name):
    row, words = BAD_ROWS[name]
    write(tmp_path / "c.jsonl", GOOD, row, GOOD, GOOD)
    given = {"chat": "c.jsonl", "tokenizer": str(tokenizer), "validation": 0.0}
    with pytest.raises(HeddleError) as error:
        prepare(Data(**given), tmp_path, tmp_path / "out")
    assert error.value.what.startswith("c.jsonl, line 2")
    assert words in str(error.value)
    assert error.value.why
    assert error.value.hint
    assert not (tmp_path / "out").exists()
    made = prepare(Data(**given, bad_rows="skip"), tmp_path, tmp_path / "out")
    assert made.meta.train.documents == 3
    assert sum(made.meta.chat.skipped.values()) == 1


def test_all_answers_without_weight_leave_nothing_to_learn_which_is_counted(tmp_path, tokenizer):
    silent = {"messages": [USER, ANSWER | {"weight": 0}]}
    write(tmp_path / "c.jsonl", GOOD, silent, GOOD)
    made = prepare(Data(chat="c.jsonl", tokenizer=str(tokenizer), validation=0.0), tmp_path, tmp_path / "out")
    assert made.meta.chat.skipped == {"nothing to learn": 1}
    write(tmp_path / "d.jsonl", silent)
    with pytest.raises(HeddleError, match="There is nothing to learn"):
        prepare(Data(chat="d.jsonl", tokenizer=str(tokenizer)), tmp_path, tmp_path / "other")


BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("c.jsonl", b"", "has no rows"),
    "empty JSON": ("c.json", b" \n", "has no rows"),
    "empty CSV": ("c.csv", b"", "has no rows"),
    "empty Parquet": ("c.parquet", b"", "has no rows"),
    "no Parquet": ("c.parquet", b"PAR1 and then nothing", "not a Parquet file"),
    "broken JSON in line 7": ("c.jsonl", b"\n".join([b'{"text": "a"}'] * 6 + [b'{"text": "a'] + [b"{}"] * 3), "line 7"),
    "not UTF-8": ("c.jsonl", b'{"text": "\xff"}', "is not UTF-8"),
    "CSV not UTF-8": ("c.csv", b"text\n\xff\xfe\n", "is not UTF-8"),
    "JSON of no list": ("c.json", b"3", "not a list of rows"),
    "JSON with two lists": ("c.json", b'{"a": [], "b": []}', "not a list of rows"),
    "JSON broken": ("c.json", b"[{]", "not valid JSON"),
    "deep": ("c.jsonl", b"[" * 100_000, "not valid JSON"),
    "CSV of other widths": ("c.csv", b"prompt,completion\na,b\nc\n", "row 2 (line 3) has 1 cells"),
    "CSV without header": ("c.csv", b"a,a\nb,c\n", "no proper header"),
    "CSV with a quote too many": ("c.csv", b'text\n"a"b\n', "not proper CSV"),
    "not packed": ("c.jsonl.gz", b"{}", "cannot be read"),
    "packed and cut": ("c.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99)[:-9], "cannot be read"),
    "packed and damaged": ("c.jsonl.gz", gzip.compress(b"")[:10] + b"\xff" * 30, "cannot be read"),
    "an ending that nobody knows": ("c.xlsx", b"PK", "no kind that holds rows"),
    "no ending": ("chats", b"{}", "no kind that holds rows"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named(tmp_path, tokenizer, name):
    if "parquet" in name.lower():
        pytest.importorskip("pyarrow")
    file, content, words = BAD_FILES[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(HeddleError) as error:
        prepare(Data(chat=file, tokenizer=str(tokenizer)), tmp_path, tmp_path / "out")
    assert words in str(error.value)
    assert file in error.value.what
    assert error.value.hint


def test_a_line_without_end_is_not_read_into_memory(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("heddle.data.rows.LONGEST_LINE", 1000)
    (tmp_path / "c.jsonl").write_text(json.dumps(GOOD) + "\n" + "x" * 5000 + "\n" + json.dumps(GOOD) + "\n")
    given = {"chat": "c.jsonl", "tokenizer": str(tokenizer), "validation": 0.0}
    with pytest.raises(RowError, match="line 2 has more than 1,000 bytes"):
        prepare(Data(**given), tmp_path, tmp_path / "out")
    made = prepare(Data(**given, bad_rows="skip"), tmp_path, tmp_path / "out")
    assert made.meta.train.documents == 2


def test_missing_files_and_names_are_said(tmp_path):
    with pytest.raises(HeddleError, match="No file matches"):
        find_rows(("gone.jsonl",), tmp_path)
    with pytest.raises(HeddleError, match="beside other files"):
        find_rows(("datasets:a", "b.jsonl"), tmp_path)


def test_every_kind_of_file_gives_the_same_tokens(tmp_path, tokenizer):
    rows = [{"prompt": f"{i} + {i}", "completion": f"= {2 * i}, ä\n“quoted”"} for i in range(20)]
    write(tmp_path / "a.jsonl", *rows)
    (tmp_path / "b.json").write_text(json.dumps(rows))
    with (tmp_path / "c.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["prompt", "completion"])
        writer.writeheader()
        writer.writerows(rows)
    with gzip.open(tmp_path / "e.jsonl.gz", "wt") as file:
        file.write((tmp_path / "a.jsonl").read_text())
    names = ["a.jsonl", "b.json", "c.csv", "e.jsonl.gz"]
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
        names.append("d.parquet")
    except ImportError:
        pass
    sums = set()
    for name in names:
        data = Data(chat=name, tokenizer=str(tokenizer), validation=0.1)
        made = prepare(data, tmp_path, tmp_path / f"{name}.out")
        sums.add((made.meta.train.sha256, made.meta.chat.train.sha256, made.meta.validation.sha256))
    assert len(sums) == 1


def test_messages_in_parquet_and_in_a_dataset(tmp_path, tokenizer):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    rows = [{"messages": [USER, {"role": "assistant", "content": str(i)}]} for i in range(9)]
    (tmp_path / "set").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "set" / "d.parquet")
    write(tmp_path / "a.jsonl", *rows)
    given = {"tokenizer": str(tokenizer), "validation": 0.0}
    plain = prepare(Data(chat="a.jsonl", **given), tmp_path, tmp_path / "1")
    made = prepare(Data(chat="set/d.parquet", **given), tmp_path, tmp_path / "2")
    assert made.meta.train.sha256 == plain.meta.train.sha256
    pyarrow.parquet.write_table(pyarrow.table({"text": [1, 2]}), tmp_path / "wrong.parquet")
    with pytest.raises(HeddleError, match=r"wrong.parquet, row 1: 'text' is not text"):
        prepare(Data(chat="wrong.parquet", **given), tmp_path, tmp_path / "3")
    pytest.importorskip("datasets")
    made = prepare(Data(chat=f"datasets:{tmp_path / 'set'}", **given), tmp_path, tmp_path / "4")
    assert made.meta.train.sha256 == plain.meta.train.sha256
    with pytest.raises(HeddleError, match="cannot be read"):
        prepare(Data(chat=f"datasets:{tmp_path / 'gone'}", **given), tmp_path, tmp_path / "5")


def test_a_row_of_parquet_that_python_cannot_hold_is_named_and_can_be_left_out(tmp_path, tokenizer):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    days = pyarrow.array([1, 2**30, 3], pyarrow.date32())  # the second is after the year 9999
    table = pyarrow.table({"text": ["a", "b", "c"], "day": days})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    given = {"chat": "d.parquet", "tokenizer": str(tokenizer), "validation": 0.0}
    with pytest.raises(RowError, match=r"d.parquet, row 2 has a value that Python cannot hold"):
        prepare(Data(**given), tmp_path, tmp_path / "out")
    made = prepare(Data(**given, bad_rows="skip"), tmp_path, tmp_path / "out")
    assert made.meta.train.documents == 2


def test_what_is_held_out_is_validated_on(tmp_path, tokenizer):
    write(tmp_path / "a.jsonl", *[GOOD] * 10)
    write(tmp_path / "b.jsonl", *[{"prompt": "x", "completion": "y"}] * 3)
    data = Data(chat="a.jsonl", held_out="b.jsonl", tokenizer=str(tokenizer))
    made = prepare(data, tmp_path, tmp_path / "out")
    assert (made.meta.train.documents, made.meta.validation.documents) == (10, 3)
    share = prepare(Data(chat="a.jsonl", tokenizer=str(tokenizer), validation=0.3), tmp_path, tmp_path / "share")
    assert (share.meta.train.documents, share.meta.validation.documents) == (7, 3)


def test_tokens_are_kept_until_something_changes_them(tmp_path, tokenizer):
    write(tmp_path / "a.jsonl", *[GOOD] * 10)
    data = Data(chat="a.jsonl", tokenizer=str(tokenizer))
    first = prepared_for(data, tmp_path)
    assert prepared_for(data, tmp_path).folder == first.folder
    for change in ({"learn": "all"}, {"template": "chatml"}, {"template_options": {"x": 1}}, {"validation": 0.5}):
        assert prepared_for(Data(chat="a.jsonl", tokenizer=str(tokenizer), **change), tmp_path).folder != first.folder
    assert prepared_for(Data(chat="a.jsonl", tokenizer=str(tokenizer), pack=True), tmp_path).folder == first.folder
    assert (first.folder / "chat_template.jinja").read_text() == unmarked(FAMILIES["chatml"])


def test_damage_is_found(tmp_path, tokenizer):
    write(tmp_path / "a.jsonl", *[GOOD] * 10)
    made = prepare(Data(chat="a.jsonl", tokenizer=str(tokenizer)), tmp_path, tmp_path / "out")
    learned = made.folder / "train.learned"
    whole = learned.read_bytes()
    learned.write_bytes(bytes([1 - whole[0]]) + whole[1:])
    with pytest.raises(HeddleError, match="damaged"):
        prepared_for(Data(tokens="out"), tmp_path)
    learned.write_bytes(whole[1:])
    with pytest.raises(HeddleError, match="not as long"):
        prepared_for(Data(tokens="out"), tmp_path)
    learned.unlink()
    with pytest.raises(HeddleError, match="missing"):
        prepared_for(Data(tokens="out"), tmp_path)


def test_a_mixture_keeps_each_source_apart(tmp_path, tokenizer):
    write(tmp_path / "a.jsonl", *[GOOD] * 6)
    write(tmp_path / "b.jsonl", *[{"talk": "text of its own"}] * 3)
    sources = (ChatSource(path="a.jsonl", weight=2.0), ChatSource(path="b.jsonl", key="talk"))
    made = prepared_for(Data(chat=sources, tokenizer=str(tokenizer), validation=0.0), tmp_path)
    assert made.meta.train.documents == 9
    samples = made.train.samples(32, 0)
    ids, _ = samples.batch(0, 6)
    texts = [made.tokenizer.decode(row).split("<|endoftext|>")[0] for row in ids]
    assert sum(text == "text of its own" for text in texts) == 2


def test_a_line_without_end_is_not_left_out_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("heddle.data.rows.LONGEST_LINE", 1 << 10)
    monkeypatch.setattr("heddle.data.rows.LONGEST_SKIPPED", 1 << 20)
    path = tmp_path / "endless.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: nothing is written
    rows = find_rows((str(path),), tmp_path)
    with pytest.raises(HeddleError, match=r"line 1 has more than"):
        list(rows.rows(RowsRead(), lambda _: None))
