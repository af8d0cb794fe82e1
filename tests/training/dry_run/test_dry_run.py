"""The dry run: what it finds is what a real run does, nothing is lost between kinds of rank, and it is quick."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.schedule import build, verify
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.layer_memory import LayerRun
from heddle.spec.ranks import coordinates
from heddle.spec.shorthand import model_from_table
from heddle.training.dry_run.dry_run import DryRun, KindOfRank, dry_run
from heddle.training.dry_run.observe import CommKind, Observation, Tally, observe_step
from tests.helpers.cases import thinned
from tests.helpers.commands import REPOSITORY, call, write_named_blocks

GPT = ModelSpec(layers=4, hidden=32, heads=4, vocab=61, sequence=16)
LLAMA = ModelSpec(
    layers=4,
    hidden=32,
    heads=8,
    kv_heads=4,
    vocab=61,
    sequence=16,
    norm="rmsnorm",
    activation="swiglu",
    positions="rotary",
    bias="none",
    qk_norm=True,
    tied=False,
)
GPT3 = ModelSpec(layers=96, hidden=12288, heads=96, vocab=51200, sequence=2048)
TRILLION = ModelSpec(layers=128, hidden=25600, heads=160, vocab=51200, sequence=2048)


def job(model: ModelSpec, plan: Plan, batch: int, precision: str = "fp32") -> Job:
    train = Train(global_batch=batch, precision=precision)  # type: ignore[arg-type]
    return Job(model=model, data=Data(text="nowhere"), train=train, plan=plan)


def check_conservation(found: DryRun) -> None:
    """Every rank is of one kind, and together they hold each parameter as often as the plan says."""
    model, plan = found.job.model, found.plan
    assert sorted(rank for kind in found.kinds for rank in found.ranks(kind)) == list(range(plan.world))
    held = sum(len(kind.tensor) * len(kind.stages) * kind.held.parameters for kind in found.kinds)
    padding = (-(-model.vocab // plan.tensor) * plan.tensor - model.vocab) * model.hidden
    copied = model.tied and plan.pipeline > 1
    expected = model.parameters + padding * (1 if model.tied else 2)
    expected += (model.vocab * model.hidden + padding) if copied else 0
    # every tensor-parallel rank holds all norms, the biases after a row-parallel product, and learned positions
    by_layer = 2 * model.norm_parameters + (2 * model.hidden if model.bias == "all" else 0)
    by_layer += 2 * model.head_size if model.qk_norm else 0
    positions = model.sequence * model.hidden if model.positions == "learned" else 0
    expected += (plan.tensor - 1) * (model.layers * by_layer + model.norm_parameters + positions)
    assert held == expected


def check_messages(found: DryRun) -> None:
    """What ranks of one tensor and data coordinate send is what the schedule sends, and all of it is received.

    A message is a slice of the tokens, with sequence parallelism and without.
    """
    model, plan = found.job.model, found.plan
    schedule = build(plan.schedule, plan.pipeline, found.microbatches, plan.virtual)
    assert found.messages == verify(schedule).messages
    width = torch.float32.itemsize if found.job.train.precision == "fp32" else torch.bfloat16.itemsize
    message = plan.microbatch * found.job.sequence * model.hidden * width // plan.tensor
    for operation in ("send", "receive"):
        tallies = [
            kind.traffic.get(CommKind("pipeline", operation), Tally())
            for kind in found.kinds
            if 0 in kind.tensor
            for _ in kind.stages
        ]
        assert sum(tally.number for tally in tallies) == found.messages
        assert sum(tally.size for tally in tallies) == found.messages * message


def kind_of(found: DryRun, rank: int) -> KindOfRank:
    place = coordinates(found.plan, rank)
    (kind,) = [kind for kind in found.kinds if place.tensor in kind.tensor and place.pipeline in kind.stages]
    return kind


# ---------------------------------------------------------------------------------------------------- large plans


def in_seconds(a_job: Job, limit: float) -> DryRun:
    """A dry run that takes no more processor time than that, and hardly any memory."""
    memory, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = dry_run(a_job)
    assert time.process_time() - began < limit
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500_000  # KiB; a rank has 4 GB of weights
    return found


@pytest.mark.slow
def test_a_trillion_parameters_on_3072_ranks():
    plan = Plan(tensor=8, pipeline=64, data=6, microbatch=1, recompute="full")
    found = in_seconds(job(TRILLION, plan, 3072, "bf16"), 60)
    check_conservation(found)
    check_messages(found)
    assert found.microbatches == 512
    assert [kind.stages for kind in found.kinds] == [(0,), tuple(range(1, 63)), (63,)]
    assert [len(found.ranks(kind)) for kind in found.kinds] == [48, 2976, 48]
    middle = found.kinds[1]
    # bf16 weights, fp32 gradients (their buckets padded to equal shares), fp32 master and two moments with their steps
    assert middle.held.parameter_bytes == 2 * middle.held.parameters
    assert 0 <= middle.held.gradient_bytes - 4 * middle.held.parameters < 4 * 6 * 20
    assert 0 <= middle.held.optimizer_bytes - 12 * middle.held.parameters < 4 * 100
    # 2 s b h bytes per layer with full recomputation (arXiv 2205.05198, §5)
    assert middle.saved == (2 * 2 * 2048 * 25600,)
    assert middle.peak_stash == tuple(range(63, 1, -1))
    assert middle.peak.saved == 63 * middle.saved[0]
    # two all-reduces a layer in the forward, as many when it is recomputed and in the backward (PTD-P §3.2)
    whole = 2 * 2048 * 25600
    assert middle.traffic[CommKind("tensor", "all-reduce")] == Tally(2 * 6 * 512, 2 * 6 * 512 * whole)
    assert middle.traffic[CommKind("tensor", "all-gather")] == Tally(2 * 512, 2 * 512 * whole)  # of what was scattered


@pytest.mark.parametrize("sequence", [False, True])
def test_a_gated_mlp_travels_as_often_as_a_plain_one(sequence):
    """Gate and up take the same input: it is gathered once for both, and its gradient summed once."""
    plan = Plan(tensor=2, sequence=sequence)
    plain = ModelSpec(layers=2, hidden=16, heads=4, vocab=64, sequence=8, ffn=32)
    gated = dataclasses.replace(plain, activation="swiglu")
    one, other = (dry_run(job(model, plan, 2)).kinds[0].traffic for model in (plain, gated))
    assert dict(one) == dict(other)
    assert any(channel.axis == "tensor" for channel in one)


@pytest.mark.slow
def test_gpt3_on_512_ranks():
    plan = Plan(tensor=8, sequence=True, pipeline=8, virtual=3, data=8, zero=1, schedule="interleaved")
    found = in_seconds(job(GPT3, plan, 1024, "bf16"), 60)
    check_conservation(found)
    check_messages(found)
    assert [kind.layers for kind in found.kinds] == [(4, 4, 4)] * 3
    middle = found.kinds[1]
    assert abs(middle.held.optimizer_bytes - 12 * middle.held.parameters / 8) < 10_000  # shared by eight replicas
    tensor = {channel.operation: tally for channel, tally in middle.traffic.items() if channel.axis == "tensor"}
    # forward: a gather before and a reduce-scatter after each pair of products; backward: the same and one more gather
    whole = 2 * 2048 * 12288
    assert tensor["reduce-scatter"] == Tally(12 * 4 * 128, 12 * 4 * 128 * whole)
    assert tensor["all-gather"] == Tally(12 * 6 * 128, 12 * 6 * 128 * whole)


# Table 1 of PTD-P: preset, tensor, pipeline, chunks per rank, data, microbatch, global batch
TABLE_1 = [
    ("megatron-1.7b", 1, 1, 1, 32, 16, 512),
    ("megatron-3.6b", 2, 1, 1, 32, 16, 512),
    ("megatron-7.5b", 4, 1, 1, 32, 16, 512),
    ("megatron-18.4b", 8, 1, 1, 32, 8, 1024),
    ("megatron-39.1b", 8, 2, 1, 32, 4, 1536),
    ("megatron-76.1b", 8, 4, 3, 32, 2, 1792),
    ("megatron-145.6b", 8, 8, 2, 24, 2, 2304),
    ("megatron-310.1b", 8, 16, 2, 15, 1, 2160),
    ("megatron-529.6b", 8, 35, 3, 9, 1, 2520),
    ("megatron-1008b", 8, 64, 1, 6, 1, 3072),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "tensor", "pipeline", "virtual", "data", "microbatch", "batch"),
    [pytest.param(*row, id=row[0]) for row in TABLE_1],
)
def test_megatrons_table_1(preset, tensor, pipeline, virtual, data, microbatch, batch):
    plan = Plan(
        tensor=tensor,
        pipeline=pipeline,
        virtual=virtual,
        data=data,
        microbatch=microbatch,
        schedule="1f1b" if virtual == 1 else "interleaved",
        recompute="full",
    )
    found = in_seconds(job(model_from_table({"preset": preset}), plan, batch, "bf16"), 60)
    check_conservation(found)
    check_messages(found)
    inner = max(kind.held.parameters for kind in found.kinds)
    ideal = found.job.model.parameters / (tensor * pipeline)
    assert ideal <= inner < 1.2 * ideal  # no rank holds much more than its share


@pytest.mark.slow
def test_zero_3_over_512_replicas():
    found = in_seconds(job(GPT3, Plan(data=512, zero=3, recompute="full"), 512, "bf16"), 90)
    (kind,) = found.kinds
    assert kind.held.parameters == pytest.approx(GPT3.parameters / 512, rel=0.01)
    assert kind.traffic[CommKind("data", "reduce-scatter")].number == 97  # each layer, and the two ends together


# -------------------------------------------------------------------------------------------------- kinds of rank


def test_padding_of_the_vocabulary_makes_kinds():
    """61 rows over 4 ranks are 16, 16, 16 and 13; stages without a vocabulary do not care."""
    found = dry_run(job(GPT, Plan(tensor=4, pipeline=3), 4))
    assert [(kind.tensor, kind.stages) for kind in found.kinds] == [
        ((0, 1, 2), (0,)),
        ((3,), (0,)),
        ((0, 1, 2, 3), (1,)),
        ((0, 1, 2), (2,)),
        ((3,), (2,)),
    ]
    check_conservation(found)


def test_layers_and_recomputation_make_kinds():
    model = dataclasses.replace(GPT, layers=8)
    recompute = ("none",) * 4 + ("full",) * 2 + ("none",) * 2
    found = dry_run(job(model, Plan(pipeline=5, stages=(1, 2, 1, 2, 2), recompute=recompute), 5))
    # stages 1 and 3 both have two layers, but those of stage 3 recompute
    assert [kind.stages for kind in found.kinds] == [(0,), (1,), (2,), (3,), (4,)]
    kept, forgotten = found.kinds[1].saved[0], found.kinds[3].saved[0]
    assert forgotten == 2 * 16 * 32 * 4 < kept / 5
    alike = dry_run(job(model, Plan(pipeline=5, stages=(1, 2, 1, 2, 2)), 5))
    assert [kind.stages for kind in alike.kinds] == [(0,), (1, 3), (2,), (4,)]
    assert alike.kinds[1].peak_stash == (4, 2)
    assert alike.kinds[1].peak.saved == 4 * alike.kinds[1].saved[0]


@pytest.mark.parametrize(
    ("model", "plan"),
    thinned(
        [
            (GPT, Plan(tensor=2, sequence=True, pipeline=4, data=3)),
            (LLAMA, Plan(tensor=4, pipeline=2)),
            (dataclasses.replace(LLAMA, tied=True, bias="qkv"), Plan(tensor=2, pipeline=2)),
        ],
        slow=[(LLAMA, Plan(tensor=4, pipeline=2))],
    ),
)
def test_nothing_is_lost(model, plan):
    found = dry_run(job(model, plan, 12))
    check_conservation(found)
    if plan.pipeline > 1:
        check_messages(found)


@pytest.mark.parametrize("model", [LLAMA])
def test_what_all_microbatches_share_is_not_saved_by_each(model):
    """Twice as large a microbatch saves twice as much: no weights, no tables of positions."""
    one, two = (dry_run(job(model, Plan(pipeline=3, microbatch=size), 4)) for size in (1, 2))
    assert [kind.saved for kind in two.kinds[:2]] == [(2 * kind.saved[0],) for kind in one.kinds[:2]]


OFFLOADED = ("input:host", "weights:host", "optimizer:host")


@pytest.mark.parametrize(
    "plan",
    [Plan(data=2, zero=3, recompute="full", offload=OFFLOADED), Plan(data=2, zero=2), Plan(pipeline=2, microbatch=2)],
    ids=["offload", "zero 2", "fp32 gradients that backwards make"],
)
def test_the_items_add_up_to_the_whole(plan):
    for kind in dry_run(job(LLAMA, plan, 4)).kinds:
        held, peak = kind.held, kind.peak
        items = held.parameter_bytes + held.optimizer_bytes + peak.gradients + peak.fetched + peak.saved
        assert items <= kind.bytes
        assert items + kind.temporary == kind.bytes


def test_what_leaves_the_device_is_told_apart():
    """Weights of layers are on the host, and no longer on the device; so are masters, gradients and moments."""
    stays, leaves = (
        dry_run(job(LLAMA, Plan(data=2, zero=3, recompute="full", offload=offload), 4)).kinds[0]
        for offload in ((), OFFLOADED)
    )
    shard = LLAMA.parameters / 2 * 4  # in fp32, where weights are their own masters
    assert stays.away == {}
    assert leaves.held.parameter_bytes < 0.5 * stays.held.parameter_bytes
    assert leaves.held.optimizer_bytes < 0.01 * stays.held.optimizer_bytes
    homes = 4 * shard  # weights, gradients and two moments
    assert homes * 0.95 < leaves.away["host"] < homes * 1.2  # and the inputs of layers
    assert leaves.bytes < 0.5 * stays.bytes


def test_weights_that_stay_gathered_have_an_item_of_their_own():
    whole, by_layer = (dry_run(job(LLAMA, Plan(data=2, zero=zero), 4)).kinds[0].peak.fetched for zero in (2, 3))
    assert whole == pytest.approx(LLAMA.parameters * 4, rel=0.05)  # all but the last norm, and positions
    assert by_layer < 0.7 * whole


def test_layers_that_differ_are_of_different_kinds():
    """In shape, or in what they do."""
    narrow = dataclasses.replace(GPT, layers=4, ffn=(32, 64, 32, 64))
    found = dry_run(job(narrow, Plan(pipeline=4), 4))
    assert [kind.stages for kind in found.kinds] == [(0,), (1,), (2,), (3,)]
    one = (LayerRun(layers="1", offload=("optimizer:host",)),)
    found = dry_run(job(dataclasses.replace(GPT, layers=4), Plan(pipeline=4, layers=one), 4))
    assert [kind.stages for kind in found.kinds] == [(0,), (1,), (2,), (3,)]


def test_virtual_chunks_are_weighed_one_by_one():
    """The rank with the last chunk holds the logits' bytes for that chunk only."""
    model = dataclasses.replace(GPT, layers=6)
    found = dry_run(job(model, Plan(pipeline=2, virtual=3, schedule="interleaved"), 8))
    last = found.kinds[1]
    assert last.saved[0] == last.saved[1] < last.saved[2]
    assert last.peak.saved < last.peak_stash[0] * last.saved[2]
    check_messages(found)


