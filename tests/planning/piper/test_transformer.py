"""Piper on our own models against what `heddle simulate` replays, and uniform plans that can be run."""

import dataclasses
import itertools
import json
import math
import tomllib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heddle.cost import compute, memory
from heddle.cost import step as stage
from heddle.cost.work import work_of
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.planning.piper.solve import plan_pipelines
from heddle.planning.piper.transformer import model_workload
from heddle.planning.piper.uniform import runtime_plan
from heddle.planning.piper.workload import workload_from
from heddle.simulating.simulation import simulate
from heddle.spec.cluster import Cluster, Device, Link, Peak
from heddle.spec.job import Data, Job, Train, dumps_job, job_from_tables, load_job
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from tests.helpers.commands import call
from tests.helpers.piper_check import evaluate
from tests.planning.piper.test_solve import workloads


def make(layers=6, tied=True, devices=4, nodes=2, gib=4.0, batch=16, precision="bf16", heads=8, **model):
    return Job(
        model=ModelSpec(layers=layers, hidden=512, heads=heads, vocab=4000, sequence=256, tied=tied, **model),
        data=Data(text="x.txt"),
        train=Train(global_batch=batch, precision=precision),
        cluster=Cluster(
            nodes=nodes,
            devices=devices,
            device=Device(name="gpu", memory_gib=gib, memory_gbs=1000, tflops=Peak(fp32=20, bf16=100)),
            links=(Link(name="inside", devices=devices, gbs=200, latency_us=3), Link(name="outside", gbs=10)),
        ),
    )


jobs = st.builds(
    make,
    layers=st.integers(1, 7),
    tied=st.booleans(),
    devices=st.sampled_from([1, 2, 3, 4]),
    nodes=st.integers(1, 3),
    gib=st.sampled_from([0.12, 0.15, 0.2, 0.25, 0.3, 0.5, 2.0]),
    batch=st.sampled_from([1, 4, 6, 12]),
    precision=st.sampled_from(["fp32", "bf16"]),
    heads=st.sampled_from([1, 2, 4]),
)


def uniform(job):
    workload = model_workload(job)
    answer = plan_pipelines(workload, uniform=True)[workload.devices]
    return answer and (answer, dataclasses.replace(job, plan=runtime_plan(job, answer, 1)))


# the gradients of one microbatch are made as its activations go: not both are held at once
one_microbatch = [
    make(layers=1, tied=tied, devices=1, nodes=1, gib=gib, batch=1, precision="fp32", heads=4)
    for tied, gib in ((True, 0.12), (True, 2.0), (False, 2.0))
]


@given(jobs)
@settings(deadline=None, max_examples=25)
@example(one_microbatch[0])
@example(one_microbatch[1])
@example(one_microbatch[2])
@example(make(layers=3, devices=4, nodes=1, gib=0.15, batch=4, precision="fp32", heads=1))  # fullest in its embedding
def test_uniform_pipelines_are_plans_and_cost_what_is_simulated(job):
    found = uniform(job)
    if found is None:
        return
    answer, planned = found
    assert load_text(dumps_job(planned)).plan == planned.plan
    prediction = simulate(planned)
    assert prediction.fits
    held = [float(breakdown.total) for breakdown in prediction.memory]
    # Piper adds up what layers hold each by itself; it may say more than is held at once, and never less.
    for one, exactly in zip(answer.stages, held, strict=True):
        assert exactly * (1 - 1e-9) <= one.memory <= 1.25 * exactly
    # What a stage takes beside its passes is done once per step, by a stage of each replica.
    plan, work = planned.plan, work_of(planned, job.cluster)
    if (plan.world > job.cluster.devices) != (job.cluster.world > job.cluster.devices):
        return  # Piper sends as if all devices were in use, so over slower links
    spans = prediction.trace.spans
    for rank, mine in enumerate(answer.stages):
        passes = sum(s.end - s.start for s in spans if s.rank == rank and s.lane in ("compute", "send"))
        once = mine.seconds * job.train.global_batch - passes
        layers = plan.stages[rank] * memory.layer_parameters(work)
        held = float(layers + memory.end_parameters(work, rank == 0, rank == plan.pipeline - 1))
        update = float(compute.optimizer(job.cluster, work, held / (plan.data if plan.zero else 1)))
        exchange = float(stage.data_exchange(job.cluster, work, held))
        assert update - 1e-9 <= once <= update + exchange + 1e-9
        assert plan.data > 1 or once == pytest.approx(update, rel=1e-6)


