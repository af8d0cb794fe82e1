"""Running `heddle` as a user does: jobs small enough for a test, real processes, and the commands of a document."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

from heddle.cli import main
from tests.helpers.warm import WarmProcess

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"}
DOCUMENTS = [f"Document {i}: the weaver leads each thread, naïve or not, to its place.\n" * (3 + i) for i in range(8)]

PLAN = """[plan]
data = 1  # one process: most tests are about something else
"""

JOB = f"""
[model]
layers = 1
hidden = 32
heads = 4
vocab = 257
sequence = 16

[data]
text = "corpus/*.txt"
validation = 0.2

{PLAN}
[train]
name = "small"
steps = 6
global_batch = 4
learning_rate = 1e-2
log_every = 2
eval_batches = 2
"""


# For tests of pages; they skip with a word where there is none.
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def write_job(folder: Path) -> Path:
    """A job that trains in a moment, and beside it the text it learns from."""
    (folder / "corpus").mkdir(parents=True)
    for number, text in enumerate(DOCUMENTS):
        (folder / "corpus" / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "job.toml").write_text(JOB)
    return folder / "job.toml"


def start(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    """Start `heddle` in a process of its own."""
    return WarmProcess(["heddle", *map(str, arguments)], cwd, ENVIRONMENT)


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for the end of a process that should end with `code`; give all it said."""
    out, errors = process.communicate(timeout=120)
    said = out + errors
    assert process.returncode == code, said
    assert "Traceback" not in said
    return said


def heddle(*arguments: str | Path, cwd: Path, code: int = 0) -> str:
    """Run `heddle` in a process of its own."""
    return finish(start(*arguments, cwd=cwd), code)


def call(*arguments: str | Path) -> int:
    """Run `heddle` in this process, where torch is imported already; give its exit code."""
    before, sys.argv = sys.argv, ["heddle", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def steps_of(run: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl that are steps. No row may hold what JSON has no word for, such as NaN."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=lambda word: 1 / 0) for line in lines]
    return [row for row in rows if "loss" in row]


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in steps_of(run)]


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced blocks of one kind in a document."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def write_named_blocks(page: Path, folder: Path) -> list[Path]:
    """Save every TOML block whose first line is a comment with a file name, as a reader would."""
    named = [(re.match(r"# (\S+\.toml)\n", block), block) for block in blocks(page, "toml")]
    files = [(folder / match[1], block) for match, block in named if match]
    for path, block in files:
        path.write_text(block)
    return [path for path, _ in files]


def run_commands(page: Path, folder: Path) -> list[str]:
    """Run every `heddle` command of a document's shell blocks in order, training and proving for a few steps only."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("heddle ")]
    for command in commands:
        if command[1] in ("explore", "watch"):  # pages that are served until one stops them: tests/explore opens them
            continue
        short = []
        if command[1] == "train":
            steps = 4 if "--resume" in command else 2  # what is resumed has something left to do
            changes = [f"train.steps={steps}", "train.delay_warmup=0", "train.sequence=32", "train.eval_batches=1"]
            if "stdlib:*.py" in (folder / command[2]).read_text(encoding="utf-8"):  # megabytes to learn tokens from
                changes.append("data.text=stdlib:json/*.py")
            short = [word for change in changes for word in ("--set", change)]
        elif command[1] == "prove" and "--steps" not in command:
            short = ["--steps", "4"]
        with chdir(folder):
            assert call(*command[1:], *short) == 0, command
    return [" ".join(command) for command in commands]
