"""`heddle launch`: the script, commands or manifest that start a job on a cluster. Prints them; starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, ranged


def launch(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.toml")],
    slurm: Annotated[bool, typer.Option("--slurm", help="A script for Slurm's sbatch.")] = False,
    torchrun: Annotated[bool, typer.Option("--torchrun", help="A torchrun command for each node.")] = False,
    mpi: Annotated[bool, typer.Option("--mpi", help="A command for mpirun.")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="A JobSet for kubectl apply.")] = False,
    kubeflow: Annotated[bool, typer.Option("--kubeflow", help="A TrainJob for Kubeflow's Trainer.")] = False,
    skypilot: Annotated[bool, typer.Option("--skypilot", help="A task for sky launch.")] = False,
    time: Annotated[
        str | None, typer.Option(help="Slurm: the time limit, such as 1-12:00:00.", metavar="LIMIT")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm: the partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm: the account.")] = None,
    cpus: Annotated[int | None, ranged(within=COUNT, help="CPUs per process. Default: 8 with GPUs, 1 without.")] = None,
    mem: Annotated[
        str | None, typer.Option(help="Memory per node, such as 500G. Default under Slurm: all of it.")
    ] = None,
    port: Annotated[
        int | None, ranged(within="[1024, 65535]", help="Port on the first node where processes meet.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Container image with Heddle; under Slurm by its plugin pyxis.")
    ] = None,
    volume: Annotated[
        str | None, typer.Option(help="Kubernetes: claim of the volume with the job and its runs.", metavar="CLAIM")
    ] = None,
    rdma: Annotated[
        str | None, typer.Option(help="Kubernetes: network adapters per node, such as rdma/ib=8.", metavar="NAME=N")
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(help="SkyPilot: the GPU, such as H100. Default: by the cluster's.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run folder, instead of the job's.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: --set train.steps=50", metavar="TABLE.KEY=VALUE"),
    ] = None,
) -> None:
    """Print what starts a job on a cluster: for Slurm, torchrun, mpirun, Kubernetes or SkyPilot."""
    from heddle.errors import HeddleError
    from heddle.runs.launch_script import LAUNCHERS, LaunchRequest, launch_script

    given = (slurm, torchrun, mpi, kubernetes, kubeflow, skypilot)
    chosen = [launcher for launcher, asked in zip(LAUNCHERS, given, strict=True) if asked]
    if len(chosen) != 1:
        known = ", ".join(f"--{launcher}" for launcher in LAUNCHERS)
        raise HeddleError(
            f"`heddle launch` needs one of {known}.",
            "It prints what the cluster's own launcher reads.",
            f"For example: heddle launch --slurm {job} | sbatch",
        )
    request = LaunchRequest(
        changes=changes or [],
        name=name,
        time=time,
        partition=partition,
        account=account,
        cpus=cpus,
        mem=mem,
        port=port,
        image=image,
        volume=volume,
        rdma=rdma,
        accelerator=accelerator,
    )
    found = launch_script(job, chosen[0], request)
    if found.chosen is not None:
        typer.echo(found.chosen, err=True)
    typer.echo(found.text)
