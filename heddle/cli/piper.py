"""`heddle piper`: the pipeline with the best throughput for a published Piper workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def piper(
    file: Annotated[Path, typer.Argument(help="A workload in the published format.")],
    devices: Annotated[
        int | None, typer.Option("--devices", "-k", help="Devices; the file's number by default.")
    ] = None,
    memory_gib: Annotated[float | None, typer.Option("--memory-gib", help="Memory of each; the file's.")] = None,
    bandwidth_gib: Annotated[float | None, typer.Option("--bandwidth-gib", help="GiB/s of each; the file's.")] = None,
    microbatches: Annotated[int | None, typer.Option("--microbatches", help="In a batch; the file's.")] = None,
    counts: Annotated[list[int] | None, typer.Option("--also", help="Other numbers of devices up to K.")] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds; then the best so far.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Find the pipeline with the best throughput: stages, degrees and memory options (Piper)."""
    # Imported here so that `heddle --help` does not pay for them.
    import dataclasses
    import json
    import time

    from rich.console import Console

    from heddle.errors import HeddleError
    from heddle.plan.piper import plan_pipelines
    from heddle.plan.piper_stages import OutOfTime
    from heddle.plan.piper_workload import read_workload

    workload = read_workload(file).replace(
        devices=devices,
        memory=None if memory_gib is None else memory_gib * 2**30,
        bandwidth=None if bandwidth_gib is None else bandwidth_gib * 2**30,
        microbatches=microbatches,
    )
    for count in counts or []:
        if not 1 <= count <= workload.devices:
            raise HeddleError(
                f"--also {count} is not between 1 and {workload.devices}.",
                "One run answers for every number of devices up to the largest.",
                f"Give the largest one as --devices {max(count, 1)}.",
            )
    started = time.perf_counter()
    try:
        answers = plan_pipelines(workload, [workload.devices, *(counts or [])], time_limit)
    except OutOfTime:
        raise HeddleError(
            f"No plan was found in {time_limit:g} s.",
            "The graph is large, or the memory so small that hardly anything fits.",
            f"Give it longer, --time-limit {10 * time_limit:g}, or more memory.",
        ) from None
    taken = time.perf_counter() - started
    best = answers[workload.devices]
    if best is None:
        raise HeddleError(
            f"No plan fits {workload.devices} devices of {workload.memory / 2**30:g} GiB.",
            workload.why_nothing_fits(),
            "Give more devices or more memory.",
        )
    console = Console(highlight=False)
    if as_json:
        facts = {
            "value": best.value,
            "lower_bound": best.lower_bound,
            "optimal": best.optimal,
            "devices": best.devices,
            "stages": [dataclasses.asdict(stage) for stage in best.stages],
            "seconds": taken,
            "note": best.note,
        }
        if counts:
            facts["also"] = {str(k): answers[k].value if answers[k] else None for k in counts}  # type: ignore[union-attr]
        console.out(json.dumps(facts))
        return
    console.print(
        f"{'stage':>5}  {'layers':>6}  {'data':>4}  {'tensor':>6}  {'in flight':>9}  {'GiB':>6}  {'time':>10}  options"
    )
    for number, stage in enumerate(best.stages):
        chosen = {name: stage.options.count(name) for name in dict.fromkeys(stage.options)}
        words = ", ".join(f"{count} {name}" for name, count in chosen.items())
        console.print(
            f"{number:>5}  {len(stage.layers):>6}  {stage.data:>4}  {stage.tensor:>6}  {stage.in_flight:>9}"
            f"  {stage.memory / 2**30:>6.2f}  {stage.seconds:>10.6g}  {words}",
            soft_wrap=True,
        )
    proof = "optimal" if best.optimal else f"at best {best.lower_bound:.6g}"
    console.print()
    console.print(f"value    {best.value:.9g} a microbatch ({proof})")
    console.print(f"devices  {best.devices} of {workload.devices}, {workload.memory / 2**30:g} GiB each")
    for count in counts or []:
        answer = answers[count]
        console.print(
            f"also     {count} devices: {answer.value:.9g}" if answer else f"also     {count} devices: does not fit"
        )
    if best.note:
        console.print(f"note     {best.note}")
    console.print(f"search   {taken:.2f} s")
