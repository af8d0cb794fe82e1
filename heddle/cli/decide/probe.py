"""`heddle probe`: measure the links between all processes of a launch, and write them as a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import ranged


def probe(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the network to this file.", metavar="FILE.toml")
    ],
    processes: Annotated[
        int | None,
        ranged(within="[1, 1e4]", help="Processes to start on this machine. Default: 2, or those of the launcher."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter messages: a fifth of the time, less accurate.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="Say which links have changed since this network.", metavar="OLD.toml"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Measure latency and bandwidth between all processes of a launch; find groups and outliers."""
    import json
    import time

    from heddle.cli.common import require_torch, write_output
    from heddle.console import plain_console
    from heddle.files import check_output
    from heddle.runtime.environment import launched_place
    from heddle.spec.network import in_words
    from heddle.spec.network.changes import changed_links
    from heddle.spec.network.network_file import dumps_network, load_network
    from heddle.spec.tables import to_table

    require_torch("probe")
    place = launched_place()
    first = place is None or place.rank == 0
    before = load_network(compare) if first and compare is not None else None
    if first:
        check_output(output)
    from heddle.training.probe.probe import probe as measure
    from heddle.training.probe.probe import seconds_to_expect

    console = plain_console(quiet=not first)
    count = processes or 2
    expected = seconds_to_expect(count, quick)
    if not as_json:
        console.print(f"Measuring all pairs of {place.world if place else count}; about {expected:.0f} s.")
    began = time.monotonic()
    found = measure(count, quick)
    if found is None:
        return
    write_output(output, dumps_network(found.network))
    changed = [] if before is None else changed_links(before, found.network)
    if as_json:
        console.out(
            json.dumps(
                {
                    "changed": changed,
                    "network": to_table(found.network),
                    "ranks": found.ranks,
                    "oddities": found.oddities,
                    "expected_seconds": expected,
                    "seconds": time.monotonic() - began,
                }
            )
        )
        return
    console.print(in_words(found.network))
    for group in found.network.groups:
        inside = "" if group.inside is None else f", inside {group.inside.latency_ms} ms, {group.inside.gbps} Gbit/s"
        device = "" if group.device is None else f" × {group.device.name}, {group.device.memory_gib} GiB"
        console.print(f"group  {group.name}: {group.devices}{device}{inside}", markup=False, soft_wrap=True)
    for link in found.network.links:
        if not any(":" in end for end in link.ends):
            way = "and" if link.between else "to"
            one, two = link.ends
            console.print(f"link   {one} {way} {two}: {link.latency_ms} ms, {link.gbps} Gbit/s", markup=False)
    for word in found.oddities:
        console.print(f"odd    {word}", markup=False, soft_wrap=True)
    for word in changed:
        console.print(f"changed {word}", markup=False, soft_wrap=True)
    if before is not None:
        word = f"Plan again with {output}" if changed else f"No link has changed much since {compare}"
        console.print(f"{word}.", markup=False, soft_wrap=True)
    console.print(f"Written to {output} after {time.monotonic() - began:.0f} s.", soft_wrap=True)
