"""The interleaved order against the tables of megatron-core itself (checked with 0.16.1)."""

import itertools
import warnings

import pytest

from heddle.schedule import Action, Kind, Schedule, ScheduleError, build, verify
from heddle.schedule.rules.interleaved import microbatch_groups
from heddle.simulating.replay import step_time

pytestmark = pytest.mark.peers

SIZES = [
    (pipeline, virtual, microbatches)
    for pipeline, virtual, microbatches in itertools.product(range(2, 9), range(2, 5), range(1, 33))
]


@pytest.fixture(scope="module")
def megatron():
    """An order of Megatron, from the functions its own training loop and its CUDA graphs are built with."""
    pytest.importorskip("megatron.core")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every CUDA library that a laptop does not have
        from megatron.core.pipeline_parallel.schedules import get_pp_rank_microbatches, get_schedule_table
        from megatron.core.transformer.cuda_graphs import convert_schedule_table_to_order

    class Communicator:
        def __init__(self, pipeline: int, rank: int, virtual: int) -> None:
            self.pp_group = self
            self.size, self.rank = lambda: pipeline, lambda: rank
            self.virtual_pipeline_model_parallel_size = virtual

    def order(pipeline: int, virtual: int, microbatches: int, group: int) -> Schedule:
        table = get_schedule_table(microbatches, virtual, group)
        ranks = []
        for rank in range(pipeline):
            communicator = Communicator(pipeline, rank, virtual)
            _, _, warmup, _ = get_pp_rank_microbatches(microbatches, virtual, group, p2p_communicator=communicator)
            # Its order has signed chunk numbers only, from 1 forwards and from -1 backwards; each chunk takes
            # its microbatches in ascending order.
            seen: dict[int, int] = {}
            actions = []
            for signed in convert_schedule_table_to_order(warmup, virtual, table):
                kind = Kind.FORWARD if signed > 0 else Kind.BACKWARD
                microbatch = seen[signed] = seen.get(signed, -1) + 1
                actions.append(Action(kind, (abs(signed) - 1) * pipeline + rank, microbatch))
            ranks.append(tuple(actions))
        return Schedule("interleaved", pipeline, virtual, microbatches, tuple(ranks))

    return order


def test_the_same_order_wherever_megatron_accepts_the_sizes(megatron):
    compared = 0
    for pipeline, virtual, microbatches in SIZES:
        if microbatches % pipeline == 0:
            ours = build("interleaved", pipeline, microbatches, virtual)
            assert ours == megatron(pipeline, virtual, microbatches, group=pipeline), ours
            compared += 1
    assert compared == 159


def test_the_same_order_wherever_megatron_can_express_our_groups(megatron):
    """Megatron takes another group size than the pipeline if all but the last group have it."""
    compared = 0
    for pipeline, virtual, microbatches in SIZES:
        sizes = [len(group) for group in microbatch_groups(pipeline, microbatches)]
        accepted = microbatches > pipeline and microbatches % pipeline and len(set(sizes[:-1])) <= 1
        if accepted and pipeline <= sizes[-1] <= sizes[0]:
            ours = build("interleaved", pipeline, microbatches, virtual)
            assert ours == megatron(pipeline, virtual, microbatches, group=sizes[0]), ours
            compared += 1
    assert compared > 200


def test_better_than_its_table_where_megatron_refuses(megatron):
    """Megatron raises for these sizes; its table, taken all the same, shows why."""
    deadlocked = slower = equal = 0
    for pipeline, virtual, microbatches in SIZES:
        if microbatches % pipeline:
            theirs = megatron(pipeline, virtual, microbatches, group=min(pipeline, microbatches))
            ours = step_time(build("interleaved", pipeline, microbatches, virtual))
            try:
                verify(theirs)
            except ScheduleError:
                deadlocked += 1
                continue
            assert step_time(theirs) >= ours
            slower += step_time(theirs) > ours
            equal += step_time(theirs) == ours
    assert (deadlocked, slower, equal) == (167, 262, 84)
