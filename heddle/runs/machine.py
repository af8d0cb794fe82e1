"""The machine of a run whose job does not describe it: looked at when the run begins, and kept in its folder.

What is predicted of a run, and the peak that its MFU is relative to, are then the same in its log and on every page
that is made of it later, whatever else the machine does meanwhile.
"""

from __future__ import annotations

from heddle.cost.measured.local_machine import disturbed, machine_for, sharing_cores, to_be_measured
from heddle.durable import replace_text
from heddle.errors import HeddleError
from heddle.runs.folder import Run
from heddle.spec.cluster import Cluster, dumps_cluster
from heddle.spec.job import Job
from heddle.spec.shorthand import cluster_from_table
from heddle.spec.this_machine import this_machine


def machine_of(job: Job, run: Run) -> Cluster:
    """What a job is to run on: as it was when the run began, or as it is now where that is another machine."""
    world = job.planned.plan.world
    kept = read_machine(run) if to_be_measured(job.cluster) else None
    if kept is not None and _alike(kept, job.cluster or sharing_cores(this_machine(), world)):
        return kept
    return machine_for(job.cluster, world)


def read_machine(run: Run) -> Cluster | None:
    """The machine that a run was found to be on; None where its job describes it, or an older Heddle wrote it."""
    if not run.machine.is_file():
        return None
    found: Cluster = cluster_from_table({"file": str(run.machine.absolute())})
    return found


def keep_machine(run: Run, job: Job, machine: Cluster | None) -> None:
    """Write it down, if the job itself does not say it."""
    if machine is not None and to_be_measured(job.cluster):
        replace_text(run.machine, dumps_cluster(machine))
    else:
        run.machine.unlink(missing_ok=True)


def _alike(kept: Cluster, here: Cluster) -> bool:
    """Whether both are the same machine with as many processes, as far as can be seen without measuring."""
    same = (kept.nodes, kept.devices, kept.cores, kept.device.name) == (
        here.nodes,
        here.devices,
        here.cores,
        here.device.name,
    )
    return same and abs(kept.device.memory_gib / here.device.memory_gib - 1) < 0.01


def above_peak(mfu: float, peak: float, job: Job, machine: Cluster) -> HeddleError:
    """What to say of an MFU above 100 %; `peak` is that of one device."""
    why = f"[cluster] states it for {machine.device.name}."
    hint = "Correct device.tflops, or measure it with `heddle profile`."
    if to_be_measured(job.cluster):
        why = "It was measured in a tenth of a second when the run began, and other programs may have slowed it down."
        if disturbed(machine):
            why = "It was measured when the run began, while the machine was busy with other work."
        hint = (
            'Run `heddle profile -o machine.toml` while the machine is idle, and set [cluster] file = "machine.toml".'
        )
    return HeddleError(
        f"MFU is {mfu:.0%}. It cannot exceed 100%: the peak of {peak / 1e12:.3g} TFLOP/s per device is too low.",
        why,
        f"{hint} Seconds and tokens/s do not depend on the peak.",
    )
