"""One memory model: what is predicted, what the dry run counts, and what really lives while a rank trains."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import get_args

import numpy as np
import pytest

from heddle.cost.work import work_of
from heddle.parallel.mesh import Mesh
from heddle.simulating.closed_form import closed_form
from heddle.simulating.simulation import simulate
from heddle.simulating.stage_memory import memory_verdict
from heddle.spec import Cluster, Data, Job, ModelSpec, Plan, Train
from heddle.spec.cluster import Device, Link, Peak
from heddle.spec.layer_memory import LayerRun, Recompute
from heddle.spec.shorthand import cluster_from_table
from heddle.spec.tune import Preference
from heddle.training.dry_run.dry_run import dry_run
from heddle.training.dry_run.living import Living
from heddle.training.dry_run.report import facts
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.random_plans import random_jobs

CLOSE = 0.03
GPU = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 8})
CORE = Device(name="core", memory_gib=1.0, memory_gbs=10.0, tflops=Peak(fp32=0.1, bf16=0.1), host=True)
CPU = Cluster(devices=64, device=CORE, links=(Link(name="loopback", gbs=1.0),))
MODEL = ModelSpec(layers=4, hidden=256, heads=8, vocab=2048, sequence=256)


def job(cluster: Cluster, model: ModelSpec, plan: Plan, microbatches: int, precision: str) -> Job:
    train = Train(global_batch=plan.data * plan.microbatch * microbatches, precision=precision)  # type: ignore[arg-type]
    return Job(model=model, data=Data(text="-"), train=train, plan=plan, cluster=cluster)


# --------------------------------------------------------------------------------------- counted beside predicted

CHOICES = {
    "cluster": (CPU, GPU),
    "precision": ("fp32", "bf16"),
    "norm": ("layernorm", "rmsnorm"),
    "positions": ("learned", "rotary"),
    "activation": ("gelu", "swiglu"),
    "kv_heads": (8, 4),
    "tied": (True, False),
    "tensor": (1, 2, 4),
    "sequence": (False, True),
    "recompute": get_args(Recompute),
    "pipeline": ((1, 1), (2, 1), (4, 1), (2, 2)),  # and virtual
    "zero": ((1, 0), (2, 0), (2, 1)),  # after how many replicas
    "microbatch": (1, 4),
    "microbatches": (1, 3, 8),
}


def drawn(count: int, seed: int) -> list[dict[str, object]]:
    """Cases in which every choice is taken equally often, and pairs of them at random."""
    chance = random.Random(seed)
    columns = {}
    for name, values in CHOICES.items():
        column = list(itertools.islice(itertools.cycle(values), count))
        chance.shuffle(column)
        columns[name] = column
    return [{name: columns[name][i] for name in columns} for i in range(count)]


def job_of(case: dict[str, object]) -> Job:
    names = ("norm", "positions", "activation", "kv_heads", "tied")
    model = dataclasses.replace(MODEL, **{name: case[name] for name in names})  # type: ignore[arg-type]
    (pipeline, virtual), (data, zero) = case["pipeline"], case["zero"]  # type: ignore[misc]
    plan = Plan(
        tensor=case["tensor"],  # type: ignore[arg-type]
        sequence=bool(case["sequence"]) and case["tensor"] != 1,
        pipeline=pipeline,
        virtual=virtual,
        data=data,
        zero=zero,
        microbatch=case["microbatch"],  # type: ignore[arg-type]
        recompute=case["recompute"],  # type: ignore[arg-type]
        schedule="interleaved" if virtual > 1 else "1f1b",
    )
    return job(case["cluster"], model, plan, case["microbatches"], str(case["precision"]))  # type: ignore[arg-type]


def check(a_job: Job, close: float = CLOSE) -> None:
    found, predicted = dry_run(a_job), simulate(a_job)
    for kind in found.kinds:
        breakdown = max((predicted.memory[stage] for stage in kind.stages), key=lambda each: float(each.total))
        assert float(breakdown.total - breakdown.slack) == pytest.approx(kind.bytes, rel=close), kind.stages
    assert a_job.cluster is not None
    step = closed_form(work_of(a_job, a_job.cluster), a_job.cluster)
    assert float(step.memory_at_least) <= predicted.worst * (1 + 1e-9)


DIFFERING = {
    "pipeline": Plan(pipeline=2, microbatch=2, recompute=("full", "none", "none", "selective")),
    "tensor": Plan(tensor=2, sequence=True, data=2, zero=1, microbatch=2),
    "interleaved": Plan(pipeline=2, virtual=2, schedule="interleaved", microbatch=4),
}


@pytest.mark.parametrize(
    ("name", "host"),
    thinned(
        itertools.product(DIFFERING, (True, False)),
        slow=[("pipeline", False), ("tensor", True), ("interleaved", False)],
    ),
)
def test_the_dry_run_counts_what_is_predicted_of_layers_that_differ(name, host):
    plan, cluster = DIFFERING[name], CPU if host else GPU
    model = dataclasses.replace(MODEL, ffn=(512, 4096, 512, 1024))
    check(job(cluster, model, plan, 4, "bf16"))
    breakdowns = simulate(job(cluster, model, plan, 4, "bf16")).memory
    alike = simulate(job(cluster, dataclasses.replace(model, ffn=1536), plan, 4, "bf16")).memory
    if plan.pipeline == 2:
        assert breakdowns[0].weights != alike[0].weights  # and not just the mean


@pytest.mark.parametrize("changes", [{"attention_cap": 30.0, "window": 64}, {"sinks": True, "kv_heads": 2}], ids=str)
def test_the_dry_run_counts_what_is_predicted_of_changed_scores(changes):
    model = dataclasses.replace(MODEL, norm="rmsnorm", activation="swiglu", positions="rotary", vocab=512, **changes)
    check(job(CPU, model, Plan(microbatch=2), 2, "fp32"), close=0.005)


MIXTURE = dataclasses.replace(
    MODEL,
    vocab=512,  # so that experts count, and the output layer does not
    norm="rmsnorm",
    activation="swiglu",
    positions="rotary",
    bias="none",
    tied=False,
    kv_heads=4,
    experts=8,
    top_k=2,
    expert_ffn=256,
)
LATENT = dataclasses.replace(
    MIXTURE,
    kv_heads=8,
    head_size=48,
    rotary_size=16,
    value_size=32,
    kv_latent=64,
    q_latent=96,
    qk_norm=False,
    shared_experts=1,
    router="sigmoid",
    router_bias="choice",
)
EXPERTS = {
    "one": (MIXTURE, Plan(microbatch=2)),
    "shared": (dataclasses.replace(MIXTURE, shared_ffn=256, shared_gate=True), Plan(microbatch=2)),
    "losses": (dataclasses.replace(MIXTURE, z_loss=0.1, balance_loss=0.1), Plan(microbatch=2)),
    "many": (dataclasses.replace(MIXTURE, experts=64, top_k=4, expert_ffn=64), Plan(microbatch=4)),
    "latent": (LATENT, Plan(microbatch=2)),
    "latent-selective": (dataclasses.replace(LATENT, q_latent=0), Plan(microbatch=2, recompute="selective")),
    "latent-tensor": (LATENT, Plan(tensor=2, sequence=True, pipeline=2, microbatch=2)),
    "latent-context": (LATENT, Plan(context=2, microbatch=2)),
    "latent-context-swapped": (LATENT, Plan(context=2, context_exchange="all-to-all", microbatch=2)),
    "full": (MIXTURE, Plan(microbatch=2, recompute="full")),
    "tensor": (MIXTURE, Plan(tensor=2, microbatch=2)),
    "sequence": (MIXTURE, Plan(tensor=2, sequence=True, microbatch=2)),
    "pipeline": (dataclasses.replace(MIXTURE, dense_layers="0"), Plan(pipeline=2, microbatch=2)),
    "zb-h1": (MIXTURE, Plan(pipeline=2, schedule="zb-h1", microbatch=2)),
    "zero1": (MIXTURE, Plan(data=2, zero=1, microbatch=2)),
    "zero3": (MIXTURE, Plan(data=2, zero=3, microbatch=2)),
}
SPLIT_EXPERTS = {
    "expert2": (MIXTURE, Plan(data=2, expert=2, microbatch=2)),
    "expert2-data4-zero1": (MIXTURE, Plan(data=4, expert=2, zero=1, microbatch=2)),
    "expert4-full": (MIXTURE, Plan(data=4, expert=4, zero=1, microbatch=2, recompute="full")),
    "expert2-tensor": (MIXTURE, Plan(tensor=2, sequence=True, data=2, expert=2, zero=1, microbatch=2)),
    "expert2-pipeline": (dataclasses.replace(MIXTURE, dense_layers="0"), Plan(pipeline=2, data=2, expert=2)),
}


@pytest.mark.parametrize("name", thinned(SPLIT_EXPERTS, slow=["expert2", "expert4-full"]))
def test_the_dry_run_counts_what_is_predicted_of_experts_that_ranks_share(name):
    """Its router spreads tokens evenly, so the prediction has to, too."""
    even = dataclasses.replace(GPU, efficiency=dataclasses.replace(GPU.efficiency, expert_spread=0.0))
    model, plan = SPLIT_EXPERTS[name]
    check(job(even, model, plan, 8, "bf16"))


@pytest.mark.parametrize(
    ("name", "host"),
    thinned(
        itertools.product(EXPERTS, (True, False)),
        slow=[
            (name, host)
            for number, name in enumerate(EXPERTS)
            for host in (True, False)
            if (number % 4, host) not in ((0, True), (2, False))  # every other one, on either kind of machine
        ],
    ),
)
def test_the_dry_run_counts_what_is_predicted_of_experts(name, host):
    model, plan = EXPERTS[name]
    check(job(CPU if host else GPU, model, plan, 4, "fp32" if host else "bf16"))


LEARNING = {
    "muon": (Plan(microbatch=2), {"optimizer": "muon"}, None),
    "muon-zero1": (Plan(tensor=2, data=2, zero=1, microbatch=2), {"optimizer": "muon"}, None),
    "muon-pipeline": (Plan(pipeline=2, microbatch=2), {"optimizer": "muon"}, None),
    "muon-zero3": (Plan(data=2, zero=3, microbatch=2), {"optimizer": "muon"}, None),
    "preference": (Plan(microbatch=2), {}, Preference()),
    "preference-zero1": (Plan(tensor=2, sequence=True, data=2, zero=1, microbatch=2), {}, Preference()),
    "preference-pipeline": (Plan(pipeline=2, microbatch=2), {}, Preference()),
    "preference-zero3": (Plan(data=2, zero=3, microbatch=2), {}, Preference()),
}


@pytest.mark.parametrize(
    ("name", "host"),
    thinned(
        itertools.product(LEARNING, (True, False)),
        slow=[
            (name, host)
            for name in LEARNING
            for host in (True, False)
            if host or name not in ("muon-zero3", "preference-zero1")
        ],
    ),
)
def test_the_dry_run_counts_what_is_predicted_of_other_ways_to_learn(name, host):
    """One momentum instead of two; a reference beside the model."""
    plan, train, preference = LEARNING[name]
    model = dataclasses.replace(MIXTURE, experts=0, top_k=0, expert_ffn=0)
    a_job = job(CPU if host else GPU, model, plan, 4, "fp32" if host else "bf16")
    a_job = dataclasses.replace(
        a_job, train=dataclasses.replace(a_job.train, **train), preference=preference, data=None
    )
    check(a_job, 0.05)


@pytest.mark.parametrize("case", drawn(4, 0), ids=lambda case: "-".join(map(str, list(case.values())[1:])))
def test_the_dry_run_counts_what_is_predicted(case):
    check(job_of(case))


@pytest.mark.slow
@pytest.mark.parametrize("case", drawn(108, 1), ids=lambda case: "-".join(map(str, list(case.values())[1:])))
def test_the_dry_run_counts_what_is_predicted_over_the_grid(case):
    check(job_of(case))


@pytest.mark.parametrize(
    ("vocab", "tensor"), thinned(itertools.product((64, 16_384), (1, 2)), slow=[(64, 2), (16_384, 1)])
)
def test_a_large_vocabulary_is_predicted_and_a_small_one(vocab, tensor):
    """Logits, their gradient and that of the output layer's weight are most of the one, and nothing of the other."""
    check(job(GPU, dataclasses.replace(MODEL, vocab=vocab), Plan(tensor=tensor, microbatch=4), 2, "bf16"))


