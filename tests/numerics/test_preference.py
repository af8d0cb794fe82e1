"""Preferences: every plan must have the loss of one device, a mean over all pairs against the right reference."""

from __future__ import annotations

import math
import time
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import pytest
import torch

import heddle.training.step.reference
import heddle.training.step.trainer
from heddle.checkpoint.checkpoint import Saver
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.tune import Lora, Preference, Tune
from heddle.training.prove.compare import LOSS_LIMIT, Comparison, Observed, compare
from heddle.training.prove.prove import (
    conclude,
    exact_first_step,
    gradient_rounding,
    observe,
    observe_serial,
    synthetic_tokens,
)
from heddle.training.prove.shrink import shrink
from heddle.training.step.choose import make_trainer
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import experts, gpt, llama
from tests.helpers.world import World

pytestmark = pytest.mark.dist

LORA = Tune(lora=Lora(rank=3, alpha=6.0))
DROPS = Tune(lora=Lora(rank=2, dropout=0.2))

CELLS: dict[str, tuple[ModelSpec, Plan, Tune | None]] = {
    "microbatches": (gpt(), Plan(microbatch=1), None),
    "lora-microbatches": (llama(), Plan(microbatch=1), LORA),
    "tensor2": (gpt(vocab=17), Plan(tensor=2, microbatch=2), None),
    "lora-tensor2-seq": (llama(), Plan(tensor=2, sequence=True, microbatch=2), LORA),
    "data2": (gpt(), Plan(data=2, microbatch=1), None),
    "lora-data3-shares": (llama(), Plan(data=3, microbatch=1, shares=(5, 2, 1)), LORA),
    "data2-zero1": (llama(dropout=0.1), Plan(data=2, zero=1, microbatch=2), None),
    "lora-data2-zero2": (gpt(), Plan(data=2, zero=2, microbatch=1), DROPS),
    "data4-zero3": (llama(), Plan(data=4, zero=3, microbatch=1), None),
    "lora-data2-zero3": (llama(), Plan(data=2, zero=3, microbatch=1, recompute="full"), LORA),
    "pipeline2": (gpt(), Plan(pipeline=2, microbatch=1), None),
    "lora-pipeline2-virtual2": (
        llama(layers=4),
        Plan(pipeline=2, virtual=2, microbatch=1, schedule="interleaved"),
        DROPS,
    ),
    "lora-zb-v": (llama(layers=4), Plan(pipeline=2, virtual=2, microbatch=1, schedule="zb-v"), LORA),
    "zb-h1": (gpt(layers=3), Plan(pipeline=3, microbatch=1, schedule="zb-h1"), None),
    "context2": (llama(), Plan(context=2, data=2, microbatch=1), None),
    "lora-context2-tensor2": (llama(), Plan(context=2, tensor=2, microbatch=1), LORA),
    "experts": (experts(balance_loss=0.0, z_loss=0.0), Plan(tensor=2, data=2, zero=1, microbatch=1), None),
    "all": (llama(), Plan(tensor=2, sequence=True, pipeline=2, data=2, zero=1, microbatch=1, recompute="full"), None),
    "lora-all": (llama(dropout=0.1), Plan(tensor=2, sequence=True, pipeline=2, data=2, zero=1, microbatch=1), DROPS),
}
SLOW = (
    "microbatches",
    "tensor2",
    "lora-tensor2-seq",
    "data2",
    "lora-data2-zero2",
    "pipeline2",
    "context2",
    "zb-h1",
    "experts",
    "lora-data2-zero3",
    "lora-pipeline2-virtual2",
)
BATCH = 8


def job(model: ModelSpec, plan: Plan, tune: Tune | None, pack: bool = False, precision: str = "fp32") -> Job:
    train = Train(global_batch=BATCH, steps=3, precision=precision, learning_rate=1e-2, eval_batches=2)
    data = Data(chat="-", learn="preference", pack=pack)
    return Job(model=model, data=data, train=train, plan=plan, tune=tune, preference=Preference(beta=0.5))


@cache
def serial(model: ModelSpec, tune: Tune | None, pack: bool) -> tuple[Observed, float]:
    plain = job(model, Plan(), tune, pack)
    found = observe_serial(plain)
    return found, gradient_rounding(plain, found)


def compared(world: World, name: str, work: Any = observe, pack: bool = False) -> Comparison:
    model, plan, tune = CELLS[name]
    parallel = world.run(work, plan, job(model, plan, tune, pack))[0]
    return compare(parallel, *serial(model, tune, pack))


@pytest.mark.parametrize("name", thinned(CELLS, slow=SLOW))
def test_every_plan_learns_what_one_device_learns(world, name):
    comparison = compared(world, name)
    assert comparison.max_loss_diff < LOSS_LIMIT
    assert comparison.equal, comparison.worst


def rewards_of(mesh: Mesh, given: Job) -> list[tuple[float, ...]]:
    trainer = make_trainer(given, synthetic_tokens(given), mesh)
    handed = [trainer.steps.start_step() for _ in range(given.train.steps)]
    trainer.steps.drain()
    return [step.read().rewards for step in handed]


@pytest.mark.parametrize("name", ["data4-zero3", "lora-context2-tensor2"])
def test_every_plan_tells_the_rewards_of_one_device(world, name):
    model, plan, tune = CELLS[name]
    alone = rewards_of(Mesh(), job(model, Plan(), tune))
    found = world.run(rewards_of, plan, job(model, plan, tune))
    for step, expected in enumerate(alone):
        chosen, rejected, right = expected
        assert found[0][step] == pytest.approx((chosen, rejected, right), rel=1e-4, abs=1e-6)
        assert right == pytest.approx(round(right * BATCH) / BATCH)  # a share of the pairs of the batch
    assert all(each == found[0] for each in found)  # every rank knows
    assert abs(alone[-1][0] - alone[-1][1]) > 1e-3  # it learns


