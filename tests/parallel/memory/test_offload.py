"""Offload: what leaves the device is gone from it, and everything is as if it had stayed."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.parallel.mesh import Mesh
from heddle.runtime.tiers import Disk, Host, Slot
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.layer_memory import LayerRun
from heddle.training.dry_run.living import Living
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned

MODEL = ModelSpec(layers=4, hidden=64, heads=4, vocab=61, sequence=64, ffn=256, tied=False)
TOKENS = np.arange(5000, dtype="<u2") % 61
ALL = ("activations:disk", "weights:disk", "optimizer:disk")


def job(plan: Plan, folder: Path, **train: Any) -> Job:
    settings = Train(global_batch=4, steps=6, learning_rate=1e-2, offload_folder=str(folder), **train)
    return Job(model=MODEL, data=Data(text="-"), train=settings, plan=plan)


def losses(plan: Plan, folder: Path, steps: int = 4, **train: Any) -> list[float]:
    trainer = Trainer(job(plan, folder, **train), TOKENS)
    return [trainer.train_step().loss for _ in range(steps)]


@cache
def losses_without(recompute: str, precision: str) -> list[float]:
    return losses(Plan(microbatch=2, recompute=recompute), Path(), precision=precision)  # type: ignore[arg-type]


# bf16 takes a CPU long, and where bytes go does not depend on what they mean
@pytest.mark.parametrize(
    ("precision", "tier"),
    thinned(itertools.product(("fp32", "bf16"), ("host", "disk")), slow=[("bf16", "host"), ("fp32", "disk")]),
)
@pytest.mark.parametrize(
    ("recompute", "kinds"),
    [
        ("none", ("optimizer",)),
        ("none", ("activations",)),
        ("selective", ("activations",)),
        ("elementwise", ("activations",)),
        ("full", ("input",)),
        ("none", ("weights", "optimizer")),
        ("none", ("activations", "weights", "optimizer")),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_not_a_bit_changes(tmp_path, precision, tier, recompute, kinds):
    plan = Plan(microbatch=2, recompute=recompute)
    moved = dataclasses.replace(plan, offload=tuple(f"{kind}:{tier}" for kind in kinds))
    assert losses(moved, tmp_path, precision=precision) == losses_without(recompute, precision)


def held(plan: Plan, folder: Path) -> tuple[int, int]:
    """Bytes of the device that live from step to step, and at the fullest moment of a step."""
    living = Living()
    with living:
        trainer = Trainer(job(plan, folder), TOKENS)
        trainer.train_step()
        living.most = living.now
        trainer.train_step()
    return living.now, living.most


def test_what_leaves_is_gone(tmp_path):
    always, most = held(Plan(microbatch=4), tmp_path)
    share = 4 * sum(MODEL.shapes[place].layer_parameters for place in MODEL.shape_of)  # bytes of all layers' weights
    less, _ = held(Plan(microbatch=4, offload=("optimizer:disk",)), tmp_path)
    assert always - less == pytest.approx(2 * 4 * MODEL.parameters, rel=0.01)
    lean, _ = held(Plan(microbatch=4, offload=("weights:disk", "optimizer:disk")), tmp_path)
    assert less - lean == pytest.approx(share, rel=0.01)
    _, peak = held(Plan(microbatch=4, offload=("activations:disk",)), tmp_path)
    assert peak < 0.75 * most


def test_memory_that_several_tensors_view_leaves_once(tmp_path, monkeypatch):
    put: list[int] = []
    whole = Disk.put

    def noted(self: Disk, x: torch.Tensor, size: int) -> Slot:
        put.append(size)
        return whole(self, x, size)

    monkeypatch.setattr(Disk, "put", noted)
    one = (LayerRun(layers="1", offload=("activations:disk",)),)
    Trainer(job(Plan(microbatch=4, layers=one), tmp_path), TOKENS).train_step()
    assert sum(put) / (4 * 64) < 4 * (2 * 2 * 64 + 4 * 64 + 2 * 256 + 64)  # bytes per token that one layer keeps


def test_checkpoints_go_from_any_plan_to_any(tmp_path):
    """Saved and taken up with and without offload: the same losses as if nothing had happened."""
    straight = losses(Plan(microbatch=2), tmp_path, 6)
    plans = [Plan(microbatch=2), Plan(microbatch=2, offload=ALL), Plan(microbatch=2, offload=("optimizer:disk",))]
    for before in plans:
        for after in plans:
            if before is after is plans[0]:
                continue
            folder = tmp_path / f"{plans.index(before)}{plans.index(after)}"
            first, saver = Trainer(job(before, tmp_path), TOKENS), Saver(folder, Mesh())
            for _ in range(3):
                first.train_step()
            first.save(saver)
            first.train_step()  # which must not change what is being saved
            saver.wait()
            second = Trainer(job(after, tmp_path), TOKENS)
            second.load(newest_good(folder, Mesh(), pytest.fail))
            assert [second.train_step().loss for _ in range(3)] == straight[3:]


def test_evaluation_moves_nothing(tmp_path):
    plain, moved = (
        Trainer(job(plan, tmp_path), TOKENS) for plan in (Plan(microbatch=2), Plan(microbatch=2, offload=ALL))
    )
    for trainer in (plain, moved):
        trainer.train_step()
    assert plain.evaluate(TOKENS) == moved.evaluate(TOKENS)
    assert plain.train_step().loss == moved.train_step().loss


class Overlapping(Host):
    """As beside a GPU: copies go on while it computes. Writes down when what is waited for, and fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.layer: dict[int, int] = {}

    def hides(self, _device: torch.device) -> bool:
        return True

    def put(self, x: torch.Tensor, size: int | None = None) -> Slot:
        slot = super().put(x, size)
        number = self.layer[id(slot)] = len([word for word in self.log if word.startswith("end")])
        slot.wait = lambda: self.log.append(f"wait {number}")
        return slot

    def prefetch(self, slot: Slot) -> None:
        if slot.value is None and f"fetch {self.layer[id(slot)]}" not in self.log:
            self.log.append(f"fetch {self.layer[id(slot)]}")
        super().prefetch(slot)


