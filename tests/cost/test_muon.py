"""What Muon and a reference cost: counted by hand, in closed form and by replay."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from heddle.cost import muon
from heddle.cost.work import work_of
from heddle.models import Transformer
from heddle.simulating.closed_form import closed_form
from heddle.simulating.simulation import simulate
from heddle.spec import Job, ModelSpec, Plan, Train
from heddle.spec.model import ModelSpec as Spec
from heddle.spec.muon import matrix_share
from heddle.spec.preference import Preference
from heddle.spec.shorthand import cluster_from_table
from heddle.training.step.muon import by_muon
from tests.helpers.small_models import experts, gpt, llama

A100 = cluster_from_table({"preset": "dgx-a100-80gb", "nodes": 8})
MODEL = ModelSpec(
    layers=8, hidden=2048, heads=16, vocab=32_000, sequence=2048, norm="rmsnorm", activation="swiglu", tied=False
)
PLANS = [
    Plan(microbatch=2),
    Plan(tensor=4, sequence=True, data=2, zero=1, microbatch=2),
    Plan(pipeline=4, data=2, microbatch=1),
]


def job(plan: Plan, optimizer: str = "adamw", preference: Preference | None = None) -> Job:
    train = Train(global_batch=64, precision="bf16", optimizer=optimizer)
    return Job(model=MODEL, train=train, plan=plan, cluster=A100, preference=preference)


@pytest.mark.parametrize(
    "model", [gpt(), llama(), llama(heads=8, kv_heads=2, head_size=8), experts(shared_ffn=16, shared_experts=1)]
)
def test_the_share_of_matrices_is_that_of_the_model_itself(model: Spec):
    with torch.device("meta"):
        built = Transformer(model)
    found = sum(p.numel() for name, p in built.named_parameters() if by_muon(name))
    assert matrix_share(model) * model.parameters == pytest.approx(found)


def test_a_matrix_takes_five_times_its_three_products():
    """At the speed of large products: 2 m² n + 2 m³ + 2 m² n each."""
    work = work_of(job(PLANS[0], "muon"), A100)
    m, n = 8192, 16_384
    ideal = 5 * (4 * m * m * n + 2 * m**3) / (A100.device.tflops.bf16 * 1e12)
    assert ideal < float(muon.one_seconds(A100, work, n, m)) < 2.5 * ideal


def test_ranks_that_share_the_work_take_less():
    alone, shared = (float(muon.seconds(A100, work_of(job(plan, "muon"), A100), 8)) for plan in PLANS[:2])
    assert alone / 8 < shared < alone
    assert muon.seconds(A100, work_of(job(PLANS[0]), A100), 8) == 0


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("changes", [{"optimizer": "muon"}, {"preference": Preference()}], ids=["muon", "preference"])
def test_closed_form_and_replay_agree(plan, changes):
    plain, other = simulate(job(plan)), simulate(job(plan, **changes))
    quick = closed_form(work_of(job(plan, **changes), A100), A100)
    assert float(quick.seconds) == pytest.approx(other.step_seconds, rel=0.01)
    if "optimizer" in changes:
        assert other.breakdown.optimizer > plain.breakdown.optimizer
        assert other.breakdown.compute == pytest.approx(plain.breakdown.compute)
        assert other.worst < plain.worst
    else:
        # one more forward is a third of a step, and the output layer is computed twice more
        assert 1.25 < other.step_seconds / plain.step_seconds < 1.5
        assert other.worst > plain.worst


def test_with_adapters_a_reference_has_no_weights_of_its_own():
    from heddle.spec.tune import Lora, Tune

    held = [
        work_of(replace(job(PLANS[0], preference=Preference()), tune=tune), A100).copied
        for tune in (None, Tune(lora=Lora()))
    ]
    assert held == [1, 0]
