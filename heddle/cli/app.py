"""`heddle`: the commands, and how mistakes are shown."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from heddle.cli import data, export, import_
from heddle.cli.calibrate import calibrate
from heddle.cli.demo import demo
from heddle.cli.generate import generate
from heddle.cli.inspect import inspect
from heddle.cli.launch import launch
from heddle.cli.piper import piper
from heddle.cli.place import place
from heddle.cli.plan import plan
from heddle.cli.profile import profile
from heddle.cli.prove import prove
from heddle.cli.report import report
from heddle.cli.schedule import schedule
from heddle.cli.selftest import selftest
from heddle.cli.simulate import simulate
from heddle.cli.trace import trace
from heddle.cli.train import train
from heddle.cli.validate import validate
from heddle.errors import HeddleError

app = typer.Typer(
    name="heddle",
    help="Plan, simulate, train and explain the parallel training of large transformer models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(plan)
app.command()(simulate)
app.command()(train)
app.command()(launch)
app.command()(trace)
app.command()(report)
app.command()(generate)
app.command()(prove)
app.command()(selftest)
app.command()(schedule)
app.command()(validate)
app.command()(calibrate)
app.command()(piper)
app.command()(place)
app.command()(profile)
app.command()(inspect)
app.add_typer(data.app, name="data")
app.add_typer(import_.app, name="import")
app.add_typer(export.app, name="export")


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
    try:
        app()
    except HeddleError as error:
        show(error)
        sys.exit(2)
    except SystemExit as end:
        if end.code == 130:  # how Typer ends on Ctrl-C
            typer.secho("Stopped.", err=True)
        raise


def show(error: HeddleError) -> None:
    """What is wrong, why, and the nearest thing that works."""
    typer.secho(f"error: {error.what}", fg="red", bold=True, err=True)
    for part in (error.why, error.hint):
        if part:
            typer.secho(f"  {part}", err=True)
