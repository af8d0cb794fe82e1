"""`heddle launch`: the script or the commands that start a job on a cluster. Prints them; starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, ranged


def launch(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.toml")],
    slurm: Annotated[bool, typer.Option("--slurm", help="A script for Slurm's sbatch.")] = False,
    torchrun: Annotated[bool, typer.Option("--torchrun", help="A torchrun command for each node.")] = False,
    time: Annotated[
        str | None, typer.Option(help="Slurm: the time limit, such as 1-12:00:00.", metavar="LIMIT")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm: the partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm: the account.")] = None,
    cpus: Annotated[
        int | None, ranged(within=COUNT, help="Slurm: CPUs per process. Default: 8 with GPUs, 1 without.")
    ] = None,
    mem: Annotated[str | None, typer.Option(help="Slurm: memory per node, such as 500G. Default: all of it.")] = None,
    port: Annotated[
        int | None, ranged(within="[1024, 65535]", help="Port on the first node where processes meet.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run folder, instead of the job's.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: --set train.steps=50", metavar="TABLE.KEY=VALUE"),
    ] = None,
) -> None:
    """Print what starts a job on a cluster: a script for sbatch, or torchrun commands."""
    from heddle.errors import HeddleError
    from heddle.runs.launch_script import LaunchRequest, launch_script

    if slurm == torchrun:
        raise HeddleError(
            "`heddle launch` needs either --slurm or --torchrun.",
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
    )
    found = launch_script(job, "slurm" if slurm else "torchrun", request)
    if found.chosen is not None:
        typer.echo(found.chosen, err=True)
    typer.echo(found.text)
