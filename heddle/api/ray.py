"""Training on a Ray cluster: `heddle.ray.train` starts an actor per rank, and starts them again when one is lost.

Only Ray's core is used: a placement group that keeps ranks close which exchange much, and actors in it. Each actor is a
process that joins the others as under any launcher.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle.api.given import job_of
from heddle.console import plain_console
from heddle.errors import HeddleError, how_to_install
from heddle.planning.best import with_best_plan
from heddle.spec.job import Job, PlannedJob
from heddle.spec.ranks import world_in_words

if TYPE_CHECKING:
    from heddle.training.loop import Result

PATIENCE = 60.0  # seconds that a restart waits for all devices before it goes on with those that are left
AWAKE = 0.5  # seconds between two looks at the cluster


def train(
    job: Job | str | Path,
    *,
    num_workers: int | None = None,
    resources: Mapping[str, float] | None = None,
    resume: bool = False,
    allow_changes: bool = False,
    patience: float = PATIENCE,
) -> Result:
    """Train a job on a Ray cluster, with an actor per rank; `ray.init()` says which cluster.

    When an actor or a node is lost, all ranks are started again from the newest checkpoint, up to `train.restarts`
    times. A restart waits for lost devices; after that the run goes on under a plan for those that are left. The run
    folder and the tokens are on a file system that all nodes share, unless `train.checkpoints` names an object store.

    Args:
        job: what to train; a job without a plan is planned for its workers.
        num_workers: ranks; as many as the plan takes if left out.
        resources: of each, in Ray's words; a GPU where the cluster has some, else a CPU, if left out.
        resume: continue from the newest checkpoint.
        allow_changes: resume with other settings: another corpus, batch, seed, …
        patience: seconds to wait for devices, at the start and at each restart.

    Returns:
        How the run ended.
    """
    ray = _ray()
    if not ray.is_initialized():
        ray.init()
    needs = dict(resources or _usual(ray))
    planned = _planned(job_of(job), num_workers, resume)
    workers = num_workers or planned.plan.world
    for attempt in range(planned.train.restarts + 1):
        count = _count(ray, needs, workers, patience, goes_on=planned.train.replan and (resume or attempt > 0))
        try:
            with _Workers(ray, needs, count) as started:
                return started.run(planned, resume, allow_changes, attempt)
        except _LostError as lost:
            if attempt == planned.train.restarts:
                raise HeddleError(
                    f"A worker of Ray was lost: {lost}.",
                    f"The run was started again {attempt} times; train.restarts allows no more.",
                    "Resume from the newest checkpoint with resume=True.",
                ) from None
            plain_console().print(f"A worker was lost: {lost}. Starting again.", style="yellow", highlight=False)
    raise AssertionError("each attempt returns or raises")


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise HeddleError(
            "The package ray is missing.", "heddle.ray trains on its clusters.", f"Install it: {how_to_install('ray')}."
        ) from None
    return ray


def _usual(ray: Any) -> dict[str, float]:
    return {"GPU": 1.0, "CPU": 1.0} if ray.cluster_resources().get("GPU", 0) else {"CPU": 1.0}


def _planned(job: Job, workers: int | None, resume: bool) -> PlannedJob:
    """With its plan, and with its folders spelled out: workers begin wherever Ray lets them."""
    if job.plan is None:
        if workers is not None and job.cluster is None:
            from heddle.cost.measured.local_machine import machine_for

            found = with_best_plan(replace(job, cluster=machine_for(None, workers)), workers)[0]
            planned = replace(found, cluster=None)
        else:
            planned = with_best_plan(job, workers)[0]
    else:
        planned = job.planned
    if workers is not None and workers != planned.plan.world and not resume:
        raise HeddleError(
            f"num_workers = {workers}, but the plan needs {world_in_words(planned.plan)}.",
            "Every worker takes one position in the mesh.",
            f"Use num_workers = {planned.plan.world}, or leave it out.",
        )
    train = replace(planned.train, runs=str(Path(planned.train.runs).absolute()))
    data = planned.data
    if data is not None:
        data = replace(data, cache=str(Path(data.cache).absolute()))
    return replace(planned, train=train, data=data)


def _count(ray: Any, needs: Mapping[str, float], wanted: int, patience: float, goes_on: bool) -> int:
    """How many workers to start: all, once the cluster has room for them; after a while, as many as it has room for."""
    end = time.monotonic() + patience
    while (found := _room(ray, needs)) < wanted and time.monotonic() < end:
        time.sleep(AWAKE)
    if found >= wanted:
        return wanted
    if found == 0 or not goes_on:
        words = ", ".join(f"{amount:g} {name}" for name, amount in needs.items())
        raise HeddleError(
            f"The Ray cluster has room for {found} of {wanted} workers.",
            f"Each needs {words}; it waited {patience:.0f} s for them.",
            "Add nodes, or use a plan for fewer devices.",
        )
    return found


def _room(ray: Any, needs: Mapping[str, float]) -> int:
    """Workers that the nodes which are alive can have."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(min(int(node.get(name, 0) // amount) for name, amount in needs.items()) for node in nodes)


