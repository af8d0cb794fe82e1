"""`heddle place`: which operator of a graph goes to which device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT_OR_ZERO, POSITIVE, ranged
from heddle.format import GIB


def place(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH.json|MODULE.py:FUNCTION",
            help="An operator graph in the published format, or a function that returns (module, example inputs).",
        ),
    ],
    objective: Annotated[str, typer.Option("--objective", help="throughput or latency")] = "throughput",
    method: Annotated[str, typer.Option("--method", help="auto, dp, dpl, ip, greedy, local or one")] = "auto",
    devices: Annotated[
        int | None,
        ranged("--devices", "-k", within=COUNT_OR_ZERO, help="Accelerators. Default: the file's; 2 for a module."),
    ] = None,
    cpus: Annotated[int | None, ranged("--cpus", within=COUNT_OR_ZERO, help="CPUs. Default: the file's.")] = None,
    memory_gib: Annotated[
        float | None, ranged("--memory-gib", within=POSITIVE, help="Memory per accelerator. Default: the file's.")
    ] = None,
    contiguous: Annotated[
        bool, typer.Option("--contiguous/--any", help="Require a pipeline, or allow any split.")
    ] = True,
    times: Annotated[
        str, typer.Option("--times", help="Times of a module's operators: measured here, or modeled.")
    ] = "measured",
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Model a module's times on this cluster: a preset or a file.")
    ] = None,
    training: Annotated[
        bool,
        typer.Option("--training", help="For a module: place its backward, too. It returns a loss, or use --loss."),
    ] = False,
    loss: Annotated[
        str | None,
        typer.Option(
            help="Train with this loss of the output and the last input: cross_entropy or another of "
            "torch.nn.functional, a function of the module's file, or FILE.py:FUNCTION.",
            metavar="FUNCTION",
        ),
    ] = None,
    time_limit: Annotated[float, ranged("--time-limit", within=POSITIVE, help="Seconds, then the best so far.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the placement in the published format to this file.")
    ] = None,
) -> None:
    """Place the operators of a graph on accelerators and CPUs, for throughput or latency."""
    # Imported here so that `heddle --help` does not pay for them.
    import dataclasses
    import json
    import sys

    from heddle.cli.common import require_torch, write_output
    from heddle.console import plain_console
    from heddle.planning.placement.operator_graph import OperatorGraph, read_graph
    from heddle.planning.placement.place import place as search
    from heddle.planning.placement.text import draw, published
    from heddle.spec.shorthand import named_cluster

    memory = None if memory_gib is None else memory_gib * GIB
    operators: OperatorGraph
    if ".py:" in graph:
        require_torch("place MODULE.py:FUNCTION")
        from heddle.capturing.module_file import load_loss, load_source
        from heddle.capturing.placed import captured

        operators = captured(
            *load_source(graph),
            training=training or loss is not None,
            loss=None if loss is None else load_loss(loss, graph),
            times=times if cluster is None else "modeled",
            cluster=None if cluster is None else named_cluster(cluster),
            devices=2 if devices is None else devices,
            memory=memory,
        )
    else:
        _check_file(graph, {"--cluster": cluster, "--training": training, "--loss": loss})
        operators = read_graph(Path(graph))
    console = plain_console()
    status = plain_console(stderr=True)

    def progress(value: float, bound: float) -> None:
        if sys.stderr.isatty():
            status.print(f"best so far {value:.6g}, lower bound {bound:.6g}", end="\r")

    found = search(
        operators,
        objective=objective,
        method=method,
        contiguous=contiguous,
        devices=devices,
        cpus=cpus,
        memory=memory,
        time_limit=time_limit,
        progress=progress,
    )
    if output is not None:
        write_output(output, json.dumps(published(found)) + "\n")
    if as_json:
        facts = dataclasses.asdict(found) | {"unit": operators.unit or None}
        console.out(json.dumps(facts))
        return
    for line in draw(operators, found, console.width):
        console.print(line, soft_wrap=True, markup=False)
    if output is not None:
        console.print(f"written  {output}")


def _check_file(graph: str, of_modules: dict[str, object]) -> None:
    """A Python file is named with a function; and what is only about modules says nothing about a graph's file."""
    from heddle.errors import HeddleError

    if Path(graph).suffix == ".py":
        from heddle.capturing.module_file import functions_of

        known = functions_of(Path(graph))
        raise HeddleError(
            f"{graph} names no function.",
            "A function must make the module that is placed: it returns (module, example inputs).",
            f"Name it: heddle place {graph}:{known[-1] if known else 'make'}"
            + (f". Functions there: {', '.join(known)}." if len(known) > 1 else ""),
        )
    for option, given in of_modules.items():
        if given:
            raise HeddleError(
                f"{option} does not apply to {graph}.",
                "The file of a graph has its times, backward operators included.",
                f"Leave {option} out, or place a module: MODULE.py:FUNCTION.",
            )
