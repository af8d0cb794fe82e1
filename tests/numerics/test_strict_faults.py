"""The strict transport finds what it is there for: mistakes that gloo forgives and GPUs do not, made on purpose."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import pytest
import torch

import heddle.parallel.mesh
import heddle.parallel.replicas.reducer
import heddle.training.step.trainer
from heddle.errors import HeddleError
from heddle.parallel.collectives import Handle
from heddle.parallel.mesh import MAX_CTAS, Axis, Mesh
from heddle.parallel.pipeline.executor import Executor
from heddle.runtime.cuda import STREAMS, refuse_few_queues
from heddle.spec import Plan
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.choose import make_trainer
from heddle.training.step.optimizer import Optimizer
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt
from tests.numerics.test_equality_grid import CELLS
from tests.numerics.test_strict_transport import short
from tests.strict import Launch, Operation, StrictError, Wait, record, strict_ranks, strict_run
from tests.strict.transport import StrictGroup

PIPELINE = Plan(pipeline=2, microbatch=1)
INTERLEAVED = Plan(pipeline=2, virtual=2, microbatch=1, schedule="interleaved")
DATA = Plan(data=2, microbatch=1)
ZERO3 = Plan(data=2, zero=3, microbatch=1)
TENSOR = Plan(tensor=2, sequence=True, microbatch=2)


def receives_spin_while_kernels_load() -> Any:
    return patch.object(Executor, "_ahead", lambda self, source: 1)


def both_ways_on_one_channel() -> Any:
    """Messages back wait behind messages there."""
    build = heddle.parallel.mesh.Mesh

    def wrong(channels: dict[tuple[int, int], Any], **others: Any) -> Mesh:
        return build(channels={pair: channels[min(pair), max(pair)] for pair in channels}, **others)

    return patch.object(heddle.parallel.mesh, "Mesh", wrong)


def sent_memory_is_used_again() -> Any:
    send = Executor._send

    def wrong(self, action, x):
        send(self, action, x)
        x.zero_()

    return patch.object(Executor, "_send", wrong)


def gradients_are_read_before_they_are_summed() -> Any:
    def wrong(self: Handle) -> torch.Tensor:
        return self.result

    return patch.object(Handle, "wait", wrong)


@contextmanager
def replicas_sum_their_buckets_in_another_order() -> Iterator[None]:
    reducer = heddle.parallel.replicas.reducer.Reducer

    def wrong(self):
        for bucket in self.parts[::-1] if self.parts[0].replicas.rank else self.parts:
            bucket.begin()
        for bucket in self.parts:
            bucket.finish()

    with (
        patch.object(heddle.parallel.replicas.reducer, "bucket_elements", lambda replicas: 500),
        patch.object(reducer, "expect", lambda self, microbatches: None),  # all start at the end of the step
        patch.object(reducer, "finish", wrong),
    ):
        yield


def weights_are_used_while_they_are_gathered() -> Any:
    """The forward pass does not wait for what the other replicas have updated."""
    return patch.object(heddle.parallel.replicas.reducer.Reducer, "wait_before_use", lambda self, chunks: None)


def a_step_reads_a_number() -> Any:
    """On a GPU the host would wait there for all it has handed out, and hand out nothing more meanwhile."""
    squared_norm = Optimizer.squared_norm

    def wrong(self: Optimizer) -> torch.Tensor:
        norm = squared_norm(self)
        return norm if norm.item() < math.inf else norm.new_zeros(())

    return patch.object(Optimizer, "squared_norm", wrong)


def a_step_takes_elements_by_a_list() -> Any:
    """The list has to be on the device first, and the host waits for that, too."""
    squared_norm = Optimizer.squared_norm

    def wrong(self: Optimizer) -> torch.Tensor:
        return squared_norm(self)[None][[0]].sum()

    return patch.object(Optimizer, "squared_norm", wrong)


def a_replica_skips_a_sum() -> Any:
    """One rank thinks it has nothing to say, and goes on."""
    start = heddle.training.step.trainer.start_sum_numbers

    def wrong(x, axis):
        return Handle([], x) if axis.rank == 1 else start(x, axis)

    return patch.object(heddle.training.step.trainer, "start_sum_numbers", wrong)


# the fault: under which plan, and what must be named
FAULTS: dict[Callable[[], Any], tuple[Plan, list[str]]] = {
    receives_spin_while_kernels_load: (PIPELINE, ["Deadlock", "host: loads the kernel aten", "receive from rank"]),
    both_ways_on_one_channel: (PIPELINE, ["Deadlock", "send to rank 1", "send to rank 0", "waits for its turn"]),
    sent_memory_is_used_again: (
        PIPELINE,
        ["rank 0: aten.zero_.default overwrites what is not yet sent by send to rank 1"],
    ),
    gradients_are_read_before_they_are_summed: (TENSOR, ["touches what has not arrived by", "on tensor [0, 1]"]),
    replicas_sum_their_buckets_in_another_order: (DATA, ["not alike", "rank 0: all-reduce", "rank 1: all-reduce"]),
    weights_are_used_while_they_are_gathered: (
        replace(DATA, zero=1),
        ["touches what has not arrived by all-gather", "on data [0, 1]", "nobody has waited for it"],
    ),
    a_step_reads_a_number: (DATA, ["rank 0: its host waits for its device 5 times in 2 steps", "reads a number"]),
    a_step_takes_elements_by_a_list: (DATA, ["its host waits for its device 5 times", "copies the list [0]"]),
    a_replica_skips_a_sum: (DATA, ["never comes", "rank 0", "rank 1, host: is at the end of its program"]),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_named(fault):
    plan, words = FAULTS[fault]
    with fault(), pytest.raises(StrictError) as error:
        strict_run(short(gpt(layers=4), plan, 4))
    for word in words:
        assert word in str(error.value)


def test_receives_that_are_posted_first_need_channels_that_are_connected():
    """With all kernels loaded before: each stage first meets the neighbor it receives from, and none ever sends."""
    a_job = short(gpt(layers=4), INTERLEAVED, 4)
    with receives_spin_while_kernels_load():
        record(a_job).replay(lazy_loading=False)
        with patch.object(heddle.parallel.mesh, "_connect", lambda mesh: None):
            run = record(a_job)
    with pytest.raises(StrictError) as error:
        run.replay(lazy_loading=False)
    first, *others = str(error.value).splitlines()
    assert first == "Deadlock: each waits for the next:"
    waits = "first use, waits until all members connect"
    assert [line.split("(")[0].strip() for line in others] == [
        "rank 0, host: receive from rank 1",
        "rank 1, host: receive from rank 0",
    ]
    assert all(line.endswith(waits) for line in others)


@pytest.mark.parametrize(("steps", "most"), [(1, 1), (2, 2)], ids=["first step", "later"])
def test_at_most_one_receive_spins_beside_the_one_that_is_needed(steps, most):
    """Each occupies its device until its message comes; in the first step none does before it is needed."""
    run = record(short(gpt(layers=4), PIPELINE, 4), steps, evaluate=False)
    found = 0
    for program in run.programs.values():
        spinning: set[Operation] = set()
        for event in program:
            if isinstance(event, Launch) and event.operation.kind == "receive":
                spinning.add(event.operation)
            elif isinstance(event, Wait):
                spinning.discard(event.operation)
            found = max(found, len(spinning))
    assert found == most


def test_one_hardware_queue_blocks_a_pipeline():
    """Hence Heddle refuses it there, and asks for more where nothing is set."""
    run = record(short(gpt(layers=4), INTERLEAVED, 4))
    run.replay(queues=STREAMS)
    with pytest.raises(StrictError, match="holds up what is behind it"):
        run.replay(queues=1)
    with pytest.raises(HeddleError, match="CUDA_DEVICE_MAX_CONNECTIONS is 1, but the plan has 2 pipeline stages"):
        refuse_few_queues(INTERLEAVED, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    refuse_few_queues(TENSOR, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    refuse_few_queues(INTERLEAVED, {})


COPIES = 3  # streams for checkpoints, for what leaves the device and for what comes back
ON_THE_HOST = ("host", "saves")  # axes over gloo, which has no streams
WIDE = replace(INTERLEAVED, tensor=2, context=4, context_exchange="2d", context_inner=2, pipeline=3, data=2)


LARGE = [plan for _, plan, _ in CELLS.values() if plan.world == 8]


def streams(mesh: Mesh) -> int:
    axes = [getattr(mesh, each.name) for each in fields(mesh) if each.name not in ON_THE_HOST]
    groups = {id(axis.group) for axis in axes if isinstance(axis, Axis) and axis.group is not None}
    return 1 + len(groups) + len(mesh.channels) + COPIES


@pytest.mark.parametrize(
    "plan",
    [
        *thinned(LARGE, slow=[plan for number, plan in enumerate(LARGE) if number % 4]),
        Plan(tensor=2, pipeline=3, data=2, microbatch=1, local_steps=2),
    ],
    ids=str,
)
def test_a_rank_has_fewer_streams_than_hardware_queues_are_asked_for(plan):
    assert max(strict_ranks(streams, plan).results) < STREAMS


@pytest.mark.parametrize("more", [{"zero": 3, "expert": 2}, {"zero": 3, "zero_within": 4}], ids=str)
def test_a_rank_that_uses_everything_there_is_has_a_hardware_queue_for_each_stream(more):
    assert max(strict_ranks(streams, replace(WIDE, **more)).results) == STREAMS


def groups_of(mesh: Mesh) -> dict[str, StrictGroup]:
    axes = {each.name: getattr(mesh, each.name) for each in fields(mesh) if each.name not in ON_THE_HOST}
    found: dict[str, Any] = {name: axis.group for name, axis in axes.items() if isinstance(axis, Axis)}
    found |= {f"channel {way}": group for way, group in mesh.channels.items()}
    return {name: group for name, group in found.items() if group is not None}


def program_of(mesh: Mesh) -> list[Any]:
    return groups_of(mesh)["world"].exchange.recordings[mesh.rank].program


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("plan", [PIPELINE, replace(INTERLEAVED, data=2, zero=3)], ids=["1f1b", "interleaved, zero 3"])
def test_no_group_is_made_that_a_step_does_not_use(plan, tied):
    """Each is a communicator of NCCL's: memory of every device, and seconds until it is connected."""
    used: set[str] = set()
    made: set[str] = set()

    def work(mesh: Mesh) -> None:
        trainer = make_trainer(a_job, synthetic_tokens(a_job), mesh)
        connected = len(program_of(mesh))
        trainer.train_step()
        launches = [event for event in program_of(mesh)[connected:] if isinstance(event, Launch)]
        made.update(str(group.communicator) for group in groups_of(mesh).values())
        used.update(str(event.operation.communicator) for event in launches)

    a_job = short(gpt(layers=4, tied=tied), plan, 4)
    strict_ranks(work, plan, tied)
    assert made == used


