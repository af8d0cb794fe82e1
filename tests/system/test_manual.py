"""The manual's newer pages say what is true: their numbers, their messages, their words."""

import dataclasses
import re
import shlex
import socket

import click
import pytest
import typer

import heddle
from heddle.cli.app import app
from heddle.format import GIB
from heddle.spec import Plan
from heddle.spec.changes import load_with_changes
from heddle.spec.job import load_job
from heddle.spec.ranks import coordinates
from heddle.training.watchdog import HUNG
from tests.helpers.commands import blocks, call, run_commands, write_named_blocks
from tests.helpers.manual import DOCS, cells, quoted, section, shown_commands, tables

CONCEPTS, TROUBLE = DOCS / "start/concepts.md", DOCS / "start/troubleshooting.md"
COMPARISON = DOCS / "background/comparison.md"
# Pages whose bash blocks need GPUs, or a cluster, or another program; their commands must be commands.
ELSEWHERE = [
    line for page in sorted(DOCS.rglob("*.md")) for block in blocks(page, "bash") for line in block.splitlines()
]


@pytest.mark.parametrize("line", [line for line in ELSEWHERE if line.startswith("heddle ")])
def test_commands_that_cannot_run_here_can_be_parsed(line):
    words = shlex.split(line.partition(" | ")[0], comments=True)
    command, words = typer.main.get_command(app), words[1:]
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    assert command.make_context(command.name, words).params


def test_the_numbers_of_the_concepts_are_those_of_the_simulator(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "120")
    (job,) = write_named_blocks(CONCEPTS, tmp_path)
    (rows,) = [rows for rows in tables(CONCEPTS.read_text(encoding="utf-8")) if rows[0][0] == "none"]
    assert len(rows) > 10
    for change, seconds, bubble, memory in rows:
        step = heddle.simulate(load_with_changes(job, quoted(change)))
        found = f"{step.step_seconds:.2f} s", f"{step.bubble:.1%}", f"{step.worst / GIB:.1f} GiB"
        assert found == (seconds, bubble, memory), change
    assert not heddle.simulate(load_with_changes(job, ["plan.schedule=gpipe"])).fits
    best = heddle.plan(dataclasses.replace(load_job(job), plan=None)).best
    assert (best.plan.tensor, best.plan.data, best.plan.zero, best.plan.recompute) == (2, 16, 3, "elementwise")
    assert f"which is {best.step_seconds:.2f} s" in CONCEPTS.read_text(encoding="utf-8")
    assert call("simulate", job) == 0
    shown = re.findall(r"^    ((?:GiB  |stage 0 |w weights).*)$", CONCEPTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) == 4
    assert set(shown) <= set(capsys.readouterr().out.splitlines())


def test_the_commands_of_the_concepts_print_what_is_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "120")
    write_named_blocks(CONCEPTS, tmp_path)
    for words, lines in shown_commands(CONCEPTS):
        if words[0] == "schedule":
            assert call(*words) == 0
            assert [line for line in capsys.readouterr().out.splitlines() if line] == lines


def test_the_concepts_name_every_field_of_a_plan_and_every_item_of_the_bill(tmp_path):
    named = {row[0].strip("`") for rows in tables(CONCEPTS.read_text(encoding="utf-8")) for row in rows}
    assert {field.name for field in dataclasses.fields(Plan)} <= named
    (job,) = write_named_blocks(CONCEPTS, tmp_path)
    assert set(heddle.simulate(load_job(job)).memory[0]._fields) <= named


def test_the_mesh_of_the_concepts_is_the_mesh():
    heading, *rows = [cells(line) for line in re.findall(r"^    (\|.*\|)$", CONCEPTS.read_text(), re.MULTILINE)]
    places = [[int(number) for number in re.findall(r"\d+", cell)] for cell in heading[1:]]  # pipeline, tensor
    ranks = set()
    for data, (_, *row) in enumerate(rows):
        for (pipeline, tensor), cell in zip(places, row, strict=True):
            rank = int(cell.removeprefix("rank "))
            assert coordinates(Plan(tensor=2, data=2, pipeline=2), rank) == (tensor, 0, data, pipeline)
            ranks.add(rank)
    assert ranks == set(range(8))


def test_troubles_are_told_as_the_page_says(capsys, tmp_path):
    write_named_blocks(TROUBLE, tmp_path)
    (tmp_path / "corpus").mkdir()
    for words, lines in shown_commands(TROUBLE):
        if "train.steps=8" in words:
            damage(tmp_path / "runs" / "small" / "checkpoints" / "step-00000006" / "part-00000.safetensors")
        code = call(*words)
        said = capsys.readouterr()
        printed = same_everywhere(said.out + said.err).splitlines()
        assert [line for line in lines if same_everywhere(line) not in printed] == [], words
        assert code == (2 if any(line.startswith("error: ") for line in lines) else 0), said


def same_everywhere(text):
    """Without what depends on the machine: hashes of files with their times, and of numbers with their rounding."""
    text = re.sub(r"prepared/\w+", "prepared/…", text)
    return re.sub(r"checksum \w+; it was written with \w+", "checksum …; it was written with …", text)


def damage(path):
    """Change the last number of a file."""
    held = bytearray(path.read_bytes())
    held[-1] ^= 1
    path.write_bytes(held)


def said_by_a_launched_process(capsys, monkeypatch, job, world, **environment):
    for name, value in {"RANK": 0, "WORLD_SIZE": world, "LOCAL_RANK": 0, **environment}.items():
        monkeypatch.setenv(name, str(value))
    data = [] if world == 3 else ["--set", f"plan.data={world}"]
    assert call("train", job, "--name", "launched", *data) == 2
    return capsys.readouterr().err.rstrip("\n")


def test_troubles_of_a_launcher_are_told_as_the_page_says(capsys, monkeypatch, tmp_path):
    _, job = write_named_blocks(TROUBLE, tmp_path)
    texts = [block.rstrip("\n") for block in blocks(TROUBLE, "text")]
    assert said_by_a_launched_process(capsys, monkeypatch, job, 3) in texts
    assert said_by_a_launched_process(capsys, monkeypatch, job, 2) in texts
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        said = said_by_a_launched_process(capsys, monkeypatch, job, 2, **meet)
    assert said.replace(str(port), "29533") in texts
    assert HUNG.what in "".join(texts)


def test_the_glossary_is_in_order_and_every_word_leads_somewhere():
    (rows,) = tables((DOCS / "reference/glossary.md").read_text(encoding="utf-8"))
    words = [re.fullmatch(r"\[(.*?)\]\((\S+)\)", word) for word, *_ in rows]
    assert all(words)
    names = [word[1].lower() for word in words]
    assert names == sorted(names)
    assert all(1 <= len(re.findall(r"\.(?= |$)", meaning)) <= 3 for _, meaning, _ in rows)


def test_the_comparison_reads_every_field_of_a_plan():
    rows = next(iter(tables(section(COMPARISON, "## Words"))))
    read = {word.partition(" ")[0] for word, *_ in rows for word in quoted(word)}
    assert {field.name for field in dataclasses.fields(Plan)} <= read
    assert all(len(row) == 4 for row in rows)


def test_the_comparison_s_commands_work(tmp_path):
    write_named_blocks(COMPARISON, tmp_path)
    assert len(run_commands(COMPARISON, tmp_path)) == 2
