"""`heddle demo`: all of Heddle on one machine, in six acts. It calls what the other commands call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import COUNT, ranged

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.simulating.simulation import Simulation
    from heddle.spec.cluster import Cluster
    from heddle.spec.job import PlannedJob
    from heddle.spec.plan import Plan, Predicted

ACTS = {
    "Measure": "How fast is this machine with {} running? They share its cores, so all are timed at once.",
    "Plan": "Which split of a small GPT over {} is the fastest? Every legal one is priced.",
    "Simulate": "What would each stage do during a step, and how much memory would its processes need?",
    "Train": "Now {} train it for real, on Python's own library.",
    "Write": "What the model has learned about Python so far.",
    "Compare": "Was the prediction right? The predicted step, and the median of those that were trained.",
}
SHOWN = 5  # plans of the table


def demo(
    plan: Annotated[
        str,
        typer.Option(help="tensor x pipeline x data; 2x1x1 starts only two processes.", metavar="TENSORxPIPELINExDATA"),
    ] = "2x2x2",
    steps: Annotated[int, ranged(within=COUNT, help="Steps to train.")] = 100,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser at the end.")] = False,
) -> None:
    """See everything in two minutes: measure this machine, plan, simulate, train, generate, compare."""
    import os
    import time

    began = time.monotonic()
    from heddle.cli.common import require_torch
    from heddle.cli.train.generate import generate
    from heddle.console import plain_console
    from heddle.demo import demo_job, make_room
    from heddle.runtime import forkserver

    require_torch("demo")
    job = demo_job(plan, steps)
    make_room(job)
    # On the CPU everywhere: one GPU, which many machines have, could not hold these processes.
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    forkserver.start_early(job.plan)  # it imports torch at the same time as this process
    console = plain_console(soft_wrap=True)
    cluster = _measure(console, job.plan)
    chosen, predicted = _plan(console, job, cluster)
    _draw(console, chosen)
    if not _train(console, chosen, predicted):
        return
    _begin(console, "Write")
    generate(job.run_folder, prompt="def ", tokens=120)
    page = _compare(console, job.run_folder)
    console.print(f"\nAll of this took {time.monotonic() - began:.0f} s.")
    if open_it:
        import webbrowser

        webbrowser.open(page.absolute().as_uri())


def _begin(console: Console, act: str, processes: int = 0) -> None:
    console.print(f"\n{list(ACTS).index(act) + 1}. {act}", style="bold")
    console.print(ACTS[act].format(_several(processes)) + "\n", style="dim")


@contextmanager
def _busy(console: Console, words: str) -> Iterator[None]:
    """While something lasts: a spinner and the seconds on a terminal, a line elsewhere."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    if not console.is_terminal:
        console.print(f"{words} …")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(words, total=None)
        yield


def _several(processes: int) -> str:
    return f"{processes} process{'es' * (processes > 1)}"


def _measure(console: Console, plan: Plan) -> Cluster:
    from heddle.cli.decide.profile import show
    from heddle.spec.this_machine import this_machine

    _begin(console, "Measure", plan.world)
    here = this_machine()
    with _busy(console, f"Measuring with {_several(plan.world)}"):
        from heddle.training.profile.profile import profile

        found = profile(plan.world, quick=True)
    console.print(f"{here.devices} CPU cores, {here.devices * here.device.memory_gib:.3g} GiB of memory")
    show(console, found)
    return found


def _plan(console: Console, job: PlannedJob, cluster: Cluster) -> tuple[Simulation, Predicted]:
    """The best plans, and the best one with the degrees that were asked for, with its place among all."""
    from dataclasses import replace

    from heddle.cli.show.plan import show_choices
    from heddle.demo import for_show, standing
    from heddle.planning.request import PlanRequest
    from heddle.planning.search.search import search
    from heddle.spec.this_machine import this_machine

    cores = this_machine().devices
    _begin(console, "Plan", cluster.world)
    here = replace(job, cluster=cluster)
    found = search(here)
    show_choices(console, found, SHOWN)
    chosen = search(here, PlanRequest(fixed=for_show(job), top=1)).best
    fewer = search(here, PlanRequest(devices=cores, top=1)).best if cores < found.cluster.world else None
    console.print()
    for line in standing(found, chosen, fewer):
        console.print(line)
    return chosen, replace(chosen.predicted, rank=found.rank(chosen.plan), feasible=found.feasible)


def _draw(console: Console, chosen: Simulation) -> None:
    from heddle.cli.decide.simulate import show_memory
    from heddle.trace.terminal import draw

    _begin(console, "Simulate")
    console.print(draw(chosen.trace, console.width))
    console.print()
    show_memory(console, chosen, every=True)


def _train(console: Console, chosen: Simulation, predicted: Predicted) -> bool:
    """Whether the run came to its end."""
    from dataclasses import replace

    _begin(console, "Train", chosen.plan.world)
    from heddle.data import prepared_for
    from heddle.training.loop import train

    with _busy(console, "Tokenizing the text"):
        prepared_for(chosen.job.corpus)
    result = train(replace(chosen.job, predicted=predicted), trace=True)
    assert result is not None
    if result.step < result.steps:
        console.print(
            f"Stopped after step {result.step} of {result.steps}. `heddle report {result.run}` shows its data; "
            "`heddle demo` starts over.",
        )
        return False
    console.print(
        f"Trained {result.steps} steps in {result.seconds:.0f} s: loss {result.loss:.2f} nats per token. "
        f"Guessing by token frequency alone would score {result.unigram_entropy:.2f}.",
    )
    return True


def _compare(console: Console, run: Path) -> Path:
    """Predicted beside measured, here and as a page."""
    from heddle.cli.common import write_output
    from heddle.cli.show.difference import show_difference
    from heddle.reporting.page import render
    from heddle.reporting.subject import read_subject

    _begin(console, "Compare")
    page = run / "report.html"
    with _busy(console, "Writing the page"):
        subject = read_subject(run)
        write_output(page, render([subject]))
    show_difference(console, subject)
    console.print(
        f"\nThe page with the timeline of every process, predicted against measured: {page}\n"
        f"Open it in a browser: {page.absolute().as_uri()}",
    )
    return page
