"""What starts a job where people start jobs: a script, commands or a manifest. Nothing is started here."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal, get_args

from heddle.errors import HeddleError, nearest
from heddle.planning.best import choice_in_words, with_best_plan
from heddle.runs.launch_kubernetes import jobset, trainjob
from heddle.runs.launch_request import LaunchRequest as LaunchRequest
from heddle.runs.launch_request import LaunchScript, shape_of
from heddle.runs.launch_skypilot import skypilot_task
from heddle.runs.launch_slurm import slurm_script
from heddle.spec.changes import changes_of, load_with_changes
from heddle.spec.plan import Plan, rounded
from heddle.spec.tables import to_table

Launcher = Literal["slurm", "torchrun", "mpi", "kubernetes", "kubeflow", "skypilot"]
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
# Which options each launcher knows beside --name, --set and --port.
OPTIONS: dict[Launcher, tuple[str, ...]] = {
    "slurm": ("time", "partition", "account", "cpus", "mem", "image"),
    "torchrun": (),
    "mpi": (),
    "kubernetes": ("cpus", "mem", "image", "volume", "rdma"),
    "kubeflow": ("cpus", "mem", "image", "volume", "rdma"),
    "skypilot": ("cpus", "mem", "image", "accelerator"),
}
READERS = {"image": "a container", "volume": "Kubernetes", "rdma": "Kubernetes", "accelerator": "SkyPilot"}


def launch_script(path: Path, launcher: Launcher, request: LaunchRequest) -> LaunchScript:
    """For a job's file, with some of its keys changed."""
    if launcher not in LAUNCHERS:
        raise HeddleError(
            f"There is no launcher {launcher!r}.", "It reads what is printed.", nearest(str(launcher), LAUNCHERS)
        )
    job, name = load_with_changes(path, request.changes, request.name), request.name
    request.check(READERS)
    _refuse_unknown(launcher, request)
    planned, found = with_best_plan(job)
    shape = shape_of(planned)
    given, words = list(request.changes), None
    if (
        found is not None and planned.predicted is not None
    ):  # every process must get the same plan, so it is part of the command
        usual, chosen = to_table(Plan()), to_table(found.best.plan)
        given += changes_of("plan", {key: value for key, value in chosen.items() if value != usual.get(key)})
        given += changes_of("predicted", rounded(planned.predicted))
        words = f"{path} has no [plan]. {choice_in_words(found)}"
    # nothing leaves the comment
    said = [] if words is None else ["# " + "".join(each if each.isprintable() else "?" for each in words)]
    train = ["train", str(path), *(["--name", name] if name else []), *(f"--set={change}" for change in given)]
    if launcher == "slurm":
        return LaunchScript(slurm_script(planned, shape, train, request, said), words)
    if launcher in ("torchrun", "mpi"):
        lines = (_torchrun_lines if launcher == "torchrun" else _mpi_lines)(*shape, train, request.port)
    else:
        write = {"kubernetes": jobset, "kubeflow": trainjob, "skypilot": skypilot_task}[launcher]
        lines = [write(planned, shape, train, request)]
    return LaunchScript("\n".join([*said, *lines]), words)


def _refuse_unknown(launcher: Launcher, request: LaunchRequest) -> None:
    """An option that a launcher has no place for would be ignored, and missed later."""
    known = OPTIONS[launcher]
    every = dict.fromkeys(option for options in OPTIONS.values() for option in options)
    for option in every:
        if option not in known and getattr(request, option) is not None:
            others = [name for name in LAUNCHERS if option in OPTIONS[name]]
            raise HeddleError(
                f"--{option} does not go with --{launcher}.",
                f"What is printed has no place for it; it goes with {', '.join(f'--{name}' for name in others)}.",
                f"Leave it out. --{launcher} knows --port"
                + "".join(f", --{each}" for each in known)
                + ", --name and --set.",
            )


def _torchrun_lines(nodes: int, tasks: int, train: list[str], port: int | None) -> list[str]:
    """A command per node; on more than one the user says where the first is."""
    command = f"--nproc-per-node {tasks} -m heddle {shlex.join(train)}"
    if nodes == 1:  # not --standalone: that unpickles what anybody in the network puts into its store
        return [f"torchrun --master-addr 127.0.0.1 --master-port {port or 29500} {command}"]
    meet = f'--master-addr "$MASTER_ADDR" --master-port {port or 29500}'
    return [
        "# Run one line on each node, with MASTER_ADDR set to the address of the first node.",
        *(f"torchrun --nnodes {nodes} --node-rank {node} {meet} {command}" for node in range(nodes)),
    ]


def _mpi_lines(nodes: int, tasks: int, train: list[str], port: int | None) -> list[str]:
    """One command, of Open MPI; MPICH and Intel MPI write the same with other options."""
    where = "127.0.0.1" if nodes == 1 else '"$MASTER_ADDR"'
    said = ["# Run it where mpirun finds its hosts, with MASTER_ADDR set to the address of the first of them."]
    passed = f"-x MASTER_ADDR={where} -x MASTER_PORT={port or 29500} -x PATH"
    per_node = f"--map-by ppr:{tasks}:node --bind-to none"
    return [
        *(said if nodes > 1 else []),
        f"mpirun -np {nodes * tasks} {per_node} {passed} heddle {shlex.join(train)}",
    ]
