"""The parts of the self-test: what one rank does for each, and whether that came out well."""

from __future__ import annotations

import math
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from heddle.checkpoint.checkpoint import checkpoints
from heddle.format import GIB
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runs.folder import Run
from heddle.runs.metrics import read_metrics
from heddle.runtime.device import describe, memory_outside, on_gpu, pick_device, synchronize
from heddle.runtime.environment import local_place
from heddle.runtime.error_files import restart_count
from heddle.runtime.node_facts import compared, findings, node_facts
from heddle.runtime.together import Together
from heddle.simulating.simulation import simulate
from heddle.spec.job import Job, PlannedJob, Precision, Train
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.presets import known_devices
from heddle.training.buses import alone, known_cluster, measure_buses
from heddle.training.loop import train_rank
from heddle.training.opening import RunOptions
from heddle.training.profile.profile import described, measure_once
from heddle.training.prove.prove import conclude, observe_all, synthetic_tokens
from heddle.training.prove.shrink import shrink
from heddle.training.selftest_plans import plans_for
from heddle.training.step.choose import make_trainer

STEPS, SAVE = 24, 8  # of each training, and between two checkpoints
KILLED_AT = 12  # the step after which a rank dies: between two checkpoints
PROVED, PROVED_EACH = 6, 2  # steps of the proof of the plan with every axis, and of those with one mechanism each
OWN, EIGHT_BITS = "your plan", "fp8"

Work = Callable[[bool], tuple[bool, str, dict[str, Any]]]


