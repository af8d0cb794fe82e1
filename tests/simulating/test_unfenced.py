"""Steps that follow each other without a barrier are as long as a stage's own work, and hold what undoes an update."""

import dataclasses

import pytest

from heddle.errors import HeddleError
from heddle.simulating.simulation import simulate
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.shorthand import cluster_from_table

MODEL = ModelSpec(layers=8, hidden=512, heads=8, vocab=8192, sequence=256)


def simulated(**plan: object):
    cluster = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 1})
    train = Train(global_batch=16, precision="bf16")
    return simulate(Job(model=MODEL, cluster=cluster, data=Data(text="-"), train=train, plan=Plan(**plan)))


@pytest.mark.parametrize(("schedule", "virtual"), [("zb-h2", 1), ("zb-v", 2)])
def test_late_starts_cost_nothing(schedule, virtual):
    fields = {"pipeline": 4, "virtual": virtual, "schedule": schedule}
    before, after = simulated(**fields), simulated(**fields, check_step="after")
    assert after.step_seconds < before.step_seconds
    assert after.bubble < before.bubble
    assert after.breakdown.compute == before.breakdown.compute
    for usual, more in zip(before.memory, after.memory, strict=True):
        assert more.optimizer == pytest.approx(2 * usual.optimizer)  # masters and moments once more
        assert more.weights == usual.weights


def test_late_updates_are_refused_where_they_cannot_work():
    plan = Plan(pipeline=4, update="pipedream")
    for train, word in (
        (Train(warmup=2), "shorter than the delay"),
        (Train(steps=40, delay_warmup=40), "delay_warmup = 40, but there are only 40 steps"),
        (Train(precision="fp16"), "precision = 'fp16'"),
    ):
        with pytest.raises(HeddleError, match=word):
            Job(model=dataclasses.replace(MODEL, tied=False), data=Data(text="-"), train=train, plan=plan)
