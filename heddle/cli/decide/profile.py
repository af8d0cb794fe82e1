"""`heddle profile`: measure the machine it runs on, and write what is found as a cluster file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import ranged

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.spec.cluster import Cluster


def profile(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the cluster to this file.", metavar="FILE.toml")
    ],
    processes: Annotated[
        int | None, ranged(within="[1, 1e4]", help="Processes to measure with. Default: one per GPU or core.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take seconds instead of most of a minute; far less accurate.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the cluster as JSON.")] = False,
) -> None:
    """Measure this machine: matrix products, memory, collectives, kernel launches, host and disk."""
    import json
    import time

    from heddle.cli.common import require_torch, write_output
    from heddle.console import plain_console
    from heddle.files import check_output
    from heddle.spec.cluster import dumps_cluster
    from heddle.spec.tables import to_table
    from heddle.spec.this_machine import this_machine

    require_torch("profile")
    check_output(output)
    from heddle.training.profile.profile import profile as measure

    began = time.monotonic()
    found = measure(processes or this_machine().devices, quick)
    write_output(output, dumps_cluster(found))
    console = plain_console()
    if as_json:
        console.out(json.dumps(to_table(found) | {"seconds": time.monotonic() - began}))
        return
    show(console, found)
    took = time.monotonic() - began
    console.print(f"Written to {output} after {took:.0f} s. Use it in a job as cluster.file.", soft_wrap=True)


def show(console: Console, found: Cluster) -> None:
    """What was measured, for people."""
    from heddle.spec.tables import to_table

    device, efficiency = found.device, found.efficiency
    console.print(f"{found.devices} × {device.name}, {device.memory_gib:.3g} GiB each")
    for precision, tflops in to_table(device.tflops).items():
        share = efficiency.matmul
        console.print(f"products    {tflops:.3g} TFLOP/s in {precision}, of which large ones reach {share:.0%}")
    console.print(f"            half of that at a smallest dim of {efficiency.half_dim:.0f}")
    console.print(f"attention   {efficiency.attention:.0%} of peak")
    console.print(f"memory      {device.memory_gbs:.3g} GB/s, of which kernels reach {efficiency.memory:.0%}")
    for tier, speed in (("host", device.host_gbs), ("disk", device.disk_gbs)):
        if speed is not None:
            console.print(f"{tier:<11} {speed:.3g} GB/s each way, for what a plan offloads")
    console.print(f"kernels     {_us(efficiency.launch_us)} us to start one")
    for link in found.links:
        console.print(
            f"messages    {link.gbs:.3g} GB/s, {_us(link.latency_us)} us per hop, "
            f"{_us(efficiency.collective_us)} us to start a collective"
        )


def _us(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
