"""What `heddle plan` prints of a job over a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console

from heddle.errors import HeddleError

if TYPE_CHECKING:
    from heddle.simulate.simulation import Simulation
    from heddle.spec.job import Job


def show_over_network(
    job: Job,
    fixed: dict[str, Any],
    top: int,
    as_json: bool,
    explain: bool,
    refused: list[str],
    write: Callable[[Simulation], None] | None,
    allowed: str | None = None,
) -> None:
    """Search, write the best plan, and print what was found."""
    from heddle.plan.regions.coded import codes_in_words
    from heddle.plan.regions.network_search import reasons, search_network, table_lines
    from heddle.spec.network import in_words

    if refused:
        raise HeddleError(
            f"{refused[0]} does not go with a [network].",
            "Over a network, Heddle looks for the fastest plan on all of its devices.",
            f"Leave {refused[0]} out, or describe a smaller network.",
        )
    found = search_network(job, fixed, top, allowed=allowed)
    if write is not None:
        write(found.best)
    console = Console(highlight=False)
    if as_json:
        facts = found.to_json() | ({"explanation": list(reasons(found))} if explain else {})
        if words := list(codes_in_words(found.job, found.network, found.best.plan)):
            facts["codes"] = words
        console.out(json.dumps(facts))
        return
    assert job.network is not None
    lines = [
        f"{job.model.name}: {job.model.parameters:,} parameters over {in_words(job.network)}",
        f"batch {job.train.global_batch} × {job.sequence:,} tokens; searched in {found.seconds:.1f} s",
        "",
        *table_lines(found),
    ]
    if explain:
        lines += ["", *reasons(found)]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    if write is not None:
        console.print("\nWritten: start one process per device, numbered like the devices of the network.")
