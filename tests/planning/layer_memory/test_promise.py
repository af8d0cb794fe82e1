"""A budget is a promise: what is planned within it keeps within it when it is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heddle.format import GIB
from heddle.planning.layer_memory.solve import best_strategies
from heddle.simulating.simulation import simulate
from heddle.spec import Cluster, Data, Job, ModelSpec, Plan, Train
from heddle.spec.cluster import Device, Efficiency, Link, Peak
from heddle.spec.layer_memory import LayerMemory
from heddle.training.dry_run.living import Living
from heddle.training.step.trainer import Trainer

MODEL = ModelSpec(layers=6, hidden=128, heads=4, vocab=512, sequence=128)
# what the allocator cannot use, and what a prediction is off by at most
SLACK = 0.03
CORE = Device(name="core", memory_gib=1.0, memory_gbs=10.0, tflops=Peak(fp32=0.1, bf16=0.1), host=True)
CPU = Cluster(devices=2, device=CORE, links=(Link(name="loopback", gbs=1.0),), efficiency=Efficiency(slack=SLACK))
TOKENS = np.arange(5000, dtype="<u2") % 500


def job(plan: Plan, gib: float, folder: object) -> Job:
    train = Train(global_batch=8, offload_folder=str(folder))
    cluster = replace(CPU, device=replace(CORE, memory_gib=gib))
    return Job(model=MODEL, data=Data(text="-"), train=train, plan=plan, cluster=cluster)


def lived(a_job: Job) -> int:
    """The most bytes of tensors that really live in a second step."""
    living = Living()
    with living:
        trainer = Trainer(a_job, TOKENS)
        trainer.train_step()
        living.most = living.now
        trainer.train_step()
    return living.most


def test_what_is_planned_within_a_budget_keeps_within_it(tmp_path):
    plan = Plan(microbatch=4, prefetch=0)
    free = simulate(job(plan, 1.0, tmp_path)).worst
    lean = plan.with_memory([LayerMemory("full", 0, ("input:disk", "weights:disk", "optimizer:disk"))] * MODEL.layers)
    least = simulate(job(lean, 1.0, tmp_path)).worst
    assert least < 0.6 * free
    seen, seconds = set(), []
    for share in (0.05, 0.2, 0.4, 0.6, 0.8, 1.0):
        budget = least + share * (free - least)
        found = best_strategies(job(plan, budget / GIB, tmp_path))
        assert found is not None
        measured = lived(found.job)
        assert measured <= budget
        assert measured <= found.worst < 1.2 * measured
        seen.add(found.plan)
        seconds.append(found.step_seconds)
    assert len(seen) >= 5
    assert seconds == sorted(seconds, reverse=True)  # more memory is never slower
