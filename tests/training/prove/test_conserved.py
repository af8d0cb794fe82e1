"""What codes of gradients promise: what was sent is what was meant, within one quantum; what is lost is found."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch

import heddle.parallel.codecs
from heddle.parallel.codecs import CODECS
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, Plan, Train
from heddle.spec.network import DeviceGroup, Network, Speed
from heddle.spec.network.link_codes import LinkCodes
from heddle.training.prove.conserved import Conserved, coded_plan, observe_codes
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.prove.shrink import shrink
from tests.helpers.small_models import gpt


def job(plan: Plan, network: Network | None = None) -> Job:
    train = Train(steps=20, global_batch=8, precision="fp32")
    return Job(model=gpt(layers=4), data=Data(text="-"), train=train, plan=plan, network=network)


SITES = Network(
    groups=tuple(DeviceGroup(name=name, devices=2, inside=Speed(gbps=10)) for name in ("a", "b")),
    across=Speed(latency_ms=10, gbps=0.1),
)
CASES = {
    "int4": job(Plan(data=4, microbatch=1, compress_gradients="int4")),
    "bf16-zero1": job(Plan(data=2, tensor=2, zero=1, microbatch=1, compress_gradients="bf16")),
    "int8-between": job(Plan(pipeline=1, data=4, microbatch=1, codes=(LinkCodes(gradients="int8"),)), SITES),
}


def observed(mesh: Mesh, a_job: Job, forgets: bool) -> Conserved | None:
    coded = shrink(a_job).coded
    assert coded is not None

    def forgetful(codec, _residual, x):
        return codec.encode(x)

    with patch.object(heddle.parallel.codecs, "said", forgetful) if forgets else nullcontext():
        return observe_codes(mesh, coded, synthetic_tokens(coded))


@pytest.mark.dist
@pytest.mark.parametrize("name", CASES)
def test_what_was_sent_is_what_was_meant_within_one_quantum(world, name):
    plan = shrink(CASES[name]).coded.plan
    found, *others = world.run(observed, plan, CASES[name], False)
    assert others == [None] * (plan.world - 1)
    assert found.steps == 20
    assert found.numbers > 100
    assert 0 < found.most <= 1
    assert found.holds


@pytest.mark.dist
def test_what_is_forgotten_is_found(world):
    found = world.run(observed, shrink(CASES["int4"]).coded.plan, CASES["int4"], True)[0]
    assert found.most > 1
    assert not found.holds


def test_links_keep_their_codes_where_ranks_stay_and_have_the_narrowest_where_they_are_fewer():
    plan = Plan(data=4, microbatch=1, codes=(LinkCodes(gradients="int8", activations="int8"),), devices=(0, 2, 1, 3))
    small = shrink(job(plan, SITES))
    assert small.coded.plan.codes == (LinkCodes(gradients="int8"),)
    assert small.coded.plan.devices == plan.devices
    assert small.job.plan.codes == ()
    assert "codes of links between groups → none" in " ".join(small.notes)
    fewer = coded_plan(job(plan, SITES), plan, Plan(data=2, microbatch=1))
    assert (fewer.codes, fewer.compress_gradients) == ((), "int8")
    assert shrink(job(Plan(data=4, microbatch=1))).coded is None


@pytest.mark.parametrize("name", CODECS)
def test_a_code_is_wrong_by_half_a_quantum_at_most(name):
    x = torch.randn(3, 300, generator=torch.Generator().manual_seed(1)) * torch.logspace(-6, 3, 300)
    codec = CODECS[name]
    far = (codec.decode(codec.encode(x), 300).double() - x.double()).abs()
    quantum = codec.quantum(x)
    assert (far <= quantum * 0.5000001).all()
    assert (far > quantum * 0.25).any()
