"""An order that was searched for trains as one device does, and a plan file keeps it."""

from __future__ import annotations

import dataclasses

import pytest

from heddle.errors import HeddleError
from heddle.planning.order.search import search_order
from heddle.planning.order.stages import Stages
from heddle.schedule import ScheduleError, build
from heddle.schedule.written import placed, read_order, write_order
from heddle.spec import ModelSpec, Plan
from heddle.training.prove.compare import LOSS_LIMIT, compare
from heddle.training.prove.prove import observe, observe_serial
from heddle.training.prove.shrink import shrink
from tests.helpers.small_models import gpt, llama
from tests.numerics.test_equality_grid import job, rounding


def searched(pipeline: int, microbatches: int, virtual: int = 1) -> tuple[str, ...]:
    chunks = pipeline * virtual
    uneven = [1.0 + 0.1 * chunk for chunk in range(chunks)]
    stages = Stages(pipeline, microbatches, uneven, uneven, uneven, transfer=0.2, placement=placed(virtual))
    return write_order(search_order(stages, seconds=0.5).schedule)


@pytest.mark.dist
@pytest.mark.parametrize(("model", "virtual", "data"), [(llama(layers=3), 1, 1), (gpt(layers=4), 2, 2)])
def test_a_searched_order_trains_as_one_device_does(world, model: ModelSpec, virtual, data):
    pipeline = 3 if virtual == 1 else 2
    plan = Plan(
        pipeline=pipeline, virtual=virtual, data=data, schedule="searched", order=searched(pipeline, 5, virtual)
    )
    a_job = job(model, plan, 5 * data)
    parallel, *_ = world.run(observe, plan, a_job)
    comparison = compare(parallel, observe_serial(a_job), rounding(model, 5 * data))
    assert comparison.max_loss_diff <= LOSS_LIMIT
    assert comparison.max_gradient_diff <= comparison.gradient_limit, comparison.worst


@pytest.mark.parametrize(("name", "virtual"), [("zb-h1", 1), ("zb-v", 2), ("dualpipev", 2), ("1f1b", 1)])
def test_what_is_written_is_read(name, virtual):
    schedule = build(name, 3, 7, virtual)
    assert read_order(write_order(schedule), 3, virtual).ranks == schedule.ranks


def test_a_proof_keeps_the_order_unless_stages_are_too_many():
    plan = Plan(pipeline=4, schedule="searched", order=searched(4, 9))
    small = shrink(job(llama(layers=8), plan, 9), 3).job
    assert small.plan.order == plan.order
    assert small.plan.microbatches(small.train.global_batch) == 9
    fewer = shrink(job(llama(layers=8), plan, 9), 3, processes=2).job
    assert (fewer.plan.schedule, fewer.plan.order) == ("zb-h1", ())


def test_mistakes_in_an_order_are_told():
    order = searched(2, 4)
    with pytest.raises(HeddleError, match="has the word 'X0'"):
        read_order(("X0", order[1]), 2, 1)
    with pytest.raises(HeddleError, match="2 lines, but pipeline = 3"):
        read_order(order, 3, 1)
    with pytest.raises(HeddleError, match="schedule = '1f1b'"):
        Plan(pipeline=2, order=order)
    plan = Plan(pipeline=2, schedule="searched", order=order)
    with pytest.raises(HeddleError, match="4 microbatches per step, but there are 6"):
        plan.check(llama(), 6, 8)
    with pytest.raises(ScheduleError):  # a microbatch is lost
        dataclasses.replace(plan, order=(order[0], order[1].replace(" I3", ""))).check(llama(), 4, 8)
    with pytest.raises(HeddleError, match="no order for pipeline"):
        build("searched", 2, 4)