@dataclass(frozen=True)
class SelftestParts:
    """What one rank does for each part; told is whether it passed, in words, and with numbers."""

    mesh: Mesh
    job: PlannedJob
    together: Together
    own: PlannedJob | None = None
    quick: bool = False  # whether the plans with one mechanism each are left out

    @property
    def in_order(self) -> dict[str, Work]:
        """The machine first, as the rest depends on it; the one that kills comes last."""
        world = self.mesh.world.size
        each = plans_for(world, local_place()[1] or world) if world > 1 and not self.quick else {}
        float8 = {f"prove {EIGHT_BITS}": self._under(each["tensor"], precision="fp8")} if "tensor" in each else {}
        own = {} if self.own is None else {OWN: partial(self.proved, self.own, PROVED)}
        return {
            "machine": self.machine,
            "prove": partial(self.proved, self.job, PROVED),
            **{f"prove {name}": partial(self.proved, self._under(plan), PROVED_EACH) for name, plan in each.items()},
            **{name: partial(self.proved, job, PROVED_EACH) for name, job in float8.items()},
            **own,
            **({"buses": self.buses} if world > 1 else {}),
            "profile": self.profile,
            "layer": self.layer,
            "train": self.train,
            "resume": self.resume,
            "kill": self.kill,
        }

    def machine(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """What the nodes are like, and what they do not have in common."""
        first = local_place()[0] == 0
        nodes = [facts for facts in self.together.gather("nodes", node_facts() if first else None) if facts]
        if self.mesh.host.group is not None:
            dist.barrier(group=self.mesh.host.group)
        clocks = self.together.gather("clocks", time.time())
        found = [finding for facts in nodes for finding in findings(facts)] + compared(nodes, clocks)
        wrong = [f"{each.name}: {each.words}. {each.hint}" for each in found if not each.good]
        words = " ".join(wrong) or f"{len(nodes)} node{'s' * (len(nodes) > 1)}, {len(found)} checks"
        return not wrong, words, {"nodes": nodes, "findings": [asdict(each) for each in found]}

    def _under(self, plan: Plan, **train: Any) -> PlannedJob:
        changed = replace(self.job.train, global_batch=8 * plan.data, **train)
        return replace(self.job, plan=plan, train=changed).planned

    def proved(self, job: PlannedJob, steps: int, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """Whether a plan trains like one device."""
        world, began = self.mesh.world.size, time.monotonic()
        shrunk = shrink(job, steps, world)
        same = shrunk.job.plan.world == world and job is self.job
        mesh = self.mesh if same else build_mesh(shrunk.job.plan, self.mesh.rank, world)
        parallel, conserved = (None, None) if mesh is None else observe_all(mesh, shrunk)
        if parallel is None:
            return True, "", {}
        proof = conclude(shrunk, parallel, began)
        comparison = proof.comparison
        good = comparison.equal and (conserved is None or conserved.holds)
        words = proof.verdict.rstrip(".") + "".join(f"; {note.rstrip('.')}" for note in shrunk.notes)
        numbers = {"loss": comparison.max_loss_diff, "gradients": comparison.max_gradient_diff}
        return good, words, {key: value if math.isfinite(value) else None for key, value in numbers.items()}

    def profile(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """Whether devices and links can be measured, and how that compares with what is stated of the device."""
        cluster = described(self.mesh.world.size, measure_once(self.mesh, quick=True))
        tflops = {name: rate for name, rate in asdict(cluster.device.tflops).items() if rate}
        links = {link.name: link.gbs for link in cluster.links}
        best = max(tflops.values(), default=0.0)
        words = f"{best:.3g} TFLOP/s" + "".join(f", messages {gbs:.3g} GB/s" for gbs in links.values())
        stated = next((each for word, each in known_devices().items() if word in cluster.device.name), None)
        label = None if stated is None else stated.tflops.bf16
        if label:
            words += f"; the label says {label:.4g} TFLOP/s in bf16, so it reached {best / label:.0%}"
        good = best > 0 and all(gbs > 0 for gbs in links.values())
        numbers = {"tflops": tflops, "gbs": links, "memory_gbs": cluster.device.memory_gbs, "label_tflops": label}
        return good, words, numbers

    def buses(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """How fast each axis exchanges, and what a GPU holds once all its groups are connected."""
        device = pick_device()
        name = describe(device).name if on_gpu(device) else ""
        found = measure_buses(self.mesh, device, name, local_place()[1] or self.mesh.world.size)
        numbers = {"buses": [each._asdict() for each in found], "outside_gib": memory_outside() / GIB}
        return all(each.gbs > 0 for each in found), ", ".join(map(str, found)), numbers

    def layer(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """How fast a layer of real size trains, alone on its device."""
        device = pick_device()
        model = LARGE if on_gpu(device) else SMALL
        seconds = time_of_layer(model, device, self.job.precision)
        rate = model.flops(1, model.sequence) / seconds / 1e12
        words = f"hidden {model.hidden}, {model.sequence} tokens: {rate:.3g} TFLOP/s of the model"
        numbers: dict[str, float | None] = {"seconds": seconds, "tflops": rate, "hidden": model.hidden}
        cluster = known_cluster(describe(device).name) if on_gpu(device) else None
        if cluster is not None:
            expected = simulate(replace(layer_job(model, self.job.precision), cluster=alone(cluster)))
            peak = cluster.device.tflops.flops(self.job.precision)
            mfu = None if peak is None else rate * 1e12 / peak
            words += "" if mfu is None else f", MFU {mfu:.0%}; predicted {expected.mfu:.0%}"
            numbers |= {"predicted_seconds": expected.step_seconds, "mfu": mfu, "predicted_mfu": expected.mfu}
        return rate > 0, words, numbers

    def _named(self, name: str, steps: int = STEPS) -> Job:
        return replace(self.job, train=replace(self.job.train, name=name, steps=steps))

    def train(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """A training that nothing interrupts."""
        result = train_rank(self.mesh, self._named("straight"), RunOptions())
        seconds = result.step_seconds or 0.0
        return True, f"{STEPS} steps, {seconds:.3g} s each, loss {result.loss:.3f}", {"step_seconds": seconds}

    def _same(self, name: str) -> tuple[bool, str, dict[str, Any]]:
        """Whether a run that was interrupted went through the losses of the one that was not."""
        if self.mesh.rank != 0:
            return True, "", {}
        straight, other = (_losses(self._named(each)) for each in ("straight", name))
        equal = len(straight) == STEPS and straight == other
        return equal, "the same bits as without it" if equal else f"other losses: {other} for {straight}", {}

    def resume(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """One that is stopped halfway and goes on."""
        train_rank(self.mesh, self._named("resumed", STEPS // 2), RunOptions())
        train_rank(self.mesh, self._named("resumed"), RunOptions(resume=True))
        return self._same("resumed")

    def kill(self, again: bool) -> tuple[bool, str, dict[str, Any]]:
        """One of which a rank dies; `again`: it has died, and all were started again."""
        killed = self._named("killed")
        saved = Run(killed.run_folder).checkpoints
        victim = self.mesh.world.ranks[-1]

        def die(step: int) -> None:
            if step == KILLED_AT and self.mesh.rank == victim:
                while not checkpoints(saved):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

        if not again:
            if self.mesh.world.size == 1:
                return True, "a single process cannot be restarted", {"skipped": True}
            train_rank(self.mesh, killed, RunOptions(), after_step=die)
        result = train_rank(self.mesh, killed, RunOptions(resume=bool(checkpoints(saved))))
        good, words, _ = self._same("killed")
        went_on = result.first_step > 0
        text = f"rank {victim} was killed after step {KILLED_AT}, all resumed from step {result.first_step}: {words}"
        return good and went_on, text, {"restart": restart_count(), "went_on_from": result.first_step}


def _losses(job: Job) -> list[float]:
    return [row["loss"] for row in read_metrics(job.run_folder / "metrics.jsonl") if "loss" in row]


# One layer of Llama 3 8B with a small vocabulary, and one that a CPU computes in a moment.
LARGE = ModelSpec(
    layers=1,
    hidden=4096,
    heads=32,
    kv_heads=8,
    ffn=14336,
    vocab=512,
    sequence=4096,
    activation="swiglu",
    norm="rmsnorm",
    positions="rotary",
    bias="none",
)
SMALL = ModelSpec(layers=1, hidden=256, heads=4, vocab=257, sequence=128)
REPEATS = 5


def layer_job(model: ModelSpec, precision: Precision) -> PlannedJob:
    """A step of one sample."""
    return Job(model=model, train=Train(global_batch=1, precision=precision), plan=Plan()).planned


def time_of_layer(model: ModelSpec, device: torch.device, precision: Precision) -> float:
    """Seconds of a step on this device alone, the median of some after the first."""
    job = layer_job(model, precision)
    trainer = make_trainer(job, synthetic_tokens(job), Mesh())
    times = []
    for _ in range(REPEATS + 1):
        synchronize(device)
        began = time.perf_counter()
        trainer.train_step()
        synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])
