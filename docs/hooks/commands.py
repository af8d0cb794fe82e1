"""A page for every command, made from the command line itself whenever the site is built.

`MANUAL` names the page on which each command's subject is explained; the two pages link to each other.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from heddle.cli.app import app

MANUAL = {
    "explore": "decide/explore.md",
    "watch": "decide/explore.md",
    "demo": "start/demo.md",
    "plan": "decide/plan.md",
    "simulate": "decide/simulate.md",
    "train": "train/training.md",
    "launch": "train/launching.md",
    "trace": "train/tracing.md",
    "report": "train/report.md",
    "compare": "train/compare.md",
    "generate": "start/quickstart.md",
    "evaluate": "train/fine-tuning.md",
    "prove": "decide/prove.md",
    "selftest": "train/launching.md",
    "schedule": "background/schedules.md",
    "validate": "decide/calibration.md",
    "calibrate": "decide/calibration.md",
    "piper": "decide/piper.md",
    "place": "decide/placement.md",
    "tiles": "train/tiles.md",
    "lanes": "decide/lanes.md",
    "profile": "decide/profile.md",
    "probe": "decide/networks.md",
    "meeting": "train/slow-links.md",
    "regions": "decide/networks.md",
    "inspect": "train/huggingface.md",
    "models": "train/huggingface.md",
    "data": "train/data.md",
    "import": "train/huggingface.md",
    "export": "train/huggingface.md",
}
TYPES = {bool: "flag", int: "integer", float: "number", str: "text", Path: "path"}


@dataclass(frozen=True)
class Command:
    """A command or a group of them, with the words that call it; none call the app itself."""

    words: tuple[str, ...]
    click: Any
    context: Any

    @property
    def name(self) -> str:
        """As it is typed."""
        return " ".join(["heddle", *self.words])

    @property
    def path(self) -> str:
        """Where its page lies."""
        return f"commands/{'-'.join(self.words) or 'index'}.md"

    @property
    def help(self) -> str:
        """What it does."""
        return str(self.click.help).strip()

    @property
    def manual(self) -> str | None:
        """The page that explains its subject; a group's holds for all of it."""
        return MANUAL.get(self.words[0]) if self.words else "index.md"

    def parts(self) -> Iterator[Command]:
        """The commands of a group."""
        for name, command in getattr(self.click, "commands", {}).items():
            yield Command((*self.words, name), command, type(self.context)(command, self.context, info_name=name))

    def all(self) -> Iterator[Command]:
        """Itself, and all that is in it."""
        yield self
        for part in self.parts():
            yield from part.all()


@cache
def commands() -> list[Command]:
    """Every command, groups before what is in them, the app first."""
    root = typer.main.get_command(app)
    return list(Command((), root, root.make_context("heddle", [], resilient_parsing=True)).all())


def page_of(command: Command, title: str) -> str:
    """The page as Markdown. `title`: of the manual's page on its subject."""
    usage = " ".join([command.name, *command.click.collect_usage_pieces(command.context)])
    usage = usage.replace("[[", "[").replace("]]", "]")  # an optional argument whose name says so already
    told = [f"# {command.name}", command.help, f"```text\n{usage}\n```"]
    if command.manual is not None:
        told.append(f"Explained in [{title}](../{command.manual}).")
    if parts := list(command.parts()):
        rows = [(f"[`{part.name}`]({Path(part.path).name})", part.help) for part in parts]
        told += ["## Commands", _table(("command", "what it does"), rows)]
    panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
    for param in command.click.params:
        if getattr(param, "hidden", False):
            continue
        panel = "Arguments" if param.param_type_name == "argument" else param.rich_help_panel or "Options"
        panels.setdefault(panel, []).append(param)
    panels["Options"].append(command.click.get_help_option(command.context))
    callback = command.click.callback
    types = {} if callback is None else typing.get_type_hints(inspect.unwrap(callback))
    for panel, params in panels.items():
        if params:
            rows = [
                (_name(each), _type(each, types.get(each.name, bool)), _default(each), _help(each)) for each in params
            ]
            kind = "argument" if panel == "Arguments" else "option"
            told += [f"## {panel}", _table((kind, "type", "default", "what it is"), rows)]
    return "\n\n".join(told) + "\n"


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return _code((param.metavar or param.name.upper()).strip("[]"))
    return ", ".join(map(_code, (*param.opts, *param.secondary_opts)))


def _type(param: Any, hint: Any) -> str:
    """In words, from the annotation of the function's parameter."""
    args = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if typing.get_origin(hint) is list:
        return f"{_type(param, args[0])}, several"
    if args:  # … | None
        return _type(param, args[0])
    if issubclass(hint, Enum):
        return " ".join(_code(choice.value) for choice in hint)
    word = TYPES[hint]
    shown = param.metavar if param.param_type_name == "option" and hint is not bool else None
    return f"{word} {_code(shown)}" if shown else word


def _default(param: Any) -> str:
    if param.required:
        return "**required**"
    if param.default in (None, False, [], ()) or callable(param.default):
        return "–"
    return _code("on" if param.default is True else getattr(param.default, "value", param.default))


def _help(param: Any) -> str:
    return (param.help or "").replace("|", "\\|")


def _code(word: Any) -> str:
    return f"`{word}`"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# What MkDocs calls.


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The list of commands in the navigation grows by all but the first page, which stands there."""
    pages = next(item["Commands"] for item in config.nav if "Commands" in item)
    pages += [{each.name: each.path} for each in commands() if each.words]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages join those of the folder."""
    for each in commands():
        title = _title(Path(config.docs_dir) / each.manual) if each.manual else ""
        files.append(File.generated(config, each.path, content=page_of(each, title)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """A page that explains commands names them below its title."""
    own = [each for each in commands() if each.words and each.manual == page.file.src_uri]
    if not own:
        return markdown
    up = "../" * page.file.src_uri.count("/")
    links = " · ".join(f"[`{each.name}`]({up}{each.path})" for each in own)
    return re.sub(r"^# .*$", rf"\g<0>\n\nAll options: {links}", markdown, count=1, flags=re.MULTILINE)


def _title(path: Path) -> str:
    found = re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found, path
    return found[1]
