"""A task for SkyPilot, which finds the machines: `sky launch`, or `sky jobs launch` for ones that may be taken away."""

from __future__ import annotations

import shlex
from typing import Any

from heddle.errors import HeddleError
from heddle.runs.launch_request import LaunchRequest, has_gpus
from heddle.spec.job import Job
from heddle.yaml_text import to_yaml

PORT = 29500
# What SkyPilot calls the GPUs, by a word in the name that the driver gives them; those with more words first.
ACCELERATORS = {
    "A100-SXM4-80GB": "A100-80GB",
    "A100 80GB": "A100-80GB",
    "A100": "A100",
    "GB200": "GB200",
    "GH200": "GH200",
    "B200": "B200",
    "H200": "H200",
    "H100": "H100",
    "L40S": "L40S",
    "L4": "L4",
    "V100": "V100",
    "A10G": "A10G",
    "RTX 4090": "RTX4090",
}


def skypilot_task(job: Job, shape: tuple[int, int], train: list[str], request: LaunchRequest) -> str:
    """The YAML of a task: as many nodes as the plan takes, each with its GPUs, and torchrun on every one."""
    nodes, tasks = shape
    resources: dict[str, Any] = {}
    if has_gpus(job):
        resources["accelerators"] = f"{_accelerator(job, request)}:{tasks}"
    if request.cpus is not None:
        resources["cpus"] = f"{tasks * request.cpus}+"
    if request.mem is not None:
        resources["memory"] = f"{_gigabytes(request.mem)}+"
    if request.image is not None:
        resources["image_id"] = f"docker:{request.image}"
    if nodes > 1 and has_gpus(job):
        resources["network_tier"] = "best"  # InfiniBand, EFA or GPUDirect, where a cloud has one
    restarts = {"job_recovery": {"max_restarts_on_errors": job.train.restarts}} if job.train.restarts else {}
    meet = 'MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)'
    where = '--nnodes "$SKYPILOT_NUM_NODES" --node-rank "$SKYPILOT_NODE_RANK" --master-addr "$MASTER_ADDR"'
    command = f"--nproc-per-node {tasks} -m heddle {shlex.join([*train, '--auto-resume'])}"
    setup = "" if request.image is not None else "pip install '.[train,cloud]'  # in a checkout of heddle-train\n"
    document = {
        "name": _name(job.train.name),
        "num_nodes": nodes,
        "resources": resources | restarts,
        "workdir": ".",
        **({"setup": setup} if setup else {}),
        "run": f"{meet}\ntorchrun {where} --master-port {request.port or PORT} {command}\n",
    }
    return to_yaml({key: value for key, value in document.items() if value != {}})


def _name(name: str) -> str:
    return "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "-" for each in name)


def _gigabytes(mem: str) -> int:
    units = {"K": 2**20, "M": 2**10, "G": 1, "T": 1 / 2**10}
    number, unit = (mem[:-1], mem[-1]) if mem[-1].isalpha() else (mem, "M")
    return max(1, round(int(number) / units[unit]))


def _accelerator(job: Job, request: LaunchRequest) -> str:
    assert job.cluster is not None
    device = job.cluster.device.name
    found = request.accelerator or next((known for word, known in ACCELERATORS.items() if word in device), None)
    if found is None:
        raise HeddleError(
            f"What SkyPilot calls a {device} is not known.",
            f"Known: {', '.join(dict.fromkeys(ACCELERATORS.values()))}.",
            "Name it with --accelerator; `sky show-gpus` lists them.",
        )
    return found