def load_text(text):
    return job_from_tables(tomllib.loads(text))


@given(jobs)
@settings(deadline=None, max_examples=15)
def test_no_uniform_plan_is_better(job):
    """Every plan of the runtime with even or nearly even stages, simulated: none that fits has a better pace."""
    workload = model_workload(job)
    answer = plan_pipelines(workload, uniform=True)[workload.devices]
    if answer is not None:
        assert answer.optimal
        assert answer.unrestricted.value <= answer.value * (1 + 1e-9)
    batch, model = job.train.global_batch, job.model
    for tensor, data, pipeline, word in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 3), ("none", "full")):
        plan = Plan(tensor=tensor, data=data, pipeline=pipeline, zero=min(1, data - 1), recompute=word)
        fits = tensor * data * pipeline == workload.devices and data * pipeline <= batch
        if not fits or pipeline > model.layers or job.cluster.devices % tensor:
            continue
        try:
            planned = dataclasses.replace(job, plan=plan)
        except HeddleError:
            continue
        prediction = simulate(planned)
        # What layers hold each by itself is up to a tenth more than what is held at once: such plans may be left out.
        if 1.1 * max(float(breakdown.total) for breakdown in prediction.memory) <= job.cluster.device.memory_gib * GIB:
            assert answer is not None
            spans = [s for s in prediction.trace.spans if s.lane not in ("data", "optimizer")]
            busy = [sum(s.end - s.start for s in spans if s.rank == rank) for rank in range(pipeline)]
            once = prediction.breakdown.optimizer + float(
                stage.data_exchange(job.cluster, work_of(planned, job.cluster), model.parameters)
            )
            assert answer.value <= (max(busy) + once) / batch * (1 + 1e-9)


def brute_force_uniform(document):
    """The best value over all ordered splits with one pair of degrees, by the plain evaluator."""
    ids = [node["id"] for node in document["nodes"]]
    tmpcs = {node["id"]: node["TMPCs"] for node in document["nodes"]}
    devices, memory_limit = document["maxDevices"], document["maxMemoryPerDevice"]
    best = math.inf
    for count in range(1, len(ids) + 1):
        for where in itertools.product(range(count), repeat=len(ids)):
            if set(where) != set(range(count)):
                continue
            groups = [[v for v, at in zip(ids, where, strict=True) if at == number] for number in range(count)]
            for tensor, data in itertools.product((1, 2), range(1, devices + 1)):
                if any(str(tensor) not in tmpcs[v] for v in ids):
                    continue
                for chosen in itertools.product(*(tmpcs[v][str(tensor)] for v in ids)):
                    name = {v: option["id"] for v, option in zip(ids, chosen, strict=True)}
                    stages = [
                        {"layers": g, "data": data, "tensor": tensor, "options": [name[v] for v in g]} for g in groups
                    ]
                    try:
                        best = min(best, evaluate(document, stages, devices, memory_limit)[0])
                    except ValueError:
                        continue
    return best