# --------------------------------------------------------------------------------------------- beside the real run

REAL: dict[str, tuple[ModelSpec, Plan, int, str]] = {
    "tensor": (GPT, Plan(tensor=4, microbatch=2), 8, "fp32"),
    "sequence, selective": (LLAMA, Plan(tensor=2, sequence=True, recompute="selective"), 3, "fp32"),
    "pipeline": (GPT, Plan(pipeline=4), 6, "fp32"),
    "interleaved, tensor": (
        dataclasses.replace(LLAMA, dropout=0.1),
        Plan(tensor=2, pipeline=2, virtual=2, schedule="interleaved", recompute="full"),
        5,
        "bf16",
    ),
    "data, sequence": (GPT, Plan(data=2, tensor=2, sequence=True), 8, "bf16"),
    "zero 1, pipeline": (GPT, Plan(data=2, pipeline=2, zero=1), 8, "bf16"),
    "zero 2, tensor": (GPT, Plan(data=2, tensor=2, zero=2), 8, "fp32"),
    "context, ring": (LLAMA, Plan(context=2, data=2, zero=1), 8, "fp32"),
    "context, gather, tensor": (GPT, Plan(context=2, context_exchange="gather", tensor=2), 4, "fp32"),
    "zero 3": (LLAMA, Plan(data=4, zero=3, recompute="full"), 12, "bf16"),
}

