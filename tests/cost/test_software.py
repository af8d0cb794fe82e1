"""What software does changes what a step takes, and Heddle's own profile is what its trainer does."""

import re
from dataclasses import replace

import pytest

from heddle.cost.software import kernels_of, software_columns
from heddle.cost.work import Work, work_of
from heddle.errors import HeddleError
from heddle.simulating.closed_form import closed_form
from heddle.simulating.simulation import simulate
from heddle.spec import Data, Job, Plan, Train
from heddle.spec.shorthand import cluster_from_table, model_from_table
from heddle.spec.software import HEDDLE, PROFILES, Software

H100 = cluster_from_table({"preset": "dgx-h100", "nodes": 2048})


def test_our_own_profile_is_what_a_work_is_by_default():
    fields = Work.__dataclass_fields__
    for name, value in software_columns(HEDDLE.facts).items():
        assert fields[name].default == value, name


def test_a_bucket_of_ours_is_the_reducers():
    reducer = pytest.importorskip("heddle.parallel.replicas.reducer")
    assert HEDDLE.facts.bucket_mb == pytest.approx(4 * reducer.BUCKET_ELEMENTS / 1e6, rel=0.01)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_a_source_and_kernels(name):
    assert PROFILES[name].source
    assert kernels_of(PROFILES[name])
    assert name in str(Software(profile=name))


def test_a_profile_that_is_not_there_names_the_nearest():
    with pytest.raises(HeddleError, match="megatron-core"):
        Software(profile="megatron-core")


def llama(replicas, **software):
    """Llama 3.1 405B on 8,192 or 16,384 H100 (arXiv 2407.21783, Table 4).

    Its 126 layers were 128 chunks of one layer without the first and the last; chunks of ours have a layer at least.
    """
    plan = Plan(
        tensor=8, sequence=True, pipeline=16, virtual=7, data=replicas, zero=1, microbatch=1, schedule="interleaved",
        stages=(1,) * 97 + (2,) * 14 + (1,),
    )  # fmt: skip
    train = Train(global_batch=2048, sequence=8192, precision="bf16")
    cluster = replace(H100, software=Software(**software))
    model = model_from_table({"preset": "llama-3.1-405b"})
    return simulate(Job(model=model, data=Data(text="-"), train=train, plan=plan, cluster=cluster))


def test_llama_405b_is_as_fast_as_published_and_fits_but_for_slack():
    fewer, more = llama(64, profile="llama 3"), llama(128, profile="llama 3")
    for found, published in ((fewer, 0.43), (more, 0.41)):
        assert found.mfu == pytest.approx(published, rel=0.1)
        estimate = closed_form(work_of(found.job, found.cluster), found.cluster)
        assert float(estimate.memory) == pytest.approx(found.worst, rel=0.02)  # ranks in the middle have a layer more
    assert more.fits  # as many microbatches as stages: fewer are held
    assert re.search(r"77\.\d+ GiB of it is in use, the rest is slack", str(fewer.verdict))
    assert not llama(128, profile="heddle").fits  # keeps more of SwiGLU, and whole gradients


def test_what_is_overlapped_takes_less():
    plain = llama(64, profile="megatron-core 0.8+").step_seconds
    for fact in ("pipeline_overlap", "tensor_overlap"):
        assert llama(64, profile="megatron-core 0.8+", **{fact: 0.0}).step_seconds > plain