SHARED = {
    "ring": (Plan(context=4, microbatch=2), "rotary"),
    "ring-selective": (Plan(context=2, microbatch=2, recompute="selective", data=2, zero=1), "learned"),
    "gather": (Plan(context=4, context_exchange="gather", microbatch=2), "learned"),
    "gather-full": (Plan(context=4, context_exchange="gather", microbatch=2, recompute="full"), "rotary"),
    "all-to-all": (Plan(context=2, context_exchange="all-to-all", microbatch=2, tensor=2, sequence=True), "rotary"),
    "2d": (Plan(context=4, context_exchange="2d", context_inner=2, microbatch=2), "rotary"),
    "2d-full": (Plan(context=8, context_exchange="2d", context_inner=4, microbatch=2, recompute="full"), "learned"),
}


@pytest.mark.parametrize(
    ("name", "host"),
    thinned(
        itertools.product(SHARED, (True, False)),
        slow=[
            ("ring", True),
            ("ring", False),
            ("gather", True),
            ("gather-full", True),
            ("ring-selective", False),
            ("gather", False),
            ("gather-full", False),
            ("all-to-all", True),
            ("2d", True),
            ("2d-full", False),
        ],
    ),
)
def test_the_dry_run_counts_what_is_predicted_where_ranks_share_samples(name, host):
    plan, positions = SHARED[name]
    model = dataclasses.replace(MODEL, sequence=1024, positions=positions, kv_heads=4 if host else 8)
    check(job(CPU if host else GPU, model, plan, 2, "fp32" if host else "bf16"))


