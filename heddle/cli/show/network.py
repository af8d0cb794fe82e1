"""What `heddle plan` prints of a job over a network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from heddle.console import plain_console

if TYPE_CHECKING:
    from heddle.planning.regions.network_search import NetworkSearch


def show_over_network(found: NetworkSearch, as_json: bool, explain: bool, written: bool) -> None:
    """Print what was found for a job."""
    from heddle.planning.regions.coded import codes_in_words
    from heddle.planning.regions.network_search import reasons, table_lines
    from heddle.spec.network import in_words

    console, job = plain_console(), found.job
    if as_json:
        facts = found.to_json() | ({"explanation": list(reasons(found))} if explain else {})
        if words := list(codes_in_words(found.job, found.network, found.best.plan)):
            facts["codes"] = words
        console.out(json.dumps(facts))
        return
    lines = [
        f"{job.model.name}: {job.model.parameters:,} parameters over {in_words(found.network)}",
        f"batch {job.train.global_batch} × {job.sequence:,} tokens; searched in {found.seconds:.1f} s",
        "",
        *table_lines(found),
    ]
    if explain:
        lines += ["", *reasons(found)]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    if written:
        console.print("\nWritten: start one process per device, numbered like the devices of the network.")
