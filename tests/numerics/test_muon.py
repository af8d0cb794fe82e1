"""Muon under every plan must learn what it learns on one device, and there what `torch.optim.Muon` does."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

import heddle.parallel.replicas.matrices
import heddle.training.step.muon
from heddle.checkpoint.checkpoint import Saver
from heddle.errors import HeddleError
from heddle.parallel.mesh import Axis, Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.tune import Lora, Tune
from heddle.training.prove.compare import LOSS_LIMIT, Comparison, Observed, compare, likely_cause
from heddle.training.prove.prove import gradient_rounding, observe, observe_serial, synthetic_tokens
from heddle.training.step.muon import by_muon, orthogonal
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import experts, gpt, llama
from tests.helpers.world import World

pytestmark = pytest.mark.dist

LORA = Tune(lora=Lora(rank=3))
GATED = {"shared_experts": 1, "shared_ffn": 16, "shared_gate": True}
# key/value heads of their own number, so that queries are of another shape than keys
WIDE = llama(heads=8, kv_heads=2, head_size=8)

CELLS: dict[str, tuple[ModelSpec, Plan, Tune | None]] = {
    "microbatches": (gpt(), Plan(microbatch=1), None),
    "tensor2": (gpt(), Plan(tensor=2, microbatch=2), None),
    "tensor2-wide": (WIDE, Plan(tensor=2, sequence=True, microbatch=2), None),
    "tensor4": (llama(), Plan(tensor=4, sequence=True, microbatch=2), None),
    "data2": (gpt(), Plan(data=2, microbatch=1), None),
    "data2-zero1": (WIDE, Plan(data=2, zero=1, microbatch=1), None),
    "data4-zero1": (llama(), Plan(data=4, zero=1, microbatch=1), None),
    "data3-zero2": (gpt(), Plan(data=3, zero=2, microbatch=1), None),
    "data2-zero3": (llama(), Plan(data=2, zero=3, microbatch=1), None),
    "context2-zero1": (llama(), Plan(context=2, zero=1, microbatch=2), None),
    "pipeline2": (gpt(), Plan(pipeline=2, microbatch=1), None),
    "pipeline2-virtual2-data2-zero1": (
        llama(layers=4),
        Plan(pipeline=2, virtual=2, data=2, zero=1, microbatch=1, schedule="interleaved"),
        None,
    ),
    "tensor2-data2-zero1": (gpt(), Plan(tensor=2, data=2, zero=1, microbatch=1), None),
    "tensor2-data4-zero1": (llama(), Plan(tensor=2, sequence=True, data=4, zero=1, microbatch=1), None),
    "tensor2-data2-zero3": (WIDE, Plan(tensor=2, data=2, zero=3, microbatch=1), None),
    "zb-v-tensor2": (llama(layers=4), Plan(tensor=2, pipeline=2, virtual=2, microbatch=1, schedule="zb-v"), None),
    "all": (llama(), Plan(tensor=2, sequence=True, pipeline=2, data=2, zero=1, microbatch=1), None),
    "expert2": (experts(**GATED), Plan(tensor=2, data=4, expert=2, zero=1, microbatch=1), None),
    "experts": (experts(**GATED), Plan(tensor=2, sequence=True, data=2, zero=1, microbatch=1), None),
    "lora": (llama(), Plan(tensor=2, sequence=True, data=2, zero=1, microbatch=1), LORA),
    "lora-zero3": (llama(), Plan(tensor=2, data=2, zero=3, microbatch=1), LORA),
}
BATCH = 12
SLOW = (
    "tensor2",
    "tensor4",
    "zb-v-tensor2",
    "lora",
    "tensor2-wide",
    "data2",
    "data2-zero3",
    "pipeline2",
    "tensor2-data2-zero1",
    "lora-zero3",
    "context2-zero1",
    "data2-zero1",
    "data4-zero1",
    "tensor2-data2-zero3",
    "experts",
)


def job(model: ModelSpec, plan: Plan, tune: Tune | None = None, precision: str = "fp32", steps: int = 4) -> Job:
    train = Train(
        global_batch=BATCH, steps=steps, precision=precision, optimizer="muon", learning_rate=1e-2, weight_decay=0.1
    )
    return Job(model=model, data=Data(text="-"), train=train, plan=plan, tune=tune)


@cache
def serial(model: ModelSpec, tune: Tune | None) -> tuple[Observed, float]:
    plain = job(model, Plan(), tune)
    found = observe_serial(plain)
    return found, gradient_rounding(plain, found)


def compared(world: World, name: str, work: Any = observe) -> Comparison:
    model, plan, tune = CELLS[name]
    parallel = world.run(work, plan, job(model, plan, tune))[0]
    return compare(parallel, *serial(model, tune))


@pytest.mark.parametrize("name", thinned(CELLS, slow=SLOW))
def test_every_plan_learns_what_one_device_learns(world, name):
    comparison = compared(world, name)
    assert comparison.max_loss_diff < LOSS_LIMIT
    assert comparison.equal, comparison.worst


def matrices_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """By the names of the matrices that the model means, as whoever wrote it with q, k and v apart has them."""
    found = {}
    for piece in trainer.optimizer.pieces:
        if not by_muon(piece.name):
            continue
        values = piece.master.view(piece.local)
        if piece.name.endswith("qkv.weight"):
            model = trainer.job.model
            size, each = model.head_size, model.group + 2
            heads = values.view(-1, each, size, values.shape[1])
            for target, part in zip("qkv", heads.split([model.group, 1, 1], dim=1), strict=True):
                found[f"{piece.name}:{target}"] = part.flatten(0, 2)
        else:
            found[piece.name] = values
    return found


@pytest.mark.parametrize("model", [gpt(), WIDE], ids=["gpt", "wide"])
def test_one_device_updates_as_torch_does(model):
    """Step by step from the same gradients. Where products are in bf16, as torch's are, the bits are the same."""
    given = job(model, Plan(), precision="bf16")
    trainer = Trainer(given, synthetic_tokens(given))
    theirs = {name: torch.nn.Parameter(x.clone()) for name, x in matrices_of(trainer).items()}
    assert len(theirs) == model.layers * (3 + 1 + (3 if model.gated else 2))
    settings = {"weight_decay": 0.1, "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}
    oracle = torch.optim.Muon(theirs.values(), lr=1.0, **settings)
    step, taken = trainer.optimizer.step, []

    def watched(rate, squared_norm):
        divisor = (squared_norm.sqrt() / trainer.job.train.clip).clamp(min=1).float()
        masters = [(piece.master, piece.master.grad) for piece in trainer.optimizer.pieces]
        values = [master.clone() for master, _ in masters]
        for master, gradient in masters:
            master.copy_(gradient / divisor)
        for name, gradient in matrices_of(trainer).items():
            theirs[name].grad = gradient.clone()
        for (master, _), value in zip(masters, values, strict=True):
            master.copy_(value)
        oracle.param_groups[0]["lr"] = rate
        oracle.step()
        taken.append(rate)
        return step(rate, squared_norm)

    with patch.object(trainer.optimizer, "step", torch.no_grad()(watched)):
        for _ in range(3):
            trainer.train_step()
    assert len(set(taken)) == 3
    for name, ours in matrices_of(trainer).items():
        assert torch.equal(ours, theirs[name]), name


def test_full_precision_makes_what_torch_makes_but_for_its_rounding():
    generator = torch.Generator().manual_seed(0)
    for shape in ((24, 16), (16, 24), (16, 16), (3, 40)):
        x = torch.randn(shape, generator=generator)
        exact = orthogonal(x.double())
        assert torch.allclose(orthogonal(x).double(), exact, atol=1e-5)
        assert torch.allclose(orthogonal(x.bfloat16()).double(), exact, atol=5e-2)
        values = torch.linalg.svdvals(exact)
        assert 0.5 < values.median() <= values.max() < 1.25
        # every odd polynomial acts on singular values alone: another way to the same matrix
        u, s, v = torch.linalg.svd(x.double(), full_matrices=False)
        s = s / x.double().norm()
        for _ in range(5):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        assert torch.allclose(u @ torch.diag(s) @ v, exact, atol=1e-9)


def test_a_stack_of_experts_is_made_of_orthogonal_matrices():
    x = torch.randn(3, 8, 12)
    assert torch.allclose(orthogonal(x), torch.stack([orthogonal(each) for each in x]), atol=1e-6)


def observe_with(fault: Any, mesh: Mesh, given: Job) -> Observed | None:
    with fault():
        return observe(mesh, given)


def slices_by_themselves() -> Any:
    """Each tensor rank makes its own slice orthogonal, as one does that forgets to collect."""
    make = heddle.training.step.muon.WholeMatrices

    def wrong(held, _tensor):
        return make(held, Axis())

    return patch.object(heddle.training.step.muon, "WholeMatrices", wrong)


def fused_qkv() -> Any:
    return patch.object(heddle.training.step.muon.Muon, "_orthogonal", lambda _self, _name, x: orthogonal(x))


def slices_swapped() -> Any:
    join = heddle.parallel.replicas.matrices._joined
    return patch.object(heddle.parallel.replicas.matrices, "_joined", lambda held, parts: join(held, parts[::-1]))


@pytest.mark.parametrize("fault", [slices_by_themselves, fused_qkv, slices_swapped])
def test_a_planted_fault_is_found(world, fault):
    model, plan, _ = CELLS["tensor2-data4-zero1"]
    comparison = compared(world, "tensor2-data4-zero1", partial(observe_with, fault))
    assert not comparison.equal
    assert "the update" in likely_cause(comparison, plan, model)


def saved(mesh: Mesh, given: Job, folder: Path) -> tuple[float, float]:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    saver = Saver(folder, mesh)
    for _ in range(2):
        trainer.train_step()
    trainer.save(saver)
    saver.wait()
    return trainer.train_step().loss, trainer.train_step().loss


def taken_up(mesh: Mesh, given: Job, folder: Path) -> tuple[float, float]:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    trainer.load(folder / "step-00000002")
    return trainer.train_step().loss, trainer.train_step().loss


def test_a_checkpoint_is_taken_up_under_another_plan(world, tmp_path):
    model, plan, _ = CELLS["all"]
    losses = world.run(saved, plan, job(model, plan), tmp_path)[0]
    for other in (Plan(), plan):
        assert world.run(taken_up, other, job(model, other), tmp_path)[0] == pytest.approx(losses, rel=1e-6)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    given = job(gpt(), Plan())
    adamw = Job(model=given.model, data=given.data, train=Train(global_batch=BATCH), plan=Plan())
    saved(Mesh(), adamw, tmp_path)
    with pytest.raises(HeddleError, match="momentum"):
        taken_up(Mesh(), given, tmp_path)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (Plan(pipeline=2, update="pipedream"), "update = 'pipedream'"),
        (Plan(pipeline=2, check_step="after"), "check_step = 'after'"),
        (Plan(data=2, local_steps=2), "local_steps = 2"),
        (Plan(offload=("optimizer:host",)), "optimizer:host"),
    ],
)
def test_what_cannot_be_exact_is_refused(plan, what):
    with pytest.raises(HeddleError, match=f"'muon' cannot be combined with .*{what}"):
        job(gpt(tied=False), plan)
