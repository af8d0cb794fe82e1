"""Applies a contributor page to a copy of the package: its `diff` blocks change files, its `sh` blocks are run.

A block of a diff names its file in the first line, as `--- heddle/spec/axes.py` (or `+++` for a new file), and has
context, `-` and `+` lines like any diff, without line numbers: the context says where.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers.commands import REPOSITORY

BLOCK = re.compile(r"^( *)```(diff|sh|toml|python)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def undone(diff: str) -> str:
    """The diff that takes back what another adds."""
    head, *lines = diff.splitlines()
    other = {"+": "-", "-": "+"}
    return "\n".join([head, *(other.get(line[:1], line[:1]) + line[1:] for line in lines)])


class Copy:
    """A copy of the package with what a page adds to it; files in `made` have it already, and are first without it."""

    def __init__(self, folder: Path, page: str, made: tuple[str, ...] = ()) -> None:
        self.folder = folder
        shutil.copytree(REPOSITORY / "heddle", folder / "heddle")  # with bytecode, which holds for files as old as it
        text = (REPOSITORY / "docs/contribute" / page).read_text(encoding="utf-8")
        self.blocks = [
            (kind, "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True)))
            for indent, kind, body in BLOCK.findall(text)
        ]
        diffs = [body for kind, body in self.blocks if kind == "diff"]
        for body in diffs:
            if body.split()[1] in made:
                self._apply(undone(body))
        self.changed = [self._apply(body) for body in diffs]

    def _apply(self, diff: str) -> str:
        head, *lines = diff.splitlines()
        mark, name = head.split()
        path = self.folder / name
        if mark == "+++":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line[1:]}\n" for line in lines), encoding="utf-8")
            return name
        before = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
        after = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"the context of {name} occurs {text.count(before)} times:\n{before}"
        path.write_text(text.replace(before, after), encoding="utf-8")
        return name

    def python(self, *arguments: str) -> str:
        """What Python prints there."""
        environment = os.environ | {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def promised(self) -> str:
        """What the page's files and commands print: `toml` blocks are written as they name themselves, `sh` is run."""
        printed = []
        for kind, body in self.blocks:
            if kind == "toml":
                (self.folder / body.splitlines()[0].removeprefix("# ")).write_text(body, encoding="utf-8")
            if kind == "sh":
                for line in body.splitlines():
                    words = line.partition("#")[0].split()
                    assert words[0] == "heddle", "a recipe runs heddle, nothing else"
                    printed.append(self.python("-m", *words))
        return "\n".join(printed)
