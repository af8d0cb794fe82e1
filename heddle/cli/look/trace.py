"""`heddle trace`: what every rank did in a step of a traced run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.ranged import COUNT, ranged
from heddle.format import seconds_in_words

if TYPE_CHECKING:
    from heddle.trace import Trace


def trace(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was trained with --trace.", metavar="RUN")],
    step: Annotated[int | None, ranged(within=COUNT, help="Which step. Default: a typical one.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write it: .json for ui.perfetto.dev, .svg or .png.", metavar="FILE"),
    ] = None,
) -> None:
    """Draw the pipeline as it was measured, and say where the time went."""
    from heddle.cli.common import write_trace
    from heddle.console import plain_console
    from heddle.runs.folder import open_run
    from heddle.runs.metrics import of_step, read_metrics, typical_step
    from heddle.trace.steps import read_step, traced_steps
    from heddle.trace.terminal import draw

    kept = open_run(run)
    rows = [row for row in read_metrics(kept.folder / "metrics.jsonl") if "loss" in row]
    chosen = step if step is not None else typical_step(traced_steps(kept.traces), rows) or 1
    measured = read_step(kept.traces, chosen)
    seconds = of_step(rows, chosen, "seconds") or measured.duration
    console = plain_console()
    console.print(draw(measured, console.width), soft_wrap=True)
    console.print()
    console.print(f"step {chosen}: {seconds_in_words(seconds)}, bubble {measured.bubble:.1%} of the ideal time")
    if usual := in_the_median(rows):
        console.print(usual)
    console.print("lanes, of which several may be busy at once, so shares can exceed 100 %:")
    for line in lanes(measured, seconds):
        console.print(line, soft_wrap=True, markup=False)
    for words in measured.skipped:
        console.print(f"note: {words}", soft_wrap=True, markup=False)
    if output is not None:
        console.print("\n" + write_trace(output, measured, held(run, measured)), soft_wrap=True, markup=False)


def in_the_median(rows: list[dict[str, Any]]) -> str | None:
    """What a step of the run usually takes, as its page says it."""
    from heddle.runs.metrics import median

    seconds, bubble = median(rows, "seconds"), median(rows, "bubble")
    if seconds is None or bubble is None:
        return None
    return f"median of the run: {seconds_in_words(seconds)}, bubble {bubble:.1%}"


def held(run: Path, trace: Trace) -> list[list[tuple[float, float]]] | None:
    """What each rank held over the step: bytes as predicted for the plan, at the moments that were measured."""
    from heddle.errors import HeddleError
    from heddle.reporting.subject import on_its_machine
    from heddle.runs.folder import open_run
    from heddle.simulating.memory_curve import memory_curves
    from heddle.simulating.simulation import simulate
    from heddle.spec.job import load_job
    from heddle.spec.ranks import stage_of

    try:
        found = simulate(on_its_machine(load_job(run / "job.toml").planned, open_run(run)))
    except HeddleError:  # then there is no counter
        return None
    if not trace.is_of(found.plan.world, found.plan.chunks):  # traced under another plan
        return None
    breakdowns = [found.memory[stage_of(found.plan, rank)] for rank in range(trace.ranks)]
    always = [float(breakdown.weights + breakdown.gradients + breakdown.optimizer) for breakdown in breakdowns]
    first = min(span.start for span in trace.spans)
    return [
        [(max(second, first), size) for second, size in curve]
        for curve in memory_curves(trace, found.left.saved, always, found.left.owed)
    ]


def lanes(trace: Trace, seconds: float) -> list[str]:
    """How long each lane was busy, as a mean over the ranks and as a share of the step, and what with."""
    found: dict[str, dict[str, list[float]]] = {}
    for span in trace.spans:
        found.setdefault(span.lane, {}).setdefault(span.name, []).append(span.end - span.start)
    lines = []
    for lane, names in found.items():
        total = sum(map(sum, names.values())) / trace.ranks
        what = ", ".join(f"{len(times)} {name}" for name, times in names.items())
        lines.append(f"{lane:<10} {1e3 * total:>8.1f} ms per rank  {total / (seconds or 1):>4.0%}  {what}")
    return lines
