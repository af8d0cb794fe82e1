"""`heddle train`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.errors import HeddleError
from heddle.format import seconds_in_words

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.planning.regions.network_search import NetworkSearch
    from heddle.planning.search.search import Search
    from heddle.training.loop import Result


def train(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.toml")],
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the newest checkpoint.")] = False,
    auto_resume: Annotated[
        bool, typer.Option("--auto-resume", help="Resume if the run has begun; for launchers that repeat commands.")
    ] = False,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume with other settings: another corpus, batch, seed, …")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the run folder, instead of the job's.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Record what every rank does, and show the bubble.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Try one step of every kind of rank, with meta tensors: nothing is allocated."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result of a dry run as JSON.")] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: --set train.steps=50", metavar="TABLE.KEY=VALUE"),
    ] = None,
) -> None:
    """Train a job, from its first step or from its newest checkpoint."""
    from heddle.cli.common import require_torch
    from heddle.spec.changes import load_with_changes

    loaded = load_with_changes(job, changes or [], name)
    with _telling_what_is_left(loaded.run_folder):
        require_torch("train")
        from heddle.console import plain_console

        if loaded.plan is None:
            from heddle.training.planned import plan_to_train

            loaded, found = plan_to_train(loaded, resume or auto_resume, dry_run)
            if found is not None and not as_json:
                _tell(plain_console(), found)
        if dry_run or as_json:
            _refuse_together(dry_run, {"--resume": resume, "--trace": trace})
            from heddle.training.dry_run.dry_run import dry_run as try_job
            from heddle.training.dry_run.report import show

            show(try_job(loaded), as_json, plain_console())
            return

        from heddle.runtime import forkserver
        from heddle.runtime.stop_request import outlive_terminal

        outlive_terminal()
        forkserver.start_early(loaded.planned.plan)

        from heddle.training.loop import train as run_job

        result = run_job(loaded, resume=resume, trace=trace, allow_changes=allow_changes, auto_resume=auto_resume)
        _conclude(result, job, name, trace, changes or [], loaded.model.own)


@contextmanager
def _telling_what_is_left(folder: Path) -> Iterator[None]:
    """Let SIGTERM end a command in order, too, and say so where it came before there was a run.

    Whoever started several processes by a launcher hears of it there.
    """
    from heddle.runs.lock import begun
    from heddle.runtime.stop_request import StartUp

    if "RANK" in os.environ:
        yield
        return
    with StartUp() as request:
        try:
            yield
        except (KeyboardInterrupt, Exception) as end:
            # a package that was being imported may have taken the request for something that is not installed
            if not request.asked and not isinstance(end, KeyboardInterrupt):
                raise
            if not begun(folder):
                typer.echo(f"The run had not begun: there is no {folder} yet.", err=True)
            raise KeyboardInterrupt from None


def _conclude(
    result: Result | None, job: Path, name: str | None, trace: bool, changes: list[str], own: bool = False
) -> None:
    """Say how a run ended, and what to do next."""
    from heddle.console import plain_console

    if result is None:  # rank 0 prints
        return
    console = plain_console()
    if result.first_step >= result.steps:
        console.out(
            f"{result.run} has already done its {result.steps} steps. "
            f"Train it for longer with --set train.steps={2 * result.first_step}.",
            highlight=False,
        )
        return
    if result.step < result.steps:
        options = [*(["--name", name] if name else []), *(f"--set={change}" for change in changes)]
        options += ["--trace"] if trace else []
        again = shlex.join(["heddle", "train", str(job), "--resume", *options])
        console.out(f"Stopped after step {result.step} of {result.steps}. Resume with: {again}", highlight=False)
        return
    if trace:
        _draw_typical(console, result.run)
    learned = result.loss if result.validation_loss is None else result.validation_loss
    kind = "training" if result.validation_loss is None else "validation"
    done = f"{result.steps - result.first_step} steps" + f", to step {result.steps}," * bool(result.first_step)
    console.print(
        f"Trained {done} in {result.seconds:.0f} s. {kind.capitalize()} loss {learned:.3f} nats per token; "
        f"guessing by token frequency alone would score {result.unigram_entropy:.3f}.",
        soft_wrap=True,
        highlight=False,
    )
    if (predicted := result.predicted) is not None and result.step_seconds is not None:
        console.print(
            f"Predicted {seconds_in_words(predicted.step_seconds)} per step, measured "
            f"{seconds_in_words(result.step_seconds)}.",
            soft_wrap=True,
            highlight=False,
        )
    console.print(f"Look at it with: heddle report {result.run}", soft_wrap=True, highlight=False)
    if not own:
        console.print(f'Sample from it with: heddle generate {result.run} --prompt "…"', soft_wrap=True)


def _tell(console: Console, found: Search | NetworkSearch) -> None:
    """What was planned for a job that has no plan."""
    from heddle.cost.measured.local_machine import disturbed
    from heddle.planning.best import choice_in_words

    console.print(choice_in_words(found), markup=False, soft_wrap=True)
    if disturbed(found.best.cluster):
        source = found.best.cluster.efficiency.source
        console.print(f"The predicted time is based on {source}.", style="yellow", soft_wrap=True)


def _draw_typical(console: Console, run: Path) -> None:
    """The step that `heddle trace` draws. Its files may lie on other machines; that command says so when asked."""
    from contextlib import suppress

    from heddle.runs.metrics import read_metrics, typical_step
    from heddle.trace.steps import read_step, traced_steps
    from heddle.trace.terminal import draw

    with suppress(HeddleError):
        traces = run / "traces"
        step = typical_step(traced_steps(traces), read_metrics(run / "metrics.jsonl")) or 0
        console.print(draw(read_step(traces, step), console.width), soft_wrap=True)
        console.print()


def _refuse_together(dry_run: bool, others: dict[str, bool]) -> None:
    """A dry run leaves nothing behind, and only a dry run speaks JSON."""
    if not dry_run:
        raise HeddleError(
            "--json goes with --dry-run.",
            "Training writes its numbers to metrics.jsonl in the run folder.",
            "Leave --json out, or add --dry-run.",
        )
    for option, given in others.items():
        if given:
            raise HeddleError(
                f"--dry-run and {option} exclude each other.",
                "A dry run takes one step with meta tensors, and writes nothing.",
                f"Leave {option} out.",
            )
