"""A batch script for Slurm that saves before its time is up, goes back into the queue, and then goes on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from heddle.runs.launch_request import CPUS_PER_GPU, UNNAMED, LaunchRequest, has_gpus
from heddle.spec.job import Job

NETWORK = """\
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
# If NCCL picks the wrong network, name the fast one:
# export NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5
"""


def slurm_script(
    job: Job, shape: tuple[int, int], train: list[str], request: LaunchRequest, said: Sequence[str]
) -> str:
    """The script; with an image, its steps run in a container, by NVIDIA's plugin pyxis."""
    nodes, tasks = shape
    asked = {name: getattr(request, name) for name in ("time", "partition", "account")}
    gpus = has_gpus(job)
    whole = job.cluster is not None and tasks == job.cluster.devices
    network = NETWORK if gpus else ""
    settings = {
        "job-name": UNNAMED.sub("-", job.train.name),
        **{key: value for key, value in asked.items() if value is not None},
        "nodes": nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": request.cpus or (CPUS_PER_GPU if gpus else 1),
        **({"gpus-per-node": tasks} if gpus else {}),
        # who takes every device of a node takes its memory, too
        **({"mem": request.mem or 0} if request.mem or whole else {}),
        "signal": "TERM@120",
        "requeue": None,
        "open-mode": "append",
        "output": "%x-%j.out",
    }
    head = [f"#SBATCH --{key}" + ("" if value is None else f"={value}") for key, value in settings.items()]
    run = shlex.quote(str(job.run_folder / "job.toml"))
    last = shlex.quote(str(job.run_folder / "checkpoints" / f"step-{job.train.steps:08}"))
    return f"""\
#!/bin/bash
{chr(10).join([*head, *said])}
# Two minutes before the time limit every process gets SIGTERM, finishes its step and writes a checkpoint.

set -euo pipefail

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT={request.port or "$((20000 + SLURM_JOB_ID % 10000))"}
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}}
export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}}  # srun does not inherit it from sbatch
{network}
resume=
for attempt in $(seq 0 {job.train.restarts}); do
    if [ -e {run} ]; then
        resume=--resume  # requeued, submitted again, or started again after a rank died
    fi
    if srun --kill-on-bad-exit=1 {_container(request)}heddle {shlex.join(train)} $resume; then
        break
    elif [ "$attempt" -eq {job.train.restarts} ]; then
        exit 1
    fi
done

if [ ! -e {last} ]; then
    scontrol requeue "$SLURM_JOB_ID"  # stopped before the last step
fi"""


def _container(request: LaunchRequest) -> str:
    """Options of pyxis: the folder that the job was submitted from is the same inside."""
    if request.image is None:
        return ""
    mounts = '--container-mounts="$PWD:$PWD" --container-workdir="$PWD"'
    return f"--container-image={shlex.quote(request.image)} {mounts} "
