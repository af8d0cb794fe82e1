"""Jobs and plans drawn at random, seeded, for what must hold of all of them and not of a list of cases alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, get_args

from heddle.errors import HeddleError
from heddle.spec import Cluster, Data, Job, ModelSpec, Plan, Train
from heddle.spec.cluster import Device, Link, Peak
from heddle.spec.layer_memory import LayerRun, Recompute
from heddle.spec.shorthand import cluster_from_table

CORE = Device(name="core", memory_gib=1.0, memory_gbs=10.0, tflops=Peak(fp32=0.1, bf16=0.1), host=True)
CPU = Cluster(devices=64, device=CORE, links=(Link(name="loopback", gbs=1.0),))
GPU = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 8})


def random_jobs(count: int, seed: int) -> Iterator[Job]:
    """So many legal jobs, each with a plan."""
    chance = random.Random(seed)
    found = 0
    while found < count:
        try:
            job = _draw(chance)
            job.planned.plan.check(job.model, job.train.global_batch, job.sequence)
        except HeddleError:
            continue
        found += 1
        yield job


def _draw(chance: random.Random) -> Job:
    model, one_of = _model(chance), chance.choice
    tensor = one_of((1, 1, 2, 4))
    pipeline = one_of((1, 1, 2, 3, 4))
    schedules = ("1f1b", "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipev", "deep-1f1b")
    schedule = one_of(schedules) if pipeline > 1 else "1f1b"
    data = one_of((1, 1, 2, 3))
    microbatch = one_of((1, 2, 4))
    plan = Plan(
        tensor=tensor,
        sequence=tensor > 1 and chance.random() < 0.5,
        pipeline=pipeline,
        virtual={"interleaved": 2, "zb-v": 2, "dualpipev": 2}.get(schedule, 1),
        data=data,
        zero=one_of((0, 1, 2, 3)) if data > 1 else 0,
        microbatch=microbatch,
        schedule=schedule,
        prefetch=one_of((0, 1, 1, 2)),
        **_memory(chance, model, data),
    )
    batch = data * microbatch * one_of((1, 2, 3, 4, 8))
    train = Train(global_batch=batch, precision=one_of(("fp32", "bf16")))
    return Job(model=model, data=Data(text="-"), train=train, plan=plan, cluster=one_of((CPU, GPU)))


def _model(chance: random.Random) -> ModelSpec:
    one_of = chance.choice
    layers, heads, sequence = one_of((2, 3, 4, 6, 8)), one_of((4, 8)), one_of((128, 256, 320, 512))
    hidden = heads * one_of((16, 32, 64))

    def uneven(some: tuple[int, ...]) -> Any:
        return tuple(one_of(some) for _ in range(layers)) if chance.random() < 0.3 else one_of(some)

    return ModelSpec(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=one_of((heads, heads // 2, heads // 4)),
        ffn=uneven((hidden, 2 * hidden, 4 * hidden)),
        window=uneven((0, 16, 64, 100, 128)) if chance.random() < 0.3 else None,
        vocab=one_of((100, 1000, 2048, 5000)),
        sequence=sequence,
        norm=one_of(("layernorm", "rmsnorm")),
        positions=one_of(("learned", "rotary")),
        activation=one_of(("gelu", "swiglu")),
        bias=one_of(("all", "none", "qkv")),
        qk_norm=chance.random() < 0.25,
        tied=chance.random() < 0.5,
        dropout=0.1 if chance.random() < 0.3 else 0.0,
    )


def _memory(chance: random.Random, model: ModelSpec, data: int) -> dict[str, Any]:
    """What layers do to need less: mostly all the same, at times each its own."""
    words = get_args(Recompute)
    kind = chance.random()
    if kind < 0.6:
        return {"recompute": chance.choice(words)}
    if kind < 0.75:
        return {"recompute": tuple(chance.choice(words) for _ in range(model.layers))}
    runs, at = [], 0
    while at < model.layers:
        last = min(model.layers, at + chance.choice((1, 2, 3))) - 1
        word = chance.choice(words)
        zero = chance.choice((0, 1, 2, 3)) if data > 1 else 0
        leaving = ["input:host" if word == "full" else "activations:host"] if chance.random() < 0.3 else []
        if chance.random() < 0.4:
            leaving += ["optimizer:host"]
            if chance.random() < 0.5 and (data == 1 or zero == 3):
                leaving += ["weights:host"]
        runs.append(LayerRun(layers=f"{at}-{last}", recompute=word, zero=zero, offload=tuple(leaving)))
        at = last + 1
    return {"layers": tuple(runs)}
