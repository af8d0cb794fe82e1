"""Tokens per expert are counted once each, whoever computes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, Plan, Train
from heddle.training.expert_use import UseCounter
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.small_models import experts, gpt

MODEL = experts(layers=3, dense_layers="1", experts=4)
BATCH, STEPS = 4, 2


def counted(mesh: Mesh, plan: Plan, folder: str, model=MODEL):
    train = Train(steps=STEPS, global_batch=BATCH)
    job = Job(model=model, data=Data(text="-"), train=train, plan=plan)
    trainer = Trainer(job, synthetic_tokens(job), mesh)
    counter = UseCounter(trainer, Path(folder))
    for _ in range(STEPS):
        trainer.train_step()
    return counter.take(), counter.take()


@pytest.mark.dist
def test_every_plan_counts_the_same(world, tmp_path):
    serial, nothing = counted(Mesh(), Plan(microbatch=BATCH), str(tmp_path))
    assert set(serial.layers) == {0, 2}
    assert {sum(uses) for uses in serial.layers.values()} == {STEPS * BATCH * MODEL.sequence * MODEL.top_k}
    assert {sum(uses) for uses in nothing.layers.values()} == {0}
    plan = Plan(tensor=2, pipeline=2, data=2, expert=2, microbatch=1)
    for found, _ in world.run(counted, plan, plan, str(tmp_path)):
        assert found == serial


def test_a_model_without_experts_counts_nothing(tmp_path):
    assert counted(Mesh(), Plan(microbatch=BATCH), str(tmp_path), gpt()) == (None, None)
