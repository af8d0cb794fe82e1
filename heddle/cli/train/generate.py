"""`heddle generate`."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, COUNT_OR_ZERO, ranged


class Weights(StrEnum):
    """How tiles keep them."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    int8 = "int8"
    int4 = "int4"


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
    tiles: Annotated[bool, typer.Option("--tiles", help="Run on CPU cores tile by tile. Compiles first.")] = False,
    weights: Annotated[
        Weights,
        typer.Option(help="How tiles keep weights to decode with. Fewer bits say how far off the logits are."),
    ] = Weights.float32,
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a question, which the chat template writes.")
    ] = False,
) -> None:
    """Write text with a trained model."""
    from heddle.cli.common import require_torch

    require_torch("generate")

    from heddle.api.text import TextModel

    narrow = weights is not Weights.float32
    model = TextModel(run, partial(typer.secho, err=True), weights.value if tiles or narrow else None)
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
    if narrow and model.engine is not None:
        from heddle.tiles.generate import weight_error

        found = weight_error(model.engine, [*ids, *text])
        typer.secho(str(found or "One token is too few to measure what fewer bits change."), err=True)