@pytest.mark.parametrize("name", thinned(["data4-zero3", "lora-all"], slow=["data4-zero3"]))
def test_several_pairs_in_a_sample_are_learned_alike_under_every_plan(world, name):
    """The mean is over pairs, of which samples have one, two or three."""
    assert compared(world, name, pack=True).equal


@pytest.mark.parametrize("tune", [None, LORA], ids=["full", "lora"])
def test_one_device_has_the_loss_and_the_gradients_of_the_formula(tune):
    """Written out in double precision, over logits of the plain model; B is random, so the reference is another."""
    observed, rounding = serial(llama(), tune, False)
    loss, _ = exact_first_step(job(llama(), Plan(), tune))
    assert rounding < 1e-5
    assert observed.losses[0] == pytest.approx(loss, rel=1e-6)
    assert math.isclose(loss, math.log(2), rel_tol=1e-9) == (tune is None)  # it starts from its reference
    assert abs(observed.losses[2] - observed.losses[0]) > 1e-2


def observe_with(fault: Any, mesh: Mesh, given: Job) -> Observed | None:
    with fault():
        return observe(mesh, given)


def reference_with_adapters() -> Any:
    return patch.object(heddle.training.step.reference, "adapters_off", lambda _modules: torch.no_grad())


def mean_of_means() -> Any:
    """Each microbatch by its own number of pairs."""
    works = heddle.training.step.trainer.Trainer._works

    def wrong(self, *arguments, **more):
        found = works(self, *arguments, **more)
        return [
            work._replace(batch=_replaced(work.batch, count=work.batch.pairs.count / 2 / self.plan.context))
            for work in found
        ]

    return patch.object(heddle.training.step.trainer.Trainer, "_works", wrong)


def _replaced(batch, **changes):
    import dataclasses

    return dataclasses.replace(batch, **changes)


def test_means_over_microbatches_are_found(world):
    comparison = compared(world, "data4-zero3", partial(observe_with, mean_of_means), pack=True)
    assert not comparison.equal


def test_a_reference_with_adapters_on_is_named(world):
    """In the plan alone, and also where one device makes the same mistake."""
    model, plan, tune = CELLS["lora-all"]
    shrunk = shrink(job(model, plan, tune), steps=2)
    small = shrunk.job
    parallel = world.run(partial(observe_with, reference_with_adapters), small.plan, small)[0]
    proof = conclude(shrunk, parallel, time.monotonic())
    assert not proof.comparison.equal
    assert "the reference has its adapters on" in proof.verdict
    with reference_with_adapters():
        assert "the reference has its adapters on" in conclude(shrunk, parallel, time.monotonic()).verdict
    right = conclude(shrunk, world.run(observe, small.plan, small)[0], time.monotonic())
    assert right.comparison.equal, right.verdict


def evaluated(mesh: Mesh, given: Job) -> float | None:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    trainer.train_step()
    return trainer.evaluate(synthetic_tokens(given))


def test_evaluation_does_not_depend_on_the_plan(world):
    model, plan, tune = CELLS["lora-all"]
    expected = evaluated(Mesh(), job(model, Plan(), tune))
    assert expected != pytest.approx(math.log(2), abs=1e-3)
    assert world.run(evaluated, plan, job(model, plan, tune))[0] == pytest.approx(expected, rel=1e-5)


def saved(mesh: Mesh, given: Job, folder: Any) -> float:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    saver = Saver(folder, mesh)
    for _ in range(2):
        trainer.train_step()
    trainer.save(saver)
    saver.wait()
    return trainer.train_step().loss


def taken_up(mesh: Mesh, given: Job, folder: Any) -> float:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    trainer.load(folder / "step-00000002")
    return trainer.train_step().loss


@pytest.mark.parametrize("name", ["all", "lora-all"])
def test_a_run_that_goes_on_keeps_its_reference(world, tmp_path, name):
    model, plan, tune = CELLS[name]
    loss = world.run(saved, plan, job(model, plan, tune), tmp_path)[0]
    assert loss != pytest.approx(math.log(2), abs=1e-4)
    assert taken_up(Mesh(), job(model, Plan(), tune), tmp_path) == pytest.approx(loss, rel=1e-6)


def test_low_precision_learns_what_it_should():
    given = job(llama(), Plan(), LORA, precision="bf16")
    observed = observe_serial(given)
    assert observed.losses[0] == pytest.approx(exact_first_step(given)[0], rel=2e-2)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"data": Data(text="-")}, "data.text"),
        ({"data": Data(chat="-")}, "data.learn = 'assistant'"),
        ({"tune": Tune(lora=Lora(), also=("norm",))}, "tune.also"),
        ({"tune": Tune(lora=Lora(), adapter="folder")}, "tune.adapter"),
        ({"plan": Plan(pipeline=2, update="pipedream")}, "update = 'pipedream'"),
        ({"plan": Plan(data=2, local_steps=2)}, "local_steps = 2"),
        ({"preference": None}, "no .preference."),
    ],
)
def test_what_has_no_reference_or_no_pairs_is_refused(changes, what):
    given = job(gpt(tied=False), Plan(), None)
    with pytest.raises(HeddleError, match=what):
        _replaced(given, **changes)
