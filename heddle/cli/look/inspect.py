"""`heddle inspect`: what a checkpoint holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from heddle.checkpoint.contents import CheckpointVerdict, Contents, HeldTensor


def inspect(
    folder: Annotated[
        Path, typer.Argument(help="A run, a checkpoint or a Hugging Face folder.", metavar="RUN|CHECKPOINT|FOLDER")
    ],
    every: Annotated[bool, typer.Option("--all", help="List every tensor, not only totals per layer.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and compare checksums.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """List what a checkpoint holds; with --verify, check that it is intact."""
    from heddle.cli.common import require_torch

    require_torch("inspect")

    import json

    from heddle.checkpoint.contents import contents_of
    from heddle.checkpoint.contents import verify as compare_checksums
    from heddle.console import plain_console
    from heddle.errors import HeddleError

    contents = contents_of(folder)
    verdict = compare_checksums(contents) if verify else None
    console = plain_console()
    if as_json:
        console.out(json.dumps(facts(contents, verdict)))
    else:
        console.print(_head(contents, verdict))
        console.print()
        console.print(_every_tensor(contents.tensors) if every else _by_layer(contents.tensors))
    if verdict is not None and verdict.problems:
        raise HeddleError(
            f"{contents.folder} is damaged.", " ".join(verdict.problems[:3]), "Copy it again, or use another."
        )


def facts(contents: Contents, verdict: CheckpointVerdict | None) -> dict[str, Any]:
    """Everything, in plain data."""
    from dataclasses import asdict

    from heddle.spec.tables import to_table

    tensors = {
        each.name: {"shape": each.shape, "dtype": each.dtype, "boxes": len(each.files), "bytes": each.bytes}
        for each in contents.tensors
    }
    known = {
        "kind": contents.kind,
        "folder": str(contents.folder),
        "step": contents.step,
        "imported": contents.imported,
        "plan": contents.plan,
        "plan_hash": contents.plan_hash,
        "model": to_table(contents.model),
        "parameters": contents.parameters,
        "optimizer": contents.optimizer,
        "files": contents.files,
        "tensors": tensors,
    }
    return known if verdict is None else known | {"verified": not verdict.problems, "checksums": asdict(verdict)}


def _head(contents: Contents, verdict: CheckpointVerdict | None) -> Table:
    from heddle.format import size

    model = contents.model
    rows = {"folder": str(contents.folder)}
    if contents.kind == "huggingface":
        rows["kind"] = "Hugging Face"
    elif contents.imported is not None:
        rows["kind"] = f"checkpoint, imported from {contents.imported}"
    else:
        others = f"; older ones: {', '.join(contents.others)}" if contents.others else ""
        rows["kind"] = f"checkpoint of step {contents.step}{others}"
    rows["model"] = f"{model.name}: {model.layers} layers, hidden {model.hidden}"
    rows["model"] += ", a module of its user's" if model.own else f", {model.heads} heads"
    if contents.plan is not None:
        from heddle.spec.axes import WRITTEN

        degrees = " × ".join(f"{name} {contents.plan[name]}" for name in WRITTEN if name in contents.plan)
        rows["plan"] = f"{degrees}, hash {contents.plan_hash}"
    rows["parameters"] = f"{contents.parameters:,}"
    rows["optimizer"] = "included" if contents.optimizer else "none: runs can start from it, not resume"
    total = sum(tensor.bytes for tensor in contents.tensors)
    rows["files"] = f"{len(contents.files)}, {size(total)} of tensors"
    if verdict is not None:
        rows["checksums"] = str(verdict)
    table = _plain_table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _every_tensor(tensors: Sequence[HeldTensor]) -> Table:
    from heddle.format import size

    table = _plain_table("tensor", "shape", "dtype", "boxes", "size")
    for each in tensors:
        shape = " × ".join(map(str, each.shape))
        table.add_row(each.name, shape, each.dtype, str(len(each.files)), size(each.bytes))
    return table


def _by_layer(tensors: Sequence[HeldTensor]) -> Table:
    """A line a layer, and one for each run of layers that are alike."""
    from heddle.format import size

    table = _plain_table("tensors", "count", "numbers", "dtype", "boxes", "size")
    layers: dict[str, list[HeldTensor]] = {}
    for each in tensors:
        layers.setdefault(_layer_of(each), []).append(each)
    for _, alike in groupby(layers.items(), key=lambda pair: _kind(*pair)):
        names, held = zip(*alike, strict=True)
        whole = [each for part in held for each in part]
        name = names[0] if len(names) == 1 else f"{names[0]}–{re.findall(r'[0-9]+', names[-1])[-1]}"
        count = str(len(whole)) if len(names) == 1 else f"{len(names)} × {len(held[0])}"
        numbers, dtypes = sum(each.numbers for each in whole), sorted({each.dtype for each in whole})
        boxes = sum(len(each.files) for each in whole)
        table.add_row(
            name, count, f"{numbers:,}", ", ".join(dtypes), str(boxes), size(sum(each.bytes for each in whole))
        )
    return table


def _layer_of(tensor: HeldTensor) -> str:
    """The layer that a tensor belongs to, or what it is called by where it belongs to none; the optimizer's apart."""
    layer = re.match(r".*?\.\d+(?=\.)", tensor.name)
    return ("optimizer of " if tensor.state else "") + (layer[0] if layer else tensor.name.partition(":")[0])


def _kind(name: str, held: list[HeldTensor]) -> object:
    """Equal for layers that differ in their number alone."""
    return re.sub(r"\d+", "", name), [(each.shape, each.dtype, len(each.files)) for each in held]


def _plain_table(*columns: str, show_header: bool = True) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=show_header, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table
