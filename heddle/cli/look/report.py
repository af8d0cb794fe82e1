"""`heddle report`: a page that shows what is predicted and what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, ranged


def report(
    subject: Annotated[Path, typer.Argument(help="A run's folder, or a job file.", metavar="RUN|JOB.toml")],
    other: Annotated[
        Path | None, typer.Argument(help="Another one, to show side by side.", metavar="[OTHER]", show_default=False)
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the page to this file.", metavar="FILE.html")
    ] = Path("report.html"),
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    step: Annotated[int | None, ranged(within=COUNT, help="Which traced step to show. Default: a typical one.")] = None,
) -> None:
    """Write one HTML page about a run or a plan: timeline, time, memory, loss, and the other plans."""
    from heddle.cli.common import check_page, write_output
    from heddle.console import plain_console
    from heddle.reporting.page import render
    from heddle.reporting.subject import read_subject

    check_page(output)
    found = [read_subject(path, step) for path in (subject, other) if path is not None]
    page = render(found)
    write_output(output, page)
    console = plain_console()
    for each in found:
        if each.decision is not None:
            said = f"{each.name}: {each.decision.title}. {each.decision.why}"
            console.print(said, soft_wrap=True, markup=False)
        for notice in each.notices:
            console.print(f"note: {notice.what} {notice.why} {notice.hint}", soft_wrap=True, markup=False)
    console.print(
        f"Written to {output}, {len(page) / 1e6:.1f} MB. It opens in any browser, without a network.", soft_wrap=True
    )
    if open_it:
        import webbrowser

        webbrowser.open(output.absolute().as_uri())