class _LostError(Exception):
    """A worker is gone, or failed because another one is."""


@dataclass(frozen=True)
class _Place:
    """Where an actor is."""

    node: str
    address: str
    device: str

    @property
    def order(self) -> tuple[str, str]:
        return self.node, self.device


class _Worker:
    """One rank, in a process of Ray's."""

    def place(self) -> _Place:
        ray = _ray()
        devices = ray.get_gpu_ids()
        device = f"{devices[0]:>4}" if devices else str(os.getpid())
        return _Place(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), device)

    def free_port(self, address: str) -> int:
        with socket.socket() as listener:
            listener.bind((address, 0))
            return int(listener.getsockname()[1])

    def run(self, environment: dict[str, str], job: PlannedJob, resume: bool, allow_changes: bool) -> Any:
        os.environ.update(environment)
        from heddle.training.loop import train

        return train(job, resume=resume, allow_changes=allow_changes)


class _Workers:
    """Actors for all ranks; none is left once this is no longer entered."""

    def __init__(self, ray: Any, needs: Mapping[str, float], count: int) -> None:
        self.ray, self.needs, self.count = ray, needs, count
        self.actors: list[Any] = []
        self.group: Any = None

    def __enter__(self) -> _Workers:
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.group = placement_group([dict(self.needs)] * self.count, strategy="PACK")
        if not self.group.wait(PATIENCE):
            self.__exit__()
            raise _LostError(f"no room for {self.count} workers any more")
        rest = {name: amount for name, amount in self.needs.items() if name not in ("CPU", "GPU")}
        made = self.ray.remote(_Worker)
        self.actors = [
            made.options(
                num_cpus=self.needs.get("CPU", 0),
                num_gpus=self.needs.get("GPU", 0),
                resources=rest,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, number),
            ).remote()
            for number in range(self.count)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        from ray.util.placement_group import remove_placement_group

        for actor in self.actors:
            with suppress(Exception):  # one that is gone already
                self.ray.kill(actor)
        with suppress(Exception):
            remove_placement_group(self.group)

    def run(self, job: PlannedJob, resume: bool, allow_changes: bool, attempt: int) -> Result:
        """Let all ranks do their part; the result of the first."""
        places = self._asked(lambda: self.ray.get([actor.place.remote() for actor in self.actors]))
        pairs = sorted(zip(places, self.actors, strict=True), key=lambda pair: pair[0].order)
        first, leader = pairs[0]
        port = self._asked(lambda: self.ray.get(leader.free_port.remote(first.address)))
        sizes, locals_ = Counter(place.node for place, _ in pairs), Counter[str]()
        pending = []
        for rank, (place, actor) in enumerate(pairs):
            environment = {
                "RANK": rank,
                "WORLD_SIZE": self.count,
                "LOCAL_RANK": locals_[place.node],
                "LOCAL_WORLD_SIZE": sizes[place.node],
                "MASTER_ADDR": first.address,
                "MASTER_PORT": port,
                "TORCHELASTIC_RESTART_COUNT": attempt,
            }
            locals_[place.node] += 1
            words = {name: str(value) for name, value in environment.items()}
            pending.append(actor.run.remote(words, job, resume, allow_changes))
        waiting = list(pending)
        while waiting:  # whoever fails first says why; the others only notice
            done, waiting = self.ray.wait(waiting)
            self._asked(partial(self.ray.get, done))
        result: Result = self.ray.get(pending[0])
        return result

    def _asked(self, work: Callable[[], Any]) -> Any:
        """What a user has to fix is told as it is; all else is a lost worker."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return work()
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, HeddleError):
                raise HeddleError(cause.what, cause.why, cause.hint) from None
            raise _LostError(f"{type(cause).__name__}: {str(cause).strip().splitlines()[:1] or ''}") from None
        except RayError as error:
            raise _LostError(str(error).strip().splitlines()[0]) from None
