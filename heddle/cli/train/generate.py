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
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a question, which the chat template writes.")
    ] = False,
) -> None:
    """Write text with a trained model."""
    from heddle.cli.common import require_torch

    require_torch("generate")

    from heddle.api.text import TextModel

    model = TextModel(run, partial(typer.secho, err=True), tiles, int8)
    ids, ending = model.asked(prompt) if chat else (model.encode(prompt), [])
    decode = model.tokenizer.decode
    text: list[int] = []
    for number in range(count):
        if number:
            typer.echo("\n" + "─" * 40)
        typer.echo("" if chat else prompt, nl=False)
        text, shown = [], ""
        for token in model.continued(
            ids, tokens, ending, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed + number
        ):
            text.append(token)
            # A character may take several tokens: hold back what does not decode yet.
            decoded = decode(text)
            if not decoded.endswith("\ufffd"):
                typer.echo(decoded[len(shown) :], nl=False)
                shown = decoded
        typer.echo(decode(text)[len(shown) :])
    if int8 and model.engine is not None:
        from heddle.tiles.generate import int8_error

        found = int8_error(model.engine, [*ids, *text])
        typer.secho(str(found or "One token is too few to measure the int8 error."), err=True)