QUICK_PLANS = ("interleaved, tensor",)


def take_real_step(mesh: Mesh, a_job: Job) -> Observation:
    return observe_step(a_job, np.arange(1000, dtype="<u2") % 61, mesh)


@pytest.mark.dist
@pytest.mark.parametrize("name", thinned(REAL, slow=REAL.keys() - QUICK_PLANS))
def test_a_real_run_does_what_the_dry_run_says(world, name):
    model, plan, batch, precision = REAL[name]
    found = dry_run(job(model, plan, batch, precision))
    assert found.microbatches > 2  # what is counted, not only what is run
    for rank, seen in enumerate(world.run(take_real_step, plan, job(model, plan, batch, precision))):
        kind = kind_of(found, rank)
        assert dict(kind.traffic) == dict(seen.traffic)
        assert kind.saved == seen.saved
        place = coordinates(plan, rank)
        if place.data == place.context == 0:  # other replicas may have less, where they share
            assert kind.held == seen.held
        else:
            assert kind.held.parameters >= seen.held.parameters > 0


# ------------------------------------------------------------------------------------------------------- refusals


def test_what_pytorch_refuses_is_told_with_the_rank(monkeypatch):
    """The real code runs: a plan that slipped through the checks is refused by the shapes themselves."""
    monkeypatch.setattr(Plan, "check", lambda *_: None)
    with pytest.raises(HeddleError, match=r"Rank 0 \(data 0, pipeline 0, tensor 0\) cannot take a step: .*shape"):
        dry_run(job(GPT, Plan(tensor=3), 4))
    assert not dist.is_initialized()  # and the next one can start
    dry_run(job(GPT, Plan(tensor=2), 4))


