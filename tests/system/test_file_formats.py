"""docs/reference/file-formats.md names the keys that are really written."""

import json
import re

import pytest

from heddle.spec.job import TABLES
from tests.helpers.commands import REPOSITORY, call, write_job, write_named_blocks
from tests.helpers.manual import DOCS, quoted, section, tables

PAGE = DOCS / "reference/file-formats.md"
EXAMPLES = REPOSITORY / "examples"
ONE = """
[model]
preset = "gpt2"
[data]
text = "corpus/*.txt"
[cluster]
preset = "dgx-a100-80gb"
[plan]
data = 8
"""
ROWS = """id,step_s,layers,hidden,heads,vocab,seq,gbs,mbs,tp,pp,dp,gpu,n_gpus,precision,attn,recompute
a,0.62,24,2048,16,50304,1024,64,8,1,1,8,A100-80GB,8,bf16,flash,none
b,1.21,24,2048,16,50304,1024,128,8,1,1,8,A100-80GB,8,bf16,flash,none
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a small job was trained and traced, beside a job for a cluster and measured rows."""
    folder = tmp_path_factory.mktemp("formats")
    write_job(folder)
    write_named_blocks(DOCS / "start/concepts.md", folder)
    (folder / "one.toml").write_text(ONE)
    (folder / "rows.csv").write_text(ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call("train", "job.toml", "--trace") == 0
        assert call("trace", "runs/small", "-o", "trace.json") == 0
        assert call("place", EXAMPLES / "operators.json", "-o", "placed.json") == 0
    return folder


def at(found, path):
    """What lies at a path of names; of a list, its first entry."""
    for name in path.split("."):
        found = found[name] if name else found
        found = found[0] if isinstance(found, list) else found
    return found


PIPER = ["piper", EXAMPLES / "layers.json", "--devices", 4, "--memory-gib", 4]
COMMANDS = {
    "heddle plan": ["plan", "weave.toml", "--free"],
    "heddle plan --explain": ["plan", "one.toml", "--explain"],
    "heddle simulate": ["simulate", "weave.toml"],
    "heddle models": ["models"],
    "heddle schedule": ["schedule", "1f1b", "--pipeline", 2, "--microbatches", 4],
    "heddle train --dry-run": ["train", "job.toml", "--dry-run", "--set", "plan.data=2"],
    "heddle prove": ["prove", "job.toml", "--steps", 1],
    "heddle evaluate": ["evaluate", "runs/small"],
    "heddle inspect": ["inspect", "runs/small"],
    "heddle inspect --verify": ["inspect", "runs/small", "--verify"],
    "heddle piper": PIPER,
    "heddle piper --uniform": ["piper", "one.toml", "--uniform", "--devices", 2],
    "heddle place": ["place", EXAMPLES / "operators.json"],
    "heddle regions": ["regions", EXAMPLES / "regions.json", "--case", "spot"],
    "heddle probe": ["probe", "-o", "network.toml", "--processes", 1],
    "heddle validate": ["validate", "rows.csv"],
    "heddle calibrate": ["calibrate", "--cluster", "dgx-a100", "--from", "rows.csv", "-o", "c.toml", "--fit", "matmul"],
}
(JSON,) = tables(section(PAGE, "## What `--json` prints"))


def test_every_command_that_prints_json_is_there():
    named = {command for row in JSON for command in quoted(row[0])}
    assert named == {*COMMANDS, "heddle profile"}  # whose keys are those of a cluster
    sources = {
        path.stem.removesuffix("_options")
        for path in (REPOSITORY / "heddle" / "cli").rglob("*.py")
        if '"--json"' in path.read_text()
    }
    own_pages = {"compare", "lanes", "tiles", "trainers"}  # which say what theirs holds
    assert {command.split()[1] for command in named} == sources - own_pages


@pytest.mark.parametrize("name", COMMANDS)
def test_json_has_the_keys_that_are_named(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert call(*COMMANDS[name], "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    rows = [(path.strip("`"), keys) for command, path, keys in JSON if quoted(command) == [name]]
    assert rows
    for path, keys in rows:
        expected = {*quoted(keys), *(quoted(base_of(name)) if keys.startswith("the same") else [])}
        assert set(at(printed, path)) == expected, path


def base_of(name):
    """The keys of the command without its option."""
    return next(keys for command, path, keys in JSON if quoted(command) == [name.partition(" --")[0]] and not path)


def keys_of(heading, of):
    """The keys that a table below a heading names for a file or a part of it."""
    rows = [row for table in tables(section(PAGE, heading)) for row in table]
    found = [quoted(row[1]) for row in rows if row[0] == of and quoted(row[1])]
    assert len(found) == 1, of
    return set(found[0])


def test_a_checkpoint_is_described(folder):
    checkpoint = folder / "runs" / "small" / "checkpoints" / "step-00000006"
    assert {path.name for path in checkpoint.iterdir()} == {
        "part-00000.safetensors",
        "index.json",
        "checkpoint.json",
        "job.toml",
    }
    index = json.loads((checkpoint / "index.json").read_text())
    assert "layers.0.attention.qkv.weight:exp_avg_sq" in index
    tensor = index["layers.0.attention.qkv.weight"]
    assert set(tensor) == keys_of("## A checkpoint", "`index.json` → a tensor")
    assert set(tensor["boxes"][0]) == keys_of("## A checkpoint", "`index.json` → a box")
    about = json.loads((checkpoint / "checkpoint.json").read_text())
    assert set(about) == keys_of("## A checkpoint", "`checkpoint.json`")
    assert set(about["progress"]) == keys_of("## A checkpoint", "`checkpoint.json` → `progress`")


def test_the_run_folder_is_described(folder):
    run = folder / "runs" / "small"
    named = {quoted(row[0])[0].partition("/")[0] for row in tables(section(PAGE, "## The run folder"))[0]}
    assert {path.name for path in run.iterdir()} <= named
    assert {path.name for path in (run / "tokenizer").iterdir()} == {"tokenizer.json", "tokenizer_config.json"}


def test_prepared_tokens_are_described(folder):
    (prepared,) = (folder / "prepared").iterdir()
    about = json.loads((prepared / "data.json").read_text())
    assert set(about) == keys_of("## Prepared tokens", "`data.json`")
    assert set(about["train"]) == keys_of("## Prepared tokens", "`data.json` → `train`")


def test_traces_are_described(folder):
    first = next((folder / "runs" / "small" / "traces").glob("*.jsonl"))
    header = json.loads(first.read_text().splitlines()[0])
    assert set(header) == keys_of("## Traces", "the first line")
    assert set(header["columns"]) == keys_of("## Traces", "`columns`")
    perfetto = json.loads((folder / "trace.json").read_text())
    assert set(perfetto) == keys_of("## Traces", "the file")
    kinds = {"X": "an event with `ph` = `X`, a span", "C": "an event with `ph` = `C`, predicted memory"}
    for kind, of in kinds.items():
        event = next(event for event in perfetto["traceEvents"] if event["ph"] == kind)
        assert set(event) == keys_of("## Traces", of)
    assert {"ph", "name", "pid", "args"} == keys_of("## Traces", "an event with `ph` = `M`, a name")


def test_a_written_placement_is_described(folder):
    placed = json.loads((folder / "placed.json").read_text())
    assert set(placed) == keys_of("## Graphs", "`heddle place -o FILE`")
    assert set(placed["fpgas"][0]) == keys_of("## Graphs", "`heddle place -o FILE` → `fpgas`")


def test_every_table_of_a_job_is_named():
    assert set(TABLES) <= set(re.findall(r"`\[(\w+)\]`", section(PAGE, "## Jobs and plans")))
