"""`heddle trace`: what every rank did in a step of a traced run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import COUNT, ranged

if TYPE_CHECKING:
    from heddle.trace import Trace


def trace(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was trained with --trace.", metavar="RUN")],
    step: Annotated[int | None, ranged(within=COUNT, help="Which step. Default: the last traced one.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write it: .json for ui.perfetto.dev, .svg or .png.", metavar="FILE"),
    ] = None,
) -> None:
    """Draw the pipeline as it was measured, and say where the time went."""
    from rich.console import Console

    from heddle.cli.common import write_trace
    from heddle.runs.folder import open_run
    from heddle.trace.steps import read_step, traced_steps
    from heddle.trace.terminal import draw

    folder = open_run(run).traces
    # The first steps are the slowest, because memory is allocated and caches are cold: the last one is typical.
    chosen = step if step is not None else max(traced_steps(folder), default=1)
    measured = read_step(folder, chosen)
    console = Console(highlight=False)
    console.print(draw(measured, console.width), soft_wrap=True)
    console.print()
    console.print(f"step {chosen}: {1e3 * measured.duration:.1f} ms, bubble {measured.bubble:.1%} of the ideal time")
    for line in lanes(measured):
        console.print(line, soft_wrap=True, markup=False)
    for words in measured.skipped:
        console.print(f"note: {words}", soft_wrap=True, markup=False)
    if output is not None:
        console.print("\n" + write_trace(output, measured, held(run, measured)), soft_wrap=True)


def held(run: Path, trace: Trace) -> list[list[tuple[float, float]]] | None:
    """What each rank held over the step: bytes as predicted for the plan, at the moments that were measured."""
    from heddle.errors import HeddleError
    from heddle.report.subject import on_its_machine
    from heddle.simulate.memory_curve import memory_curves
    from heddle.simulate.simulation import simulate
    from heddle.spec.job import load_job
    from heddle.spec.ranks import stage_of

    try:
        found = simulate(on_its_machine(load_job(run / "job.toml").planned))
    except HeddleError:  # then there is no counter
        return None
    if trace.ranks != found.plan.world:  # traced under another plan
        return None
    bills = [found.memory[stage_of(found.plan, rank)] for rank in range(trace.ranks)]
    always = [float(bill.weights + bill.gradients + bill.optimizer) for bill in bills]
    first = min(span.start for span in trace.spans)
    return [
        [(max(second, first), size) for second, size in curve]
        for curve in memory_curves(trace, found.left.saved, always, found.left.owed)
    ]


def lanes(trace: Trace) -> list[str]:
    """How long each lane was busy, as a mean over the ranks, and what with."""
    found: dict[str, dict[str, list[float]]] = {}
    for span in trace.spans:
        found.setdefault(span.lane, {}).setdefault(span.name, []).append(span.end - span.start)
    lines = []
    for lane, names in found.items():
        total = sum(map(sum, names.values())) / trace.ranks
        what = ", ".join(f"{len(times)} {name}" for name, times in names.items())
        lines.append(f"{lane:<10} {1e3 * total:>8.1f} ms per rank  {total / (trace.duration or 1):>4.0%}  {what}")
    return lines