def test_sharing_halves_activations():
    """What microbatches leave behind is half or less, within 5 %; and so it is predicted."""
    model = dataclasses.replace(MODEL, sequence=1024, positions="rotary", norm="rmsnorm", activation="swiglu")
    whole, half = (job(GPU, model, Plan(context=context, microbatch=2), 2, "bf16") for context in (1, 2))
    counted = [max(kind.saved[0] for kind in dry_run(each).kinds) for each in (whole, half)]
    predicted = [float(simulate(each).memory[0].activations) for each in (whole, half)]
    assert counted[1] <= 0.5 * 1.05 * counted[0]
    assert predicted[1] == pytest.approx(counted[1], rel=0.05)


# ------------------------------------------------------------------------------- the same of jobs that nobody chose

SAMPLE = 2  # of the random jobs, with every run of the suite
WORST = 0.11  # ZeRO-1 on CPUs, whose sums begin beside the last backward: 10 % too low


def off(a_job: Job) -> float:
    """By how much the prediction of the fullest rank differs from what is counted."""
    counted = max(kind.bytes for kind in dry_run(a_job).kinds)
    return max(float(breakdown.total - breakdown.slack) for breakdown in simulate(a_job).memory) / counted - 1


def test_random_jobs_hold_what_is_predicted():
    """Windows, dropout, all schedules and levels, layers that recompute, shard and offload on their own."""
    errors = [off(a_job) for a_job in random_jobs(SAMPLE, seed=7)]
    assert [error for error in errors if abs(error) > CLOSE] == []