def test_weights_are_gathered_over_a_group_of_their_own():
    """Behind a sum of gradients on the same stream they would come late."""

    def kinds(mesh: Mesh) -> list[Counter[str]]:
        make_trainer(a_job, synthetic_tokens(a_job), mesh).train_step()
        done = [event.operation for event in program_of(mesh) if isinstance(event, Launch)]
        own = [groups_of(mesh)[name].communicator for name in ("gathers", "gradients")]
        return [Counter(operation.kind for operation in done if operation.communicator is each) for each in own]

    a_job = short(gpt(), ZERO3, 4)
    for gathers, sums in strict_ranks(kinds, ZERO3).results:
        assert set(gathers) == {"all-reduce", "all-gather"}  # the former connects
        assert sums["reduce-scatter"] > 1
        assert sums["all-gather"] == 1  # of the last norm, which is shared as by ZeRO-1


def test_messages_between_stages_take_few_multiprocessors():
    def most(mesh: Mesh) -> set[int]:
        groups = groups_of(mesh)
        assert not any(groups[name].options for name in groups if not name.startswith("channel"))
        return {groups[name].options.config.max_ctas for name in groups if name.startswith("channel")}

    assert strict_ranks(most, INTERLEAVED).results == [{MAX_CTAS}] * INTERLEAVED.world
