"""Bounds against the replay: nothing takes less, or holds less, than they say."""

from dataclasses import replace

import numpy as np
import pytest

from heddle.cost.work import work_of
from heddle.planning.search.legal import SOME
from heddle.planning.search.space import legal_space
from heddle.schedule import NAMES
from heddle.schedule.registry import BY_DEFAULT
from heddle.simulating.closed_form import closed_form
from heddle.simulating.simulation import simulate
from heddle.spec import Cluster, Data, Device, Efficiency, Job, Link, ModelSpec, Peak, Train

OTHERS = [name for name in NAMES if name not in BY_DEFAULT]


def with_experts(model, draw):
    """Experts in all layers but the first few, each of which is small beside them."""
    dense, count = int(draw.integers(0, model.layers)), int(draw.choice([4, 8, 16]))
    counts = (0,) * dense + (count,) * (model.layers - dense)
    return replace(
        model, experts=counts, top_k=2, expert_ffn=2 * model.hidden, activation="swiglu", bias="none", tied=False
    )


def cases(seed, count, experts=False):
    """Random plans of random jobs, each with its replay and what the closed form says of it."""
    draw = np.random.default_rng(seed)
    while count > 0:
        kv = int(draw.choice([1, 2, 4, 8]))
        model = ModelSpec(
            layers=int(draw.integers(1, 25)), hidden=128 * kv, heads=kv, ffn=512 * kv, tied=bool(draw.integers(2)),
            vocab=int(draw.choice([257, 50_257, 256_000])), sequence=int(draw.choice([64, 512, 2048])),
        )  # fmt: skip
        if experts:
            model = with_experts(model, draw)
        elif draw.random() < 0.3:
            wide, far = draw.choice([1, 1, 4], model.layers), draw.choice([0, 16, 64], model.layers)
            widths = tuple(int(512 * kv * each) for each in wide)
            model = replace(model, ffn=widths, window=tuple(int(each) for each in far))
        devices, nodes, shared = int(draw.choice([2, 4, 8])), int(draw.choice([1, 1, 2, 3])), draw.random() < 0.2
        host, precision = bool(draw.random() < 0.3), str(draw.choice(["bf16", "bf16", "fp32"]))
        cluster = Cluster(
            nodes=nodes,
            devices=devices,
            cores=devices // 2 if shared and nodes == 1 else None,
            device=Device(
                name="some", memory_gib=1e3, memory_gbs=1e3, tflops=Peak(fp32=20.0, bf16=200.0), host=host,
                processors=None if host else 108,
            ),
            links=(Link(name="inside", devices=devices, gbs=200.0), Link(name="outside", gbs=20.0)),
            efficiency=Efficiency(overlap=0.8, jitter=0.01, slack=0.05),
        )  # fmt: skip
        train = Train(global_batch=int(draw.choice([1, 4, 12, 32, 96])), precision=precision)
        job = Job(model=model, data=Data(text="x"), cluster=cluster, train=train)
        fixed = {} if draw.random() < 0.8 else {"schedule": str(draw.choice(OTHERS))}
        space = legal_space(model, model.sequence, train.global_batch, [cluster.world], fixed)
        if not len(space):
            continue
        space = space.take(draw.choice(len(space), min(len(space), 8), replace=False))
        most = -(-model.layers // space.columns["pipeline"])  # layers of a rank
        some = (space.columns["recompute"] == SOME) * draw.integers(1, np.maximum(most, 2))
        space.columns["recomputed"][:] = some
        step = closed_form(work_of(job, cluster, space.work_columns()), cluster)
        for row in range(len(space)):
            plan = space.plan(row)
            yield plan, simulate(replace(job, plan=plan)), step, row
            count -= 1


def test_no_replay_is_below_its_bounds():
    gaps = {"stage": [], "pipeline": [], "interleaved": [], "layers that differ": []}
    for plan, exact, step, row in cases(0, 500):
        assert exact.step_seconds >= step.at_least[row] * (1 - 1e-9), plan
        assert exact.worst >= step.memory_at_least[row] * (1 - 1e-9), plan
        kind = "interleaved" if plan.virtual > 1 else "pipeline" if plan.pipeline > 1 else "stage"
        kind = "layers that differ" if len(exact.job.model.shapes) > 1 and plan.pipeline > 1 else kind
        gaps[kind].append(exact.step_seconds / step.at_least[row] - 1)
    # a bound that is far below would be true and useless
    assert np.median(gaps["stage"]) == pytest.approx(0, abs=1e-9)
    assert np.median(gaps["pipeline"]) < 0.002
    assert np.median(gaps["interleaved"]) < 0.02
    assert np.median(gaps["layers that differ"]) < 0.2


def test_no_replay_of_experts_is_below_its_bounds():
    """Nor is what the fullest rank holds taken for that of its dense layers."""
    gaps = []
    for plan, exact, step, row in cases(3, 250, experts=True):
        assert exact.step_seconds >= step.at_least[row] * (1 - 1e-9), plan
        assert exact.worst >= step.memory_at_least[row] * (1 - 1e-9), plan
        if plan.virtual > 1 and plan.zero <= 1 and plan.schedule in BY_DEFAULT and len(exact.job.model.shapes) > 1:
            gaps.append(exact.worst / float(step.memory_at_least[row]) - 1)
    assert len(gaps) > 30
    assert np.quantile(gaps, 0.75) < 0.25


def test_bytes_are_close_where_a_rank_has_one_chunk_or_equal_ones():
    """Extra layers go to the middle: the first rank, which holds most microbatches, has fewer of them."""
    uneven, gaps = 0, []
    for plan, exact, step, row in cases(1, 300):
        alike = len(set(exact.plan.stages)) == 1 and isinstance(plan.recompute, str) and plan.schedule != "gpipe"
        alike = alike and plan.microbatches(exact.job.train.global_batch) % plan.pipeline == 0
        alike = alike and (plan.data > 1 or exact.job.train.precision != "fp32")
        known = plan.schedule in (*BY_DEFAULT, "gpipe")  # of any other the bound is true, and no more
        known = known and len(exact.job.model.shapes) == 1
        if known and (plan.virtual == 1 or alike):
            gaps.append(exact.worst / float(step.memory_at_least[row]) - 1)  # messages, and a way back's later layers
            assert step.memory[row] == pytest.approx(step.memory_at_least[row], rel=1e-9)
            uneven += len(set(exact.plan.stages)) > 1
    assert uneven > 15
    assert np.median(gaps) < 0.02
    assert np.quantile(gaps, 0.9) < 0.25