@pytest.mark.slow
def test_hundreds_of_random_jobs_hold_what_is_predicted():
    """With a seed that no formula was corrected for; what the manual says of them was measured with it."""
    errors = np.array([abs(off(a_job)) for a_job in random_jobs(140, seed=23)])
    assert np.median(errors) < 0.005
    assert np.mean(errors <= CLOSE) >= 0.95
    assert errors.max() < WORST


AWAY = ("activations:host",)
LEAVING = {  # beside a GPU, what layers before one let go comes back while it computes
    "one": (LayerRun(layers="2", offload=AWAY),),
    "apart": (LayerRun(layers="1", offload=AWAY), LayerRun(layers="3", recompute="full", offload=("input:host",))),
    "all": (LayerRun(layers="0-3", offload=AWAY),),
}


@pytest.mark.parametrize("name", thinned(LEAVING, slow=["all"]))
def test_the_dry_run_counts_what_is_predicted_of_activations_that_come_back(name):
    model = dataclasses.replace(MODEL, vocab=64)  # so that activations count, and the output layer does not
    early, late = (Plan(microbatch=4, layers=LEAVING[name], prefetch=prefetch) for prefetch in (1, 0))
    assert abs(off(job(GPU, model, early, 4, "bf16"))) <= CLOSE
    counted = [dry_run(job(GPU, model, plan, 4, "bf16")).kinds[0].bytes for plan in (early, late)]
    assert (counted[0] > 1.05 * counted[1]) == (name != "one")


