"""`heddle piper`: the pipeline with the best throughput for a published Piper workload, or for a job's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.ranged import COUNT, POSITIVE, ranged
from heddle.format import GIB

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.planning.piper.result import PiperPlan
    from heddle.planning.piper.workload import Workload
    from heddle.spec.job import Job, PlannedJob


def piper(
    file: Annotated[Path, typer.Argument(help="A workload in the published format, or a job: FILE.json, JOB.toml.")],
    devices: Annotated[
        int | None, ranged("--devices", "-k", within=COUNT, help="Devices. Default: the file's.")
    ] = None,
    memory_gib: Annotated[
        float | None, ranged("--memory-gib", within=POSITIVE, help="Memory per device. Default: the file's.")
    ] = None,
    bandwidth_gib: Annotated[
        float | None,
        ranged("--bandwidth-gib", within=POSITIVE, help="Bandwidth per device, in GiB/s. Default: the file's."),
    ] = None,
    microbatches: Annotated[
        int | None, ranged("--microbatches", within=COUNT, help="Microbatches per batch. Default: the file's.")
    ] = None,
    microbatch: Annotated[
        int | None,
        ranged("--microbatch", within=COUNT, help="For a job: samples per microbatch. Default: the plan's, or 1."),
    ] = None,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="The same degrees in all stages, as training needs.")
    ] = False,
    counts: Annotated[
        list[int] | None, typer.Option("--also", help="Also answer for this number of devices, up to --devices.")
    ] = None,
    time_limit: Annotated[float, ranged("--time-limit", within=POSITIVE, help="Seconds, then the best so far.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --uniform: write the job with this plan.")
    ] = None,
) -> None:
    """Find the pipeline with the best throughput: stages, degrees and memory options (Piper)."""
    # Imported here so that `heddle --help` does not pay for them.
    import dataclasses
    import json
    import time

    from heddle.cli.common import write_output
    from heddle.console import plain_console
    from heddle.errors import HeddleError
    from heddle.graph.deadline import OutOfTime
    from heddle.planning.piper.solve import plan_pipelines
    from heddle.spec.job import dumps_job, load_job

    given = job = load_job(file) if file.suffix == ".toml" else None
    if output is not None and (job is None or not uniform):
        raise HeddleError(
            f"There is no trainable plan to write to {output}.",
            "A plan can be trained if it is for a job and has the same degrees in all stages.",
            f"Give a job, and --uniform: heddle piper JOB.toml --uniform -o {output}.",
        )
    started = time.perf_counter()
    if job is not None:
        _refuse("a job", {"--bandwidth-gib": bandwidth_gib, "--microbatches": microbatches}, "[cluster] and [train]")
        job, workload = _modeled(job, devices, memory_gib, microbatch)
    else:
        _refuse("a published workload", {"--microbatch": microbatch}, "its mbsInBatch")
        workload = _published(file, devices, memory_gib, bandwidth_gib, microbatches)
    for count in counts or []:
        if not 1 <= count <= workload.devices:
            raise HeddleError(
                f"--also must be in [1, {workload.devices}], got {count}.",
                "One run answers for every number of devices up to the largest.",
                f"Give the largest one as --devices {max(count, 1)}.",
            )
    try:
        answers = plan_pipelines(workload, [workload.devices, *(counts or [])], time_limit, uniform=uniform)
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
            f"No plan fits {workload.devices} devices of {workload.memory / GIB:g} GiB.",
            workload.why_nothing_fits(),
            f"Give more devices or more memory{', or let stages differ: without --uniform' if uniform else ''}.",
        )
    also = {count: answers[count] for count in counts or []}
    planned = _planned(job, best) if job is not None and uniform else None
    if output is not None and given is not None and planned is not None:
        # the file's own cluster, whatever the options say
        write_output(output, dumps_job(dataclasses.replace(given, plan=planned.plan)))
    console = plain_console()
    if as_json:
        console.out(json.dumps(_facts(best, also, planned, taken)))
        return
    if given is not None and given.plan is not None:
        console.print("The file's [plan] gives the microbatch; everything else is searched.\n")
    _show(console, workload, best, also)
    if planned is not None:
        from heddle.simulating.simulation import simulate

        step = simulate(planned)
        console.print(f"step     {step.step_seconds:.4g} s, filling and draining counted ({step.bubble:.1%} bubble)")
    if output is not None:
        console.print(f"plan     written to {output}", soft_wrap=True)
    console.print(f"search   {taken:.2f} s")


def _refuse(what: str, options: dict[str, Any], instead: str) -> None:
    """An option that would change nothing is a mistake."""
    from heddle.errors import HeddleError

    for name, value in options.items():
        if value is not None:
            raise HeddleError(f"{name} does not apply to {what}.", f"That is in {instead}.", f"Leave {name} out.")


def _published(
    file: Path, devices: int | None, memory: float | None, bandwidth: float | None, microbatches: int | None
) -> Workload:
    from heddle.planning.piper.workload import read_workload

    return read_workload(file).replace(
        devices=devices,
        memory=None if memory is None else memory * GIB,
        bandwidth=None if bandwidth is None else bandwidth * GIB,
        microbatches=microbatches,
    )


def _modeled(job: Job, devices: int | None, memory: float | None, microbatch: int | None) -> tuple[Job, Workload]:
    """The job as it is planned for, with its microbatch, and its workload."""
    from dataclasses import replace

    from heddle.planning.piper.transformer import model_workload
    from heddle.spec.plan import Plan
    from heddle.spec.this_machine import this_machine

    cluster = job.cluster or this_machine()
    if memory is not None:
        cluster = replace(cluster, device=replace(cluster.device, memory_gib=memory))
    if microbatch is None:
        microbatch = job.plan.microbatch if job.plan else 1
    workload = model_workload(replace(job, cluster=cluster), devices, microbatch)
    return replace(job, cluster=cluster, plan=Plan(microbatch=microbatch)), workload


def _planned(job: Job, best: PiperPlan) -> PlannedJob:
    from dataclasses import replace

    from heddle.planning.piper.uniform import runtime_plan

    planned = job.planned
    return replace(planned, plan=runtime_plan(job, best, planned.plan.microbatch))


def _facts(best: PiperPlan, also: dict[int, PiperPlan | None], planned: Job | None, taken: float) -> dict[str, Any]:
    import dataclasses

    from heddle.spec.tables import to_table

    def one(answer: PiperPlan) -> dict[str, Any]:
        return {
            "value": answer.value,
            "lower_bound": answer.lower_bound,
            "optimal": answer.optimal,
            "devices": answer.devices,
            "stages": [dataclasses.asdict(stage) for stage in answer.stages],
        }

    facts = one(best) | {"seconds": taken, "note": best.note}
    if best.unrestricted is not None:
        facts |= {"uniform": True, "slower_by": best.slower_by, "unrestricted": one(best.unrestricted)}
    if planned is not None:
        from heddle.simulating.simulation import simulate

        facts |= {"plan": to_table(planned.plan), "step_seconds": simulate(planned).step_seconds}
    if also:
        facts["also"] = {str(count): answer and answer.value for count, answer in also.items()}
    return facts


def _show(console: Console, workload: Workload, best: PiperPlan, also: dict[int, PiperPlan | None]) -> None:
    """For people."""
    from heddle.format import size

    columns = {"stage": 5, "layers": 6, "data": 4, "tensor": 6, "in flight": 9, "memory": 10, "time": 10}
    console.print("  ".join([*(f"{name:>{width}}" for name, width in columns.items()), "options"]))
    for number, stage in enumerate(best.stages):
        chosen = {name: stage.options.count(name) for name in dict.fromkeys(stage.options)}
        words = ", ".join(f"{count} {name}" for name, count in chosen.items())
        console.print(
            f"{number:>5}  {len(stage.layers):>6}  {stage.data:>4}  {stage.tensor:>6}  {stage.in_flight:>9}"
            f"  {size(stage.memory, 2):>10}  {stage.seconds:>10.6g}  {words}{'; ' if stage.how else ''}{stage.how}",
            soft_wrap=True,
        )
    proof = "optimal" if best.optimal else f"at best {best.lower_bound:.6g}"
    console.print()
    console.print(f"time     {best.value:.6g} per microbatch ({proof})")
    if best.unrestricted is not None:
        free = f"{best.unrestricted.value:.6g}"
        if best.slower_by < 1e-9:
            console.print("uniform  as good as the best pipeline whose stages may differ")
        else:
            told = f"uniform  {best.slower_by:.2%} slower than the best pipeline whose stages may differ, {free}"
            console.print(told, soft_wrap=True)
    console.print(f"devices  {best.devices} of {workload.devices}, {workload.memory / GIB:g} GiB each")
    for count, answer in also.items():
        console.print(
            f"also     {count} devices: {answer.value:.6g}" if answer else f"also     {count} devices: does not fit"
        )
    if best.note:
        console.print(f"note     {best.note}")