@given(workloads(most=3))
@settings(deadline=None, max_examples=40)
def test_uniform_is_as_good_as_brute_force(document):
    workload = workload_from(document)
    answer = plan_pipelines(workload, uniform=True)[workload.devices]
    expected = brute_force_uniform(document)
    if answer is None:
        assert expected == math.inf
        return
    stages = [dataclasses.asdict(stage) for stage in answer.stages]
    assert len({(stage["data"], stage["tensor"]) for stage in stages}) == 1
    assert evaluate(document, stages, workload.devices, workload.memory)[0] == pytest.approx(answer.value, rel=1e-9)
    assert answer.value == pytest.approx(expected, rel=1e-9)
    free = plan_pipelines(workload)[workload.devices]
    assert answer.unrestricted.value == pytest.approx(free.value, rel=1e-9)


def test_stages_may_differ_from_each_other():
    job = make(layers=13, devices=4, nodes=2, gib=0.4, batch=64, heads=4)
    workload = model_workload(job)
    answer = plan_pipelines(workload)[8]
    assert answer.optimal
    assert [layer for stage in answer.stages for layer in stage.layers] == ["embedding", *range(13), "head"]
    assert sum(stage.data * stage.tensor for stage in answer.stages) <= 8
    assert all(stage.memory <= workload.memory for stage in answer.stages)


def test_tied_weights_are_held_once_where_one_stage_has_both_ends():
    alone = make(devices=1, nodes=1, batch=1, tied=True)
    (one,) = plan_pipelines(model_workload(alone))[1].stages
    planned = dataclasses.replace(alone, plan=Plan())
    exactly = float(simulate(planned).memory[0].total)
    table = alone.model.vocab * alone.model.hidden * 16  # weight, gradient and moments of the second copy
    assert exactly <= one.memory < exactly + table


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"devices": 9}, "has 8 devices, not 9"),
        ({"devices": 0}, "devices = 0 leaves nothing"),
        ({"microbatch": 3}, "not divisible by a microbatch of 3"),
        ({"microbatch": 0}, "not divisible by a microbatch of 0"),
    ],
)
def test_mistakes_are_told(change, words):
    with pytest.raises(HeddleError, match=words) as error:
        model_workload(make(), **change)
    assert error.value.hint


def test_the_command_writes_a_plan_that_is_simulated(tmp_path, capsys):
    path, plan = tmp_path / "job.toml", tmp_path / "plan.toml"
    path.write_text(dumps_job(make(gib=0.4)), encoding="utf-8")
    assert call("piper", path, "--uniform", "--json", "-o", plan, "--also", "4") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["slower_by"] == pytest.approx(answer["value"] / answer["unrestricted"]["value"] - 1)
    assert load_job(plan).plan.tensor == answer["plan"]["tensor"] == answer["stages"][0]["tensor"]
    assert call("simulate", plan, "--json") == 0
    assert json.loads(capsys.readouterr().out)["step_seconds"] == pytest.approx(answer["step_seconds"])
    assert call("piper", path, "--uniform") == 0
    assert "whose stages may differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-o", "plan.toml"), "There is no trainable plan to write to plan.toml"),
        (("--bandwidth-gib", "25"), "--bandwidth-gib does not apply to a job"),
        (("--memory-gib", "0.001"), "No plan fits 8 devices of 0.001 GiB"),
    ],
)
def test_options_that_do_not_apply_are_told(arguments, told, tmp_path, capsys):
    path = tmp_path / "job.toml"
    path.write_text(dumps_job(make()), encoding="utf-8")
    assert call("piper", path, *arguments) == 2
    assert told in capsys.readouterr().err


def test_layers_that_differ_have_rows_of_their_own():
    workload = model_workload(make(layers=4, ffn=(1024, 8192, 1024, 8192)))
    for options in workload.degrees:
        layers = slice(1, 5)
        seconds, fixed = options.seconds[layers, 0], options.fixed[layers, 0]
        assert seconds[0] == seconds[2] < seconds[1] == seconds[3]
        assert fixed[0] == fixed[2] < fixed[1] == fixed[3]
    alike = model_workload(make(layers=4, ffn=1024)).degrees[0]
    assert workload.degrees[0].seconds[1, 0] == alike.seconds[1, 0]
