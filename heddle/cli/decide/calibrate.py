"""`heddle calibrate`: fit the few constants of a cluster to runs that were measured on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import ranged


def calibrate(
    cluster: Annotated[str, typer.Option(help="A cluster file or preset to start from.", metavar="FILE")],
    rows: Annotated[
        list[Path], typer.Option("--from", help="Measured runs, layer times or collectives; repeatable.", metavar="CSV")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the calibrated cluster to this file.", metavar="FILE")
    ],
    constants: Annotated[
        list[str] | None, typer.Option("--fit", help="Constants to fit; repeatable. Default: all.", metavar="NAME")
    ] = None,
    loosen: Annotated[
        float,
        ranged(within="[1, 100]", help="Let constants move this many times farther from the given ones."),
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print how well it fits as JSON.")] = False,
) -> None:
    """Fit a cluster's constants to measured rows, and say how well they predict unseen rows."""
    import json

    from heddle.calibrate.calibrate import CONSTANTS
    from heddle.calibrate.calibrate import calibrate as fit
    from heddle.cli.common import write_output
    from heddle.console import plain_console
    from heddle.spec.cluster import dumps_cluster
    from heddle.spec.shorthand import named_cluster

    start = named_cluster(cluster)
    found = fit(start, rows, constants or CONSTANTS, loosen)
    write_output(output, dumps_cluster(found.cluster))
    efficiency = found.cluster.efficiency
    fitted = {name: getattr(efficiency, name) for name in (constants or CONSTANTS)} if found.fit else {}
    doubts = () if found.fit is None or found.kept else found.fit.implausible
    held = () if found.fit is None or found.kept else found.fit.held
    console = plain_console()
    if as_json:
        facts = {
            "constants": fitted,
            "rows": 0 if found.fit is None else len(found.fit.errors),
            "mape": None if found.fit is None else found.fit.mape,
            "leave_one_out": None if found.fit is None else found.fit.leave_one_out,
            "unfitted": None if found.fit is None else found.fit.unfitted,
            "kept": found.kept,
            "implausible": list(doubts),
            "held": list(held),
            "collectives": found.collectives,
            "skipped": [{"id": name, "why": why} for file in found.files for name, why in file.skipped],
            "output": str(output),
        }
        console.out(json.dumps(facts))
        return
    for name, value in fitted.items():
        console.print(f"{name:<14} {value:>8.4g}   (was {getattr(start.efficiency, name):.4g})")
    if found.collectives:
        link = found.cluster.links[0]
        console.print(f"{link.name}: {link.efficiency:.1%} of {link.gbs:g} GB/s, {link.latency_us:g} us per hop")
    if found.fit is not None:
        console.print(
            f"\n{len(found.fit.errors)} rows: mean error {found.fit.mape:.2f} %, "
            f"leave-one-out {found.fit.leave_one_out:.2f} %, before fitting {found.fit.unfitted:.2f} %",
            soft_wrap=True,
        )
    if found.kept:
        console.print(
            f"Fitting does not improve predictions of unseen rows: the constants of '{start.name}' are kept.",
            soft_wrap=True,
        )
    for words in held:
        console.print(f"held: {words}", soft_wrap=True)
    if any("prior" in words for words in held):
        console.print(f"If the rows are right, let constants move farther: --loosen {2 * loosen:g}", soft_wrap=True)
    for doubt in doubts:
        console.print(f"implausible: {doubt}", soft_wrap=True)
    for file in found.files:
        for name, why in file.skipped:
            console.print(f"skipped {name}: {why}", soft_wrap=True)
    console.print(f"Written to {output}.", soft_wrap=True)
