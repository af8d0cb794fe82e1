"""Another trainer's launch line or file, as the job that Heddle plans and prices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from heddle.errors import HeddleError
from heddle.spec.axes import AXES
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job, job_from_tables
from heddle.spec.model import ModelSpec
from heddle.spec.presets import model_presets
from heddle.spec.shorthand import cluster_from_table, model_from_table
from heddle.spec.tables import to_table

USUAL_CLUSTER = "dgx-h100"


@dataclass(kw_only=True)
class ImportedSettings:
    """What was read: tables of a job, processes that are started, and what was made of the rest."""

    trainer: str
    model: dict[str, Any] | None = None  # None: the file does not say, the reader must
    train: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)  # without `data`, unless the file states it
    software: dict[str, Any] = field(default_factory=dict)  # of [cluster.software]
    processes: int | None = None  # that the launcher starts; None: not said
    per_node: int | None = None
    assumed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)  # what changes the run, and Heddle has no counterpart of
    unknown: list[str] = field(default_factory=list)  # arguments that are not understood
    harmless: int = 0  # arguments that change neither plan nor model: paths, logging, data

    def job(
        self,
        model: ModelSpec | None = None,
        cluster: Cluster | None = None,
        nodes: int | None = None,
        base: Job | None = None,
    ) -> Job:
        """The job with its plan; what the file leaves open is taken from the arguments, or assumed and said.

        `base` is a job whose model, cluster and fields of the plan hold where the file does not speak of them.
        """
        shape = self._model(model or (base.model if base is not None and self.model is None else None))
        found = cluster or (base.cluster if base is not None else None)
        if found is None:
            found = cluster_from_table({"preset": USUAL_CLUSTER})
            self.assumed.append(f"cluster: {USUAL_CLUSTER}, as no other was named")
        if nodes is not None:
            found = replace(found, nodes=nodes)
        plan = (to_table(base.plan) if base is not None and base.plan is not None else {}) | self.plan
        plan |= {} if "data" in self.plan else {"data": None}
        split = prod(plan.get(axis, 1) for axis in AXES if axis != "data")
        world = self._world(split, plan.get("data"), found.nodes * found.devices, nodes is not None)
        plan["data"] = world // split
        each = min(found.devices, world)
        told = {"software": self.software} if self.software else {}
        tables = {
            "model": to_table(shape),
            "cluster": to_table(replace(found, nodes=max(1, -(-world // each)), devices=each)) | told,
            "train": {"global_batch": plan.get("microbatch", 1) * plan["data"]} | self.train,
            "plan": plan,
        }
        return job_from_tables(tables)

    def _model(self, other: ModelSpec | None) -> ModelSpec:
        if other is not None:
            sequence = self.train.get("sequence", other.sequence)
            return replace(other, sequence=max(other.sequence, sequence))
        if self.model is None:
            raise HeddleError(
                f"The file for {self.trainer} does not describe its model.",
                "It says how a model is trained; which one is said elsewhere.",
                "Add --model PRESET, --model config.json or --job JOB.toml.",
            )
        return named_like_preset(model_from_table(self.model))

    def _world(self, split: int, data: int | None, devices: int, asked: bool) -> int:
        """Devices: as the plan, the launcher or the reader says, and a multiple of what one replica needs."""
        if data is not None:
            return split * data
        if asked or self.processes is None:
            world = devices
            if not asked:
                self.assumed.append(f"devices: {devices}, as the launch line names none; --nodes changes it")
        else:
            world = self.processes
        if world % split == 0:
            return world
        needed = -(-world // split) * split
        self.assumed.append(
            f"devices: {needed} instead of {world}, as tensor × context × pipeline = {split} must divide them"
        )
        return needed


def named_like_preset(model: ModelSpec) -> ModelSpec:
    """The same model by the name of the preset that has its shape, if there is one."""
    for name, table in model_presets().items():
        known = model_from_table({"preset": name})
        if replace(known, name=model.name, sequence=model.sequence) == model:
            return replace(model, name=name, family=str(table.get("family", "")))
    return model
