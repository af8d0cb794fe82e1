"""`heddle selftest`: does all of it work on the devices at hand? A verdict to send back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import COUNT, ranged

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.spec.job import Job
    from heddle.training.selftest import SelftestVerdict


def selftest(
    folder: Annotated[Path, typer.Option(help="Folder for the test's files and its verdict.")] = Path("selftest"),
    processes: Annotated[
        int | None, ranged(within=COUNT, help="Number of processes. Default: one per GPU, or two on CPUs.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the proofs of single mechanisms, such as ZeRO levels.")
    ] = False,
    plan: Annotated[Path | None, typer.Option(help="A job file whose plan is proved, too.", metavar="JOB.toml")] = None,
) -> None:
    """Test everything on this machine's devices in a few minutes: prove, profile, train, resume, kill -9."""
    from heddle.cli.common import require_torch
    from heddle.console import plain_console

    require_torch("selftest")
    from heddle.runtime.environment import launched_place
    from heddle.spec.this_machine import this_machine

    here = this_machine()
    count = processes or (2 if here.device.host else here.devices)
    if launched_place() is None and count > 1:
        from heddle.runtime import forkserver
        from heddle.spec.plan import Plan

        forkserver.start_early(Plan(data=count))

    from heddle.training.selftest import selftest as run

    verdict = run(folder, count, _own(plan), quick)
    if verdict is None:  # rank 0 prints
        return
    show(verdict, folder, plain_console())
    if not verdict.passed:
        raise typer.Exit(1)


def _own(path: Path | None) -> Job | None:
    """The job whose plan is to be proved; planned first where it has none."""
    if path is None:
        return None
    from heddle.planning.best import with_best_plan
    from heddle.spec.job import load_job

    return with_best_plan(load_job(path))[0]


def show(verdict: SelftestVerdict, folder: Path, console: Console) -> None:
    """Each part in a line, and what to send."""
    from rich.table import Table

    from heddle.console import styled
    from heddle.training.selftest import LOG, PAGE

    about = verdict.about
    names = sorted({each["name"] for each in about["devices"]})
    degrees = ", ".join(f"{name} {degree}" for name, degree in about["plan"].items())
    count = len(about["devices"])
    console.print(
        f"Heddle {about['heddle']}, PyTorch {about['torch']}, {count} × {', '.join(names)} over {about['backend']}; "
        f"{degrees}; {about['precision']}; launched by {about['launcher']}",
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    for part in verdict.parts:
        passed = styled(("passed", "green") if part.passed else ("failed", "red"))
        table.add_row(part.name, passed, f"{part.seconds:.0f} s", part.words)
    console.print(table)
    if verdict.passed:
        works = styled(("Everything works.", "green"), f" The verdict is in {folder / PAGE}.")
        console.print(works, soft_wrap=True)
    else:
        sent = f" Please send {folder / PAGE} and {folder / LOG} with your report."
        console.print(styled(("Something failed.", "red"), sent), soft_wrap=True)
