"""`heddle lanes`: straight-line code into the lanes of vectors, by an exact program, next to LLVM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heddle.cli.help import Command, CommandGroup
from heddle.cli.ranged import POSITIVE, ranged


class _FileFirst(CommandGroup):
    """A file may follow at once: it is packed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["pack", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_FileFirst,
    help="Pack straight-line code into vectors. A file that follows at once is packed.",
    no_args_is_help=True,
)

METHOD = Annotated[str, typer.Option("--method", help="auto, llvm, ilp, policy or pairs")]
CPU = Annotated[
    str | None, typer.Option("--cpu", help="The CPU whose costs to use. Default: the closest to this machine.")
]
TIMED = Annotated[
    bool,
    typer.Option("--time", help="Run and time the candidates here and keep the fastest: runs the file's code."),
]
LIMIT = Annotated[
    float, ranged("--time-limit", within=POSITIVE, help="Seconds for the integer program, per region of code.")
]
WEIGHTS = Annotated[
    Path | None, typer.Option("--weights", help="The policy's weights, as written by heddle lanes train.")
]
CFLAGS = Annotated[list[str] | None, typer.Option("--cflags", help="Flags for clang, if the file is C.")]
JSON = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@app.callback()
def _lanes() -> None:
    """What the manual's page on the group begins with."""
    import os

    # The policy's matrices are small: threads would wait for each other longer than they work. Read once, by NumPy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@app.command(cls=Command)
def pack(
    files: Annotated[list[str], typer.Argument(metavar="FILE.c|FILE.ll", help="A kernel: C, C++ or LLVM IR.")],
    function: Annotated[str | None, typer.Option("--function", "-f", help="Only this function.")] = None,
    method: METHOD = "auto",
    cpu: CPU = None,
    timed: TIMED = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the packs and the cost of each candidate.")] = False,
    assembly: Annotated[bool, typer.Option("--assembly", "-S", help="Print or write assembly instead of IR.")] = False,
    time_limit: LIMIT = 10.0,
    weights: WEIGHTS = None,
    cflags: CFLAGS = None,
    as_json: JSON = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the module to this file.")] = None,
) -> None:
    """Pack a file: the better of LLVM's way and the exact one, checked bit for bit.

    Checking and --time run the code of the file, with your rights: use it only on code you trust.
    """
    import json

    from heddle.cli.common import write_output
    from heddle.console import plain_console
    from heddle.errors import HeddleError

    console = plain_console()
    _check_output(output)
    options = _options(method, cpu, time_limit, timed, weights)
    if len(files) > 1:
        raise HeddleError(
            f"heddle lanes takes one file, got {len(files)}.",
            "Each file is a separate module.",
            "For many at once: heddle lanes bench FOLDER.",
        )
    from heddle.lanes.ir import assembly as assembly_of
    from heddle.lanes.ir import read_source
    from heddle.lanes.portfolio import improve
    from heddle.lanes.text import explained, summary

    path = Path(files[0])
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


@app.command(cls=Command)
def bench(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look for C, C++ and IR, at any depth.")],
    method: METHOD = "auto",
    cpu: CPU = None,
    timed: TIMED = False,
    time_limit: LIMIT = 10.0,
    weights: WEIGHTS = None,
    cflags: CFLAGS = None,
    as_json: JSON = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table to this file, as JSON.")
    ] = None,
) -> None:
    """Compare the methods on all kernels of a folder.

    Checking and --time run the code of the files, with your rights: use it only on code you trust.
    """
    import json

    from heddle.cli.common import write_output
    from heddle.console import plain_console

    _check_output(output)
    options = _options(method, cpu, time_limit, timed, weights)
    from heddle.lanes.bench import bench as measure
    from heddle.lanes.bench import table_of

    console = plain_console()
    found = measure(folder, options, tuple(cflags or ()))
    text = json.dumps(found)
    if output is not None:
        write_output(output, text + "\n")
    if as_json:
        console.out(text)
        return
    for line in table_of(found):
        console.print(line, soft_wrap=True, markup=False)


@app.command(cls=Command)
def train(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="C and IR to learn from. Default: generated kernels only.")
    ] = None,
    cpu: CPU = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the weights to this file.")] = Path(
        "lanes-policy.safetensors"
    ),
) -> None:
    """Train the policy to imitate the integer program."""
    from heddle.cli.common import require_torch
    from heddle.console import plain_console

    _check_output(output)
    require_torch("lanes train")
    from heddle.lanes.policy.train import train as learn

    console = plain_console()
    for line in learn(folder, _options("auto", cpu, 10.0, False, None).checked().family, output):
        console.print(line, soft_wrap=True, markup=False)


def _options(method: str, cpu: str | None, seconds: float, timed: bool, weights: Path | None) -> Any:
    import sys

    from heddle.console import plain_console
    from heddle.lanes.portfolio import Options

    status = plain_console(stderr=True)

    def progress(line: str) -> None:
        if sys.stderr.isatty():
            status.print(f"{line:<79}"[:79], end="\r")

    return Options(method=method, family=cpu, seconds=seconds, time=timed, weights=weights, progress=progress)


def _check_output(path: Path | None) -> None:
    """Before the work, which may take long: whether it can be written there, and not over somebody's C."""
    import errno

    from heddle.errors import HeddleError
    from heddle.files import unwritable
    from heddle.lanes.ir import COMPILED

    if path is None:
        return
    if path.suffix in COMPILED:
        raise HeddleError(
            f"-o {path} is the name of a C file.",
            "IR, assembly, a table or weights would replace what is there.",
            f"Name it {path.stem}.ll, or {path.stem}.s for assembly.",
        )
    if path.is_dir() or not path.parent.is_dir():
        raise unwritable(path, OSError(errno.EISDIR if path.is_dir() else errno.ENOENT, ""))
