"""`heddle lanes`: straight-line code into the lanes of vectors, by an exact program, next to LLVM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heddle.cli.ranged import POSITIVE, ranged


def lanes(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.c|FILE.ll|bench FOLDER|train [FOLDER]",
            help="A kernel file; or bench FOLDER, or train FOLDER.",
        ),
    ],
    function: Annotated[str | None, typer.Option("--function", "-f", help="Only this function.")] = None,
    method: Annotated[str, typer.Option("--method", help="auto, llvm, ilp, policy or pairs")] = "auto",
    cpu: Annotated[
        str | None, typer.Option("--cpu", help="The CPU whose costs to use. Default: the closest to this machine.")
    ] = None,
    timed: Annotated[
        bool,
        typer.Option(
            "--time",
            help="Run and time the candidates here and keep the fastest: runs the file's code.",
        ),
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the packs and the cost of each candidate.")] = False,
    assembly: Annotated[bool, typer.Option("--assembly", "-S", help="Print or write assembly instead of IR.")] = False,
    time_limit: Annotated[
        float, ranged("--time-limit", within=POSITIVE, help="Seconds for the integer program, per region of code.")
    ] = 10.0,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="The policy's weights, as written by heddle lanes train.")
    ] = None,
    cflags: Annotated[list[str] | None, typer.Option("--cflags", help="Flags for clang, if the file is C.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the module, the table or the weights to this file.")
    ] = None,
) -> None:
    """Pack straight-line code into vectors: the better of LLVM's way and the exact one, checked bit for bit.

    Checking and --time run the code of the file, with your rights: use it only on code you trust.
    """
    import json
    import os
    import sys

    # The policy's matrices are small: threads would wait for each other longer than they work. Read once, by NumPy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from heddle.cli.common import write_output
    from heddle.console import plain_console
    from heddle.errors import HeddleError
    from heddle.lanes.portfolio import Options

    console = plain_console()
    status = plain_console(stderr=True)

    def progress(line: str) -> None:
        if sys.stderr.isatty():
            status.print(f"{line:<79}"[:79], end="\r")

    if output is not None:
        _check_output(output)
    options = Options(method=method, family=cpu, seconds=time_limit, time=timed, weights=weights, progress=progress)
    if what[0] == "bench":
        _bench(_folder(what), options, tuple(cflags or ()), as_json, output, console)
        return
    if what[0] == "train":
        _train(_folder(what) if len(what) > 1 else None, options, output, console)
        return
    if len(what) > 1:
        raise HeddleError(
            f"heddle lanes takes one file, got {len(what)}.",
            "Each file is a separate module.",
            "For many at once: heddle lanes bench FOLDER.",
        )
    from heddle.lanes.ir import assembly as assembly_of
    from heddle.lanes.ir import read_source
    from heddle.lanes.portfolio import improve
    from heddle.lanes.text import explained, summary

    path = Path(what[0])
    found = improve(read_source(path, cflags=tuple(cflags or ())), options, function, str(path))
    text = assembly_of(found.text, str(path)) if assembly else found.text
    if output is not None:
        write_output(output, text)
    if as_json:
        console.out(json.dumps(found.facts()))
        return
    if output is None and not explain and not timed:
        console.out(text)
        return
    for line in (explained if explain else summary)(found):
        console.print(line, soft_wrap=True, markup=False)
    if output is not None:
        console.print(f"written  {output}", soft_wrap=True, markup=False)


def _check_output(path: Path) -> None:
    """Before the work, which may take long: whether it can be written there, and not over somebody's C."""
    import errno

    from heddle.errors import HeddleError
    from heddle.files import unwritable
    from heddle.lanes.ir import COMPILED

    if path.suffix in COMPILED:
        raise HeddleError(
            f"-o {path} is the name of a C file.",
            "IR, assembly, a table or weights would replace what is there.",
            f"Name it {path.stem}.ll, or {path.stem}.s for assembly.",
        )
    if path.is_dir() or not path.parent.is_dir():
        raise unwritable(path, OSError(errno.EISDIR if path.is_dir() else errno.ENOENT, ""))


def _folder(what: list[str]) -> Path:
    from heddle.errors import HeddleError

    if len(what) != 2:
        raise HeddleError(
            f"`heddle lanes {what[0]}` takes one folder, got {len(what) - 1}.",
            "It searches that folder and its subfolders for .c and .ll files.",
            f"heddle lanes {what[0]} kernels/",
        )
    return Path(what[1])


def _bench(
    folder: Path, options: Any, cflags: tuple[str, ...], as_json: bool, output: Path | None, console: Any
) -> None:
    import json

    from heddle.cli.common import write_output
    from heddle.lanes.bench import bench, table_of

    found = bench(folder, options, cflags)
    text = json.dumps(found)
    if output is not None:
        write_output(output, text + "\n")
    if as_json:
        console.out(text)
        return
    for line in table_of(found):
        console.print(line, soft_wrap=True, markup=False)


def _train(folder: Path | None, options: Any, output: Path | None, console: Any) -> None:
    from heddle.cli.common import require_torch

    require_torch("lanes train")
    from heddle.lanes.policy.train import train

    for line in train(folder, options.checked().family, output or Path("lanes-policy.safetensors")):
        console.print(line, soft_wrap=True, markup=False)
