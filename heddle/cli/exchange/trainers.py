"""`heddle export megatron` and others, `heddle import megatron-args` and others: plans to and from other trainers."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.help import Command
from heddle.cli.ranged import ranged

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.simulating.simulation import Simulation
    from heddle.spec.job import Job
    from heddle.trainers.imported import ImportedSettings

# what each writes and reads: words of help
EXPORTED = {
    "megatron": "a script that starts Megatron-LM with the arguments of the plan",
    "torchtitan": "a TOML file for torchtitan",
    "deepspeed": "a JSON configuration for DeepSpeed",
    "accelerate": "a YAML file for accelerate launch",
    "nemo": "a YAML file that overrides a recipe of NeMo's Megatron-Bridge",
}
IMPORTED = {
    "megatron-args": ("megatron", "Megatron-LM's arguments, of the whole command or of the script that has it"),
    "torchtitan": ("torchtitan", "a TOML file for torchtitan, or of its flags"),
    "deepspeed": ("deepspeed", "a JSON configuration for DeepSpeed; --model or --job says what it trains"),
}


class Dtype(StrEnum):
    """What weights may be rounded to."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


def add_exports(app: typer.Typer) -> None:
    """A command for each trainer that plans are written for."""
    for trainer, words in EXPORTED.items():
        app.command(trainer, cls=Command, help=f"Write {words}; a job without a plan is planned first.")(
            _export(trainer)
        )


def _export(trainer: str) -> Callable[..., None]:
    def export(
        job: Annotated[Path, typer.Argument(help="A job file.", metavar="JOB.toml")],
        output: Annotated[
            Path | None, typer.Option("--output", "-o", help="The file to create. Default: print it.", metavar="FILE")
        ] = None,
        changes: Annotated[
            list[str] | None,
            typer.Option("--set", help="Change a key: --set plan.tensor=4.", metavar="TABLE.KEY=VALUE"),
        ] = None,
    ) -> None:
        from heddle.console import plain_console
        from heddle.files import check_output, write_output
        from heddle.planning.best import with_best_plan
        from heddle.spec.changes import load_with_changes
        from heddle.trainers.registry import exported_plan

        planned, _ = with_best_plan(load_with_changes(job, changes or []))
        found = exported_plan(planned, trainer)
        console = plain_console(soft_wrap=True)
        if output is None:
            console.out(found.text, end="", highlight=False)
        else:
            check_output(output)
            write_output(output, found.text)
            console.print(f"Wrote {output} for {found.trainer}.", highlight=False)
        told = [] if output is None and "\n# - " in found.text else found.missing  # what is printed says it itself
        for line in told:
            typer.secho(f"not expressed: {line}", err=True)

    export.__name__ = trainer
    return export


def add_imports(app: typer.Typer) -> None:
    """A command for each trainer that launch lines are read of."""
    for command, (trainer, words) in IMPORTED.items():
        text = f"Make a job of {words}; show its time and memory, and a better plan if there is one."
        app.command(command, cls=Command, help=text)(_import(command, trainer))


