"""Conversations, adapters and preferences: their files, and the commands that read them."""

from __future__ import annotations

import json
from pathlib import Path

from .cases import Case
from .seeds import TRAINED, commanded
from .spread import MODERN

TUNED = """
[data]
chat = [{ path = "chats.jsonl", weight = 2.0 }, { path = "chats.csv" }]
template = "chatml"
pack = true
validation = 0.2

[train]
name = "tuned"
from = "base"
steps = 1
sequence = 160
global_batch = 8
optimizer = "adamw8bit"

[tune]
lora = { rank = 2, alpha = 4.0, targets = ["q", "v", "down"], dropout = 0.1 }
base = "nf4"
also = ["norm"]

[plan]
data = 1
microbatch = 8
"""
PREFERS = """
[data]
chat = "pairs.jsonl"
template = "chatml"

[train]
name = "prefers"
from = "base"
steps = 1
sequence = 160
global_batch = 4

[tune]
lora = { rank = 2 }

[preference]
beta = 0.2

[plan]
data = 1
microbatch = 4
"""
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{% generation %}{{ m['content'] }}{% endgeneration %}</>{% endfor %}"
)
SHORT = "--set train.runs=made --set train.steps=1 --set train.global_batch=8"  # a long run is no mistake
LOOK = "--tokenizer bytes --template chatml"
CASES = (
    Case(
        "chats.jsonl",
        "lines",
        (
            f"data look chats.jsonl {LOOK}",
            f"data look chats.jsonl {LOOK} --strict --learn each",
            f"data look chats.jsonl {LOOK} --learn last --sequence 16",
            "data prepare chats.jsonl -o made --chat --template chatml",
        ),
        torch=True,
        weight=3,
    ),
    Case("pairs.jsonl", "lines", (f"data look pairs.jsonl {LOOK} --learn preference --strict",), torch=True),
    Case("chats.parquet", "bytes", (f"data look chats.parquet {LOOK} --strict",), torch=True, weight=0.5),
    Case("chats.csv", "csv", (f"data look chats.csv {LOOK}", f"data look chats.csv {LOOK} --strict"), torch=True),
    Case("chats.json", "json", (f"data look chats.json {LOOK} --strict", f"data look chats.json {LOOK}"), torch=True),
    Case(
        "chat.jinja",
        "bytes",
        ("data look chats.jsonl --tokenizer bytes --template chat.jinja",),
        torch=True,
        weight=0.7,
    ),
    Case(
        "tuned.toml",
        "toml",
        (
            "simulate tuned.toml --json",
            "plan tuned.toml --explain --free --cluster cluster.toml --top 1",
            "train tuned.toml --dry-run --json",
            "launch tuned.toml --skypilot",
        ),
        torch=True,
        weight=1.5,
    ),
    Case("tuned.toml", "toml", (f"train tuned.toml {SHORT}",), torch=True, weight=0.15),
    Case("prefers.toml", "toml", ("simulate prefers.toml --json", "train prefers.toml --dry-run --json"), torch=True),
    Case(
        "adapter/adapter_config.json",
        "json",
        ("train adapter.toml --dry-run --json", "train adapter.toml --set train.runs=made"),
        torch=True,
        weight=0.7,
    ),
    Case(
        "adapter/adapter_model.safetensors",
        "bytes",
        ("train adapter.toml --set train.runs=made",),
        torch=True,
        weight=0.3,
    ),
    Case("hf/config.json", "json", ("evaluate hf corpus/1.txt --sequence 16 --json",), torch=True, weight=0.4),
    Case("corpus/1.txt", "bytes", ("evaluate hf corpus/1.txt --sequence 16 --json",), torch=True, weight=0.3),
    Case("chats.jsonl", "lines", ("evaluate base chats.jsonl --chat --sequence 128 --json",), torch=True, weight=0.4),
)


def write(folder: Path) -> None:
    """Their files."""
    said = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A heddle, naïve."}]
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "loom"}}}
    tool = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "threads"}]
    rows = [
        {"messages": [{"role": "system", "content": "Be brief."}, *said]},
        {"messages": [said[0], *tool, said[1]], "tools": [{"type": "function", "function": {"name": "look"}}]},
        {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]},
        {"instruction": "Add.", "input": "1 2", "output": "3", "history": [["Hello", "Hi"]]},
        {"prompt": "One, two,", "completion": " three"},
        {"prompt": said[:1], "completion": said[1:]},
        {"text": "All of it."},
        {"messages": [said[0] | {"weight": 0}, said[1] | {"reasoning_content": "Hm."}]},
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "chats.json").write_text(json.dumps(rows))
    pairs = [{"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."} for _ in range(6)]
    pairs.append({"chosen": said, "rejected": [said[0], said[1] | {"content": "A shoe."}]})
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    (folder / "chats.csv").write_text("instruction,output\n" + "".join(f"Say {n}.,{n}\n" for n in range(8)))
    (folder / "chat.jinja").write_text(TEMPLATE)
    (folder / "tuned.toml").write_text(TUNED)
    (folder / "prefers.toml").write_text(PREFERS)
    begin = TUNED.replace('lora = { rank = 2, alpha = 4.0, targets = ["q", "v", "down"], dropout = 0.1 }', "")
    (folder / "adapter.toml").write_text(
        begin.replace("[tune]\n", '[tune]\nadapter = "adapter"\n').replace('"tuned"', '"begun"')
    )


def write_trained(folder: Path) -> None:
    """Conversations in columns, and adapters as PEFT has them."""
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    rows = [json.loads(line) for line in (folder / "chats.jsonl").read_text().splitlines()]
    table = pyarrow.Table.from_pylist([{"messages": rows[0]["messages"]} for _ in range(6)])
    pyarrow.parquet.write_table(table, folder / "chats.parquet")
    (folder / "base.toml").write_text(TRAINED.replace("sequence = 32\n", "sequence = 160\n" + MODERN, 1))
    commanded(
        folder,
        ("train", "base.toml", "--set", "train.steps=1", "--name", "base"),
        ("export", "hf", "runs/base", "-o", "base", "--no-check"),
        ("train", "tuned.toml", "--set", "tune.also=[]"),
        ("export", "peft", "runs/tuned", "-o", "adapter"),
    )
    (folder / "base" / "chat_template.jinja").write_text(TEMPLATE)
