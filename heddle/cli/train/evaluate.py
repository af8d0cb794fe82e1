"""`heddle evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, ranged


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run, a checkpoint or a Hugging Face folder.", metavar="RUN")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Texts or globs; what the run kept for validation if left out.", metavar="FILES"),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="The files are conversations; the assistant's turns are predicted.")
    ] = False,
    sequence: Annotated[
        int | None, ranged(within=COUNT, help="Tokens seen together; the run's if left out, or the model's.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Tasks of lm-eval, separated by commas.", metavar="A,B")] = None,
    task_folder: Annotated[
        Path | None, typer.Option(help="A folder with tasks of your own, as lm-eval describes them.")
    ] = None,
    limit: Annotated[int | None, ranged(within=COUNT, help="Questions of each task; all if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Measure a trained model: perplexity on files, or tasks of lm-eval."""
    from heddle.cli.common import require_torch

    require_torch("evaluate")
    from heddle.api.evaluate import evaluate as measure
    from heddle.console import plain_console

    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    found = measure(run, files or (), chat=chat, sequence=sequence, tasks=names, task_folder=task_folder, limit=limit)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json()))
        return
    console = plain_console(soft_wrap=True)
    if (made := found.perplexity) is not None:
        bits = "" if made.bits_per_byte is None else f", {made.bits_per_byte:.4f} bits per byte"
        words = (
            f"{found.what}: loss {made.loss:.4f}, perplexity {made.perplexity:.3f}{bits}, over {made.tokens:,} tokens"
        )
        console.print(words, highlight=False, markup=False)
    for task, numbers in (found.tasks or {}).items():
        shown = ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())
        console.print(f"{task}: {shown}", highlight=False, markup=False)