def _import(command: str, trainer: str) -> Callable[..., None]:
    def read(
        given: Annotated[str, typer.Argument(help="The line in quotes, or the file that has it.", metavar="LINE|FILE")],
        output: Annotated[
            Path | None, typer.Option("--output", "-o", help="The job file to create.", metavar="JOB.toml")
        ] = None,
        cluster: Annotated[
            str | None, typer.Option(help="A cluster preset, or a file with [cluster]. Default: dgx-h100.")
        ] = None,
        nodes: Annotated[
            int | None, ranged(within="[1, 1e6]", help="Its nodes. Default: as the launch line says.")
        ] = None,
        model: Annotated[
            str | None, typer.Option(help="The model, where the line does not say: a preset, or a config.json.")
        ] = None,
        vocab: Annotated[int | None, ranged(within="[1, 1e9]", help="Tokens of the vocabulary.")] = None,
        job: Annotated[
            Path | None, typer.Option(help="A job file that says what the line does not.", metavar="JOB.toml")
        ] = None,
        search: Annotated[bool, typer.Option(help="Look for a better plan.")] = True,
        as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    ) -> None:
        import json
        from dataclasses import replace

        from heddle.console import plain_console
        from heddle.files import check_output, write_output
        from heddle.simulating.simulation import simulate
        from heddle.spec.job import dumps_job, load_job
        from heddle.spec.shorthand import named_cluster, named_model
        from heddle.trainers.registry import imported_settings

        found = imported_settings(trainer, given)
        if vocab is not None and found.model is not None:
            found.model["vocab"] = vocab
            found.assumed = [line for line in found.assumed if not line.startswith("vocabulary:")]
        shape = None
        if model is not None:
            shape = named_model(model)
            shape = shape if vocab is None else replace(shape, vocab=vocab)
        made = found.job(
            shape,
            None if cluster is None else named_cluster(cluster),
            nodes,
            None if job is None else load_job(job),
        )
        prediction = simulate(made.planned)
        better = _better(made, prediction, trainer) if search else None
        if output is not None:
            check_output(output)
            write_output(output, dumps_job(made))
        console = plain_console(soft_wrap=True)
        if as_json:
            console.out(json.dumps(_facts(found, prediction, better)))
            return
        _show(console, found, prediction, better)
        if output is not None:
            console.print(f"Wrote {output}; `heddle plan {output}` ranks plans for it.", highlight=False)

    read.__name__ = command.replace("-", "_")
    return read


def _better(job: Job, now: Simulation, trainer: str) -> Simulation | None:
    """The fastest plan that the trainer can run, if it is faster, or the first that fits."""
    from heddle.errors import HeddleError
    from heddle.planning.best import best
    from heddle.planning.request import PlanRequest
    from heddle.trainers.registry import exported_plan

    try:
        found = best(job, PlanRequest(by_layer=False, top=20))
    except HeddleError:  # nothing fits
        return None
    for each in found.plans:
        if now.fits and each.step_seconds >= 0.995 * now.step_seconds:
            return None
        if not exported_plan(each.job, trainer).plan_missing:
            return each
    return None


def _facts(found: ImportedSettings, now: Simulation, better: Simulation | None) -> dict[str, Any]:
    from heddle.spec.tables import to_table

    def told(each: Simulation) -> dict[str, Any]:
        return each.to_json() | {"plan": to_table(each.plan), "fits": each.fits}

    return {
        "trainer": found.trainer,
        "now": told(now),
        "better": None if better is None else told(better),
        "assumed": found.assumed,
        "not_taken_over": found.dropped,
        "not_understood": found.unknown,
    }


def _show(console: Console, found: ImportedSettings, now: Simulation, better: Simulation | None) -> None:
    from heddle.format import GIB, seconds_in_words
    from heddle.planning.search.describe import in_words

    job = now.job
    console.print(
        f"{found.trainer}: {job.model.name}, {job.model.parameters:,} parameters, on "
        f"{now.plan.world:,} × {now.cluster.device.name}, batch {job.train.global_batch} × {job.sequence:,} tokens, "
        f"{job.precision}",
        highlight=False,
    )

    def line(title: str, each: Simulation) -> None:
        bar = "" if each.error_bar is None else f" {each.error_bar}"
        held = f"{each.worst / GIB:.1f} of {each.limit / GIB:.1f} GiB"
        fits = "" if each.fits else ", which does not fit"
        console.print(f"{title}  {in_words(each.plan)}", highlight=False)
        console.print(
            f"        {seconds_in_words(each.step_seconds)} per step{bar}, MFU {each.mfu:.1%}, {held}{fits}",
            highlight=False,
        )

    line("now   ", now)
    if better is not None:
        line("better", better)
        if now.fits:
            console.print(f"        {now.step_seconds / better.step_seconds - 1:.1%} faster", highlight=False)
    else:
        console.print(f"better  none that {found.trainer} could run" if not now.fits else "better  none was found")
    for title, lines in (
        ("assumed", found.assumed),
        ("not taken over", found.dropped),
        ("not understood", found.unknown),
    ):
        for each in lines:
            console.print(f"{title}: {each}", highlight=False, markup=False)
