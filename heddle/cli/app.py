"""`heddle`: the commands, and how mistakes are shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from heddle.cli import data, export, import_, tiles
from heddle.cli.calibrate import calibrate
from heddle.cli.compare import compare
from heddle.cli.demo import demo
from heddle.cli.generate import generate
from heddle.cli.help import DECIDE, EXCHANGE, GRAPHS, KERNELS, LOOK, START, TRAIN, Command, Group
from heddle.cli.inspect import inspect
from heddle.cli.lanes import lanes
from heddle.cli.launch import launch
from heddle.cli.meeting import meeting
from heddle.cli.piper import piper
from heddle.cli.place import place
from heddle.cli.plan import plan
from heddle.cli.probe import probe
from heddle.cli.profile import profile
from heddle.cli.prove import prove
from heddle.cli.regions import regions
from heddle.cli.report import report
from heddle.cli.schedule import schedule
from heddle.cli.selftest import selftest
from heddle.cli.simulate import simulate
from heddle.cli.streams import finish, show, speak_plainly
from heddle.cli.trace import trace
from heddle.cli.train import train
from heddle.cli.validate import validate
from heddle.errors import HeddleError

app = typer.Typer(
    name="heddle",
    cls=Group,
    help="Plan, simulate, train and explain the parallel training of large transformer models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order of --help: first what most people need first.
PANELS: dict[str, list[Callable[..., None] | tuple[str, typer.Typer]]] = {
    START: [demo],
    DECIDE: [plan, simulate, schedule, profile, probe, calibrate, validate],
    TRAIN: [train, launch, meeting, prove, selftest, generate],
    LOOK: [report, compare, trace, inspect],
    EXCHANGE: [("data", data.app), ("import", import_.app), ("export", export.app)],
    GRAPHS: [piper, place, regions, ("tiles", tiles.app)],
    KERNELS: [lanes],
}
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, tuple):
            app.add_typer(command[1], name=command[0], rich_help_panel=panel)
        else:
            app.command(cls=Command, rich_help_panel=panel)(command)


def _version(asked: bool) -> None:
    if asked:
        from heddle import __version__

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
    sys.exit(finish(_run))


def _run() -> int:
    try:
        app()
    except HeddleError as error:
        show(error)
        return 2
    except MemoryError:
        show(
            HeddleError(
                "There is not enough memory.", "What was asked for does not fit this machine.", "Ask for less of it."
            )
        )
        return 2
    except SystemExit as end:
        if end.code == 130:  # how Typer ends on Ctrl-C
            typer.secho("Stopped.", err=True)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
