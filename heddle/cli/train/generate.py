"""`heddle generate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, COUNT_OR_ZERO, ranged


def generate(
    run: Annotated[Path, typer.Argument(help="A run, a checkpoint or a Hugging Face folder.", metavar="RUN")],
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    tokens: Annotated[int, ranged(within=COUNT, help="How many tokens to add.")] = 200,
    temperature: Annotated[
        float, ranged(within="[0, 1e9]", help="Randomness; 0 always takes the likeliest token.")
    ] = 0.8,
    top_k: Annotated[
        int, ranged(within=COUNT_OR_ZERO, help="Sample from this many likeliest tokens; 0: from all.")
    ] = 0,
    top_p: Annotated[
        float, ranged(within="[0, 1]", help="Sample from the likeliest tokens that together reach this probability.")
    ] = 1.0,
    seed: Annotated[int, ranged(within="[0, 2^63)", help="The same seed gives the same text.")] = 0,
    count: Annotated[int, ranged(within=COUNT, help="How many samples.")] = 1,
    tiles: Annotated[
        bool, typer.Option("--tiles", help="Run on CPU cores tile by tile, where that is faster. Compiles first.")
    ] = False,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Decode with weights rounded to int8, by tiles; says how far off the logits are."),
    ] = False,
) -> None:
    """Write text with a trained model."""
    from heddle.cli.common import require_torch

    require_torch("generate")

    from heddle.checkpoint.load_model import load_for_inference
    from heddle.models.generate import generate as continue_text

    model, tokenizer = load_for_inference(run, partial(typer.secho, err=True))
    engine = None
    if tiles or int8:
        from heddle.tiles.generate import TileEngine

        engine = TileEngine(model, int8=int8)
    ids = [int(i) for i in tokenizer.encode(prompt)] or [tokenizer.end]
    text: list[int] = []
    for number in range(count):
        if number:
            typer.echo("\n" + "─" * 40)
        typer.echo(prompt, nl=False)
        stream = continue_text(
            model, ids, engine=engine, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed + number
        )
        text, shown = [], ""
        for token, _ in zip(stream, range(tokens), strict=False):
            if token == tokenizer.end:
                break
            text.append(token)
            # A character may take several tokens: hold back what does not decode yet.
            decoded = tokenizer.decode(text)
            if not decoded.endswith("\ufffd"):
                typer.echo(decoded[len(shown) :], nl=False)
                shown = decoded
        typer.echo(tokenizer.decode(text)[len(shown) :])
    if int8 and engine is not None:
        from heddle.tiles.generate import int8_error

        typer.secho(str(int8_error(engine, [*ids, *text]) or "A single token says nothing of int8 weights."), err=True)