# ------------------------------------------------------------------------------------------- lived beside predicted

REAL = {  # a bf16 product takes a CPU without the instructions for it a hundred times as long: few tokens of those
    "one device, fp32": (MODEL, Plan(microbatch=4), 1, "fp32"),
    "one device, bf16, full": (MODEL, Plan(recompute="full"), 1, "bf16"),
    "llama, tensor, sequence": ("llama", Plan(tensor=2, sequence=True), 1, "bf16"),
    "llama, pipeline": ("llama", Plan(pipeline=4, microbatch=2), 8, "fp32"),
    "interleaved, full": (MODEL, Plan(pipeline=2, virtual=2, schedule="interleaved", recompute="full"), 4, "fp32"),
    "zero 1": (MODEL, Plan(data=2, tensor=2, zero=1, microbatch=4, recompute="selective"), 2, "fp32"),
}


def real_job(name: str) -> Job:
    model, plan, microbatches, precision = REAL[name]
    if isinstance(model, str):
        llama = {"norm": "rmsnorm", "positions": "rotary", "activation": "swiglu", "bias": "none", "tied": False}
        model = dataclasses.replace(MODEL, kv_heads=4, ffn=384, **llama)
    return job(CPU, model, plan, microbatches, precision)


def take_steps(mesh: Mesh, a_job: Job) -> int:
    """The most bytes of tensors that really lived in a second step."""
    with Living() as living:
        trainer = Trainer(a_job, np.arange(5000, dtype="<u2") % 1000, mesh)
        trainer.train_step()  # which makes the optimizer's state
        living.most = living.now
        trainer.train_step()
    return living.most


@pytest.mark.dist
@pytest.mark.parametrize("name", thinned(REAL, slow=REAL.keys() - {"llama, tensor, sequence", "interleaved, full"}))
def test_what_lives_in_a_real_step_is_what_is_predicted(world, name):
    a_job = real_job(name)
    plan = a_job.plan
    assert plan is not None
    measured = max(world.run(take_steps, plan, a_job))
    counted = max(kind.bytes for kind in dry_run(a_job).kinds)
    predicted = max(float(breakdown.total - breakdown.slack) for breakdown in simulate(a_job).memory)
    assert counted == pytest.approx(measured, rel=CLOSE)
    assert predicted == pytest.approx(measured, rel=CLOSE)


# ----------------------------------------------------------------------------------------------------- one verdict


@pytest.mark.parametrize("spare", [-0.001, 0.001])
def test_fits_means_the_same_everywhere(spare):
    """Plan and search, simulation and dry run, a hair above what a device has and a hair below."""
    plan = Plan(tensor=2, pipeline=2, microbatch=2)
    roomy = job(GPU, MODEL, plan, 4, "bf16")
    has = simulate(roomy).worst / 2**30 * (1 + spare)
    tight = dataclasses.replace(
        roomy, cluster=dataclasses.replace(GPU, device=dataclasses.replace(GPU.device, memory_gib=has))
    )
    assert tight.cluster is not None
    predicted = simulate(tight)
    assert predicted.fits == (spare > 0)
    assert memory_verdict(tight, tight.cluster) == predicted.verdict
    told = facts(dry_run(tight))
    assert (told["fits"], told["needs_bytes"]) == (predicted.fits, predicted.worst)
    assert bool(closed_form(work_of(tight, tight.cluster), tight.cluster).fits) >= predicted.fits  # which is a bound