def test_copies_run_beside_the_layers_around_them(tmp_path, monkeypatch):
    """What a layer puts away is waited for at the end of the next; back, the next layer's is under way already."""
    tier = Overlapping()
    monkeypatch.setattr("heddle.runtime.tiers.tiers.Host", lambda: tier)
    trainer = Trainer(job(Plan(microbatch=4, offload=("activations:host",), prefetch=1), tmp_path), TOKENS)
    for number, layer in enumerate(trainer.parallel.chunks[0].layers.values()):
        layer.register_forward_hook(lambda *_, n=number: tier.log.append(f"end {n}"))
    trainer.train_step()
    order = list(dict.fromkeys(tier.log))
    assert order[:8] == ["end 0", "wait 0", "end 1", "wait 1", "end 2", "wait 2", "end 3", "wait 3"]
    assert order[8:] == ["fetch 3", "fetch 2", "fetch 1", "fetch 0"]
    assert tier.log.index("fetch 2") == tier.log.index("fetch 3") + 1  # before anything of layer 2 was asked for


# ------------------------------------------------------------------------------------- replicas that share all of it

SHARED = Plan(data=2, zero=3, microbatch=1)
MOVED = {
    "optimizer": dataclasses.replace(SHARED, offload=("optimizer:host",)),
    "zero 2": dataclasses.replace(SHARED, zero=2, offload=("optimizer:disk",)),
    "weights": dataclasses.replace(SHARED, offload=("weights:host", "optimizer:host")),
    "tensor": dataclasses.replace(SHARED, tensor=2, sequence=True, offload=("optimizer:host",)),
}


def share(mesh: Mesh, a_job: Job, folder: Path | None = None) -> tuple[list[float], int]:
    """Losses of two steps, taken up after one, and the most bytes of the device."""
    with Living() as living:
        trainer = Trainer(a_job, TOKENS, mesh)
        first = trainer.train_step().loss
        if folder is not None:
            saver = Saver(folder, mesh)
            trainer.save(saver)
            saver.wait()
            trainer = Trainer(
                dataclasses.replace(a_job, plan=dataclasses.replace(a_job.plan, offload=())), TOKENS, mesh
            )
            trainer.load(newest_good(folder, mesh, pytest.fail))
        living.most = living.now
        return [first, trainer.train_step().loss], living.most


@pytest.mark.dist
@pytest.mark.parametrize("name", thinned(MOVED, slow=["zero 2", "tensor"]))
def test_replicas_that_share_offload_without_changing_a_bit(world, tmp_path, name):
    """Masters and gradients go with the optimizer; a plan without offload goes on from where it was saved."""
    plan = MOVED[name]
    moved = job(plan, tmp_path, precision="bf16")
    stays = job(dataclasses.replace(plan, offload=()), tmp_path, precision="bf16")
    (losses, most), (plain, all_of_it) = world.run(share, plan, moved)[0], world.run(share, plan, stays)[0]
    assert losses == plain
    shard = MODEL.parameters / 2 / plan.tensor
    # masters and moments, and of the gradients what is there by then; a 16-bit share stays
    assert all_of_it - most > 0.7 * (4 + 8 - 2) * shard
    assert world.run(share, plan, moved, tmp_path / "saved")[0][0] == plain