JOB = """
[model]
layers = 4
hidden = 32
heads = 4
vocab = 61
sequence = 16

[data]
text = "no/such/corpus.txt"

[train]
global_batch = 8
compile = true

[plan]
tensor = 2
pipeline = 2
"""


@pytest.fixture
def job_file(tmp_path) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "plan.tensor=3"], "4 heads cannot be split over tensor = 3"),
        (["--set", "plan.pipeline=5"], "4 layers cannot fill"),
        (["--set", "plan.data=3"], "global_batch = 8 is not divisible"),
        (["--set", "plan.offload=['input:disk']"], "Only full recomputation keeps nothing but the input"),
        (["--resume"], "--dry-run and --resume exclude each other"),
        (["--trace"], "--dry-run and --trace exclude each other"),
    ],
)
def test_wrong_plans_are_refused(job_file, capsys, options, told):
    assert call("train", job_file, "--dry-run", *options) == 2
    assert told in capsys.readouterr().err


def test_json_needs_a_dry_run(job_file, capsys):
    assert call("train", job_file, "--json") == 2
    assert "--json goes with --dry-run" in capsys.readouterr().err


def test_nothing_is_needed_and_nothing_is_left(job_file, capsys):
    assert call("train", job_file, "--dry-run", "--json") == 0
    assert [path.name for path in job_file.parent.iterdir()] == ["job.toml"]
    told = json.loads(capsys.readouterr().out)
    assert (told["world"], told["microbatches"], told["model_parameters"]) == (4, 8, GPT.parameters)
    assert sorted(rank for kind in told["kinds"] for rank in kind["ranks"]) == [0, 1, 2, 3]
    sent = {"axis": "pipeline", "operation": "send", "count": 8, "bytes": 8 * 16 * 32 * 4 // 2}
    assert all(sent in kind["traffic"] for kind in told["kinds"])
    torch.zeros(1).item()  # no mode is left on


# ------------------------------------------------------------------------------------------------------ the manual

PAGE = REPOSITORY / "docs" / "decide/dry-run.md"
SHOWN = re.findall(r"```console\n\$ heddle (.*)\n((?:.*\n)*?)```", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_manual_shows_the_real_output(tmp_path, monkeypatch, capsys, command, output):
    monkeypatch.setenv("COLUMNS", "120")
    write_named_blocks(PAGE, tmp_path)
    assert call(*command.split()) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == output.splitlines()
