"""`heddle`: the commands, and how mistakes are shown."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from heddle.cli.decide.calibrate import calibrate
from heddle.cli.decide.plan import plan
from heddle.cli.decide.probe import probe
from heddle.cli.decide.profile import profile
from heddle.cli.decide.schedule import schedule
from heddle.cli.decide.simulate import simulate
from heddle.cli.decide.validate import validate
from heddle.cli.demo import demo
from heddle.cli.exchange import data, export, import_
from heddle.cli.graphs import lanes, tiles
from heddle.cli.graphs.piper import piper
from heddle.cli.graphs.place import place
from heddle.cli.graphs.regions import regions
from heddle.cli.help import DECIDE, EXCHANGE, GRAPHS, KERNELS, LOOK, START, TRAIN, Command, CommandGroup
from heddle.cli.look.compare import compare
from heddle.cli.look.explore import explore, watch
from heddle.cli.look.inspect import inspect
from heddle.cli.look.models import models
from heddle.cli.look.report import report
from heddle.cli.look.trace import trace
from heddle.cli.streams import finish, ignore_absurd_sizes, show, speak_plainly
from heddle.cli.train.evaluate import evaluate
from heddle.cli.train.generate import generate
from heddle.cli.train.launch import launch
from heddle.cli.train.meeting import meeting
from heddle.cli.train.prove import prove
from heddle.cli.train.selftest import selftest
from heddle.cli.train.train import train
from heddle.errors import HeddleError

app = typer.Typer(
    name="heddle",
    cls=CommandGroup,
    help="Plan, simulate, train and explain the parallel training of large transformer models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order of --help: first what most people need first.
PANELS: dict[str, list[Callable[..., None] | tuple[str, typer.Typer]]] = {
    START: [demo],
    DECIDE: [plan, simulate, schedule, profile, probe, calibrate, validate],
    TRAIN: [train, launch, meeting, prove, selftest, generate, evaluate],
    LOOK: [report, explore, watch, compare, trace, inspect, models],
    EXCHANGE: [("data", data.app), ("import", import_.app), ("export", export.app)],
    GRAPHS: [piper, place, regions, ("tiles", tiles.app)],
    KERNELS: [("lanes", lanes.app)],
}
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, tuple):
            app.add_typer(command[1], name=command[0], rich_help_panel=panel)
        else:
            app.command(cls=Command, rich_help_panel=panel)(command)


def _version(asked: bool) -> None:
    if asked:
        from heddle.version import __version__

        typer.echo(f"heddle {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Plan, simulate, train and explain the parallel training of large transformer models."""


def main() -> None:
    """Run a command; a user's mistake is told in three parts with exit code 2, never as a traceback."""
    speak_plainly()
    ignore_absurd_sizes()
    sys.exit(finish(_run))


@cache
def _entry(first: str) -> Callable[[], Any]:
    """What the first word asks for, or all commands: reading the signatures of all takes longer than many do."""
    asked = copy.copy(app)
    asked.registered_groups = [group for group in app.registered_groups if group.name == first]
    asked.registered_commands = [
        each for each in app.registered_commands if each.callback is not None and each.callback.__name__ == first
    ]
    return get_command(asked if asked.registered_groups or asked.registered_commands else app)


def _run() -> int:
    try:
        _entry(sys.argv[1] if len(sys.argv) > 1 else "")()
    except HeddleError as error:
        show(error)
        return 2
    except MemoryError:
        show(
            HeddleError(
                "There is not enough memory.", "The request needs more than this machine has.", "Reduce its size."
            )
        )
        return 2
    except SystemExit as end:
        if end.code == 130:  # how Typer ends on Ctrl-C
            typer.secho("Stopped.", err=True)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
