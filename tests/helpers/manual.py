"""Reading the manual: its tables, and its commands with what they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.helpers.commands import REPOSITORY

DOCS = REPOSITORY / "docs"


class Shown(NamedTuple):
    """A command of a page, and the lines that the page shows of its output; none where it only tells to run it."""

    words: list[str]
    lines: list[str]


def shown_commands(page: Path) -> list[Shown]:
    """The commands of a page's `sh` and `console` blocks, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for kind, block in re.findall(r"^```(sh|console)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        lines = block.splitlines()
        if kind == "console":
            found.append(Shown(shlex.split(lines[0].removeprefix("$ "))[1:], [line for line in lines[1:] if line]))
        else:
            commands = [shlex.split(line, comments=True) for line in lines if line.startswith("heddle ")]
            found += [Shown(words[1:], []) for words in commands]
    return found


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a document: of each the cells of its rows, without the heading."""
    found = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    return [[cells(line) for line in table.splitlines()[2:]] for table in found]


def cells(line: str) -> list[str]:
    """The cells of a row."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next of its rank or above."""
    text = page.read_text(encoding="utf-8")
    rank = heading.split()[0]
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{len(rank)}}} |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def quoted(cell: str) -> list[str]:
    """The words of a cell that are set as code."""
    return re.findall(r"`([^`]+)`", cell)
