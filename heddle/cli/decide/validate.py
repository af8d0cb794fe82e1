"""`heddle validate`: predicted beside measured, for every row of a file of measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def validate(
    rows: Annotated[list[Path], typer.Argument(help="CSV files of measured runs.", metavar="ROWS.csv")],
    cluster: Annotated[
        str | None,
        typer.Option(help="A cluster file or preset. Default: the preset of each row's GPU.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Compare predictions with measured runs: step seconds and, where given, memory."""
    import json

    from heddle.calibrate.validate import validate as compare
    from heddle.console import plain_console
    from heddle.spec.shorthand import named_cluster
    from heddle.spec.software import PROFILES

    found = compare(rows, named_cluster(cluster) if cluster else None)
    console = plain_console()
    if as_json:
        console.out(json.dumps(found.to_json()))
        return
    width = max([len(row.id) for row in found.rows] + [len(name) for name, _ in found.skipped] + [4])
    console.print(f"{'run':<{width}}  measured s  predicted s    error     GiB  predicted    error", soft_wrap=True)
    for row in found.rows:
        line = f"{row.id:<{width}} {row.measured_s:>11.4g} {row.predicted_s:>12.4g} {row.error_pct:>7.1f}%"
        if row.measured_gib is not None:
            line += f" {row.measured_gib:>7.1f} {row.predicted_gib:>10.1f} {row.memory_error_pct:>7.1f}%"
        console.print(line, soft_wrap=True)
    for name, why in found.skipped:
        console.print(f"{name:<{width}}  skipped: {why}", soft_wrap=True)
    console.print()
    for name, errors in found.groups.items():
        if name != "all":  # rows that name neither a dataset nor a framework are in no group
            console.print(f"{name}: {errors}", soft_wrap=True)
    if found.rows:
        console.print(f"all: {found.seconds}; {len(found.skipped)} skipped", soft_wrap=True)
        if found.memory.count:
            console.print(f"memory: {found.memory}", soft_wrap=True)
    for name, count in found.software.items():
        console.print(f"software '{name}': {count} rows ({PROFILES[name].source})", soft_wrap=True)
    said = [(row.id, [word for word in row.assumed if not word.startswith("software")]) for row in found.rows]
    assumed = [f"{name} ({', '.join(words)})" for name, words in said if words]
    if assumed:
        console.print(f"\nNot stated and assumed: {'; '.join(assumed)}.", soft_wrap=True)
