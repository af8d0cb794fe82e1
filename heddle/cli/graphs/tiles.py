"""`heddle tiles`: a network on CPU cores, tile by tile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.help import Command, CommandGroup
from heddle.cli.ranged import POSITIVE, ranged

if TYPE_CHECKING:
    from heddle.trace import Trace

app = typer.Typer(cls=CommandGroup, help="Run a network on CPU cores, tile by tile.", no_args_is_help=True)

SOURCE = Annotated[
    str, typer.Argument(metavar="MODULE.py:FUNCTION", help="A function that returns (module, example inputs).")
]


@app.callback()
def _tiles() -> None:
    """What the manual's page on the group begins with."""


class _Source:
    """What a user's function makes, in whatever process asks."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self) -> tuple[Any, Any, Any]:
        from heddle.capturing.module_file import load_source

        module, inputs, keywords = load_source(self.text)
        return module, tuple(inputs), dict(keywords)


@app.command(cls=Command)
def bench(
    source: SOURCE,
    threads: Annotated[str, typer.Option("--threads", help="Numbers of workers to time, such as 1,2.")] = "",
    peers: Annotated[
        bool, typer.Option("--peers", help="Also time torch.compile, onnxruntime and OpenVINO, if installed.")
    ] = False,
    rounds: Annotated[int, ranged("--rounds", within="[1, 1e4]", help="Rounds per engine.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Time a module run as tiles against PyTorch and others, each in its own process."""
    import json

    from heddle.cli.common import require_torch
    from heddle.console import plain_console

    require_torch("tiles bench")
    from heddle.tiles.bench import bench as measure
    from heddle.tiles.peers import OURS, installed

    counts = _threads(threads)
    make = _Source(source)
    make()  # a mistake in the user's file is told here, not by another process
    names = installed() if peers else list(OURS)
    cases = [measure(make, count, names, rounds) for count in counts]
    console = plain_console()
    if as_json:
        console.out(json.dumps({"cases": cases}))
        return
    for case in cases:
        ours = case["milliseconds"]["heddle"]
        console.print(
            f"{case['threads']} thread{'s' * (case['threads'] > 1)}: {case['tiles']:,} tiles, "
            f"largest error {case['max_error']:.1e}"
        )
        for name, value in sorted(case["milliseconds"].items(), key=lambda item: item[1]):
            ratio = f"{value / ours:.2f}×" if name != "heddle" else ""
            console.print(f"  {name:<12} {value:>9.2f} ms  best {case['minimum'][name]:>9.2f} ms  {ratio}")
        for name, reason in case["missing"].items():
            console.print(f"  {name:<12} {reason}", markup=False, soft_wrap=True)
        if case["fallback_operators"]:
            console.print(f"  run by PyTorch: {', '.join(case['fallback_operators'])}", markup=False, soft_wrap=True)


@app.command(cls=Command)
def simulate(
    source: SOURCE,
    cores: Annotated[int, ranged("--cores", within="[1, 4096]", help="Cores of the machine.")] = 64,
    slow: Annotated[
        str | None, typer.Option("--slow", help="Slow cores, as NUMBERxSPEED: 8x0.45.", metavar="NxS")
    ] = None,
    bandwidth: Annotated[
        float | None,
        ranged("--bandwidth", within=POSITIVE, help="Its memory bandwidth in GB/s. Default: grows with the cores."),
    ] = None,
    calls: Annotated[int, ranged("--calls", within="[1, 1e4]", help="Calls to measure on one core here.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Predict the module on a machine you do not have, from times measured here."""
    import json

    from heddle.cli.common import require_torch
    from heddle.console import plain_console

    require_torch("tiles simulate")
    from heddle.tiles.measure import measured_workload
    from heddle.tiles.simulate import Machine, simulated

    machine = Machine.of(cores, slow, None if bandwidth is None else 1e9 * bandwidth)
    found = simulated(measured_workload(*_Source(source)(), cores, calls), machine)
    console = plain_console()
    if as_json:
        console.out(json.dumps(found))
        return
    console.print(
        f"{found['tiles']:,} tiles, {found['one_core_milliseconds']:.2f} ms on one core; simulated: {cores} cores, "
        f"{found['speeds']:.1f} times the speed of one",
        soft_wrap=True,
    )
    for name, value in found["milliseconds"].items():
        console.print(f"  {name:<20} {value:>9.3f} ms  {found['speedup'][name]:>6.2f}× one core")
    for name, value in found["dataflow_gain"].items():
        without = found["dataflow_gain_without_spread"][name]
        console.print(
            f"dataflow over {name}: {value:.2f}× ({without:.2f}× without the spread of tile times)", soft_wrap=True
        )


@app.command(cls=Command)
def trace(
    source: SOURCE,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help=".html for a report, .json for ui.perfetto.dev, .svg or .png.", metavar="FILE"
        ),
    ],
    threads: Annotated[str, typer.Option("--threads", help="Workers. Default: all cores.")] = "",
) -> None:
    """Write which core ran which tile when."""
    from heddle.cli.common import require_torch, write_output, write_trace
    from heddle.console import plain_console

    require_torch("tiles trace")
    from heddle.tiles.measure import traced

    module, inputs, keywords = _Source(source)()
    found: Trace = traced(module, inputs, keywords, _threads(threads)[0])
    console = plain_console()
    console.print(f"{len(found.spans):,} tiles on {found.ranks} cores in {1e3 * found.duration:.2f} ms")
    for rank in range(found.ranks):
        busy = found.busy(rank) / (found.duration or 1)
        console.print(f"core {rank}: busy {busy:.0%} of the time")
    if output.suffix == ".html":
        from heddle.reporting.cores import render_cores

        write_output(output, render_cores(source, found))
        console.print(f"Written to {output}. It opens in any browser.", soft_wrap=True)
    else:
        console.print(write_trace(output, found), soft_wrap=True)


def _threads(text: str) -> list[int]:
    """Numbers of workers as a user writes them."""
    import re

    from heddle.errors import HeddleError
    from heddle.files import shown
    from heddle.tiles.engine.pool import MOST, cores

    words = [word.strip() for word in text.split(",")] if text else [str(cores())]
    if not all(re.fullmatch("[0-9]{1,9}", word) and 1 <= int(word) <= MOST for word in words):
        raise HeddleError(
            f"--threads {shown(text)} is not a list of worker counts.", f"Each is 1 to {MOST}.", "--threads 1,2"
        )
    return [int(word) for word in words]
