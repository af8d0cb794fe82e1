"""`heddle compare`: which of two jobs learns faster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import ranged


def compare(
    first: Annotated[Path, typer.Argument(help="A job file, or a run's folder.", metavar="A.toml|RUN")],
    second: Annotated[Path, typer.Argument(help="The other job file or run folder.", metavar="B.toml|RUN")],
    seeds: Annotated[int, ranged(within="[1, 1000]", help="How often to train each, with different seeds.")] = 3,
    loss: Annotated[
        float | None, ranged(within="(0, 1e3]", help="The loss to reach. Default: the lowest that all runs reach.")
    ] = None,
    name: Annotated[str, typer.Option(help="The runs go to RUNS/NAME.")] = "compare",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the page to this file.", metavar="FILE.html")
    ] = Path("compare.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key of both: --set train.steps=50", metavar="TABLE.KEY=VALUE"),
    ] = None,
) -> None:
    """Train two jobs on the same data, and plot their loss over tokens and time, with the spread over seeds."""
    from heddle.cli.common import check_page, require_torch, write_output

    require_torch("compare")
    from heddle.console import plain_console
    from heddle.reporting.losses import losses_page
    from heddle.training.compare import compare_files

    check_page(output)
    console = plain_console(soft_wrap=True, stderr=as_json)
    found = compare_files(first, second, seeds, loss, name, changes or [], console.print)
    if found is None:
        console.print("Stopped. Run the same command to continue.")
        return
    write_output(output, losses_page(found.settings, found.loss, found.in_words()))
    for line in (*found.in_words(), f"The curves are in {output}."):
        console.print(line, markup=False)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json()))
