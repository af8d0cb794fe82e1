"""One door to a plan, whatever a job runs on; nothing that is asked for is ignored."""

import dataclasses
import inspect
import re
from dataclasses import replace

import pytest

import heddle
from heddle.cli.decide.plan import plan as plan_command
from heddle.errors import HeddleError
from heddle.planning.best import best, choice_in_words, with_best_plan
from heddle.planning.fields import FIELDS
from heddle.planning.request import PlanRequest
from heddle.simulating.simulation import simulate
from heddle.spec.axes import AXES
from heddle.spec.job import job_from_tables
from heddle.spec.plan import Plan
from tests.planning.regions.test_for_job import TABLES, network

JOB = job_from_tables(TABLES)
SPREAD = replace(JOB, network=network(0, 4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "cheapest"),
        ("devices", 2),
        ("memory_gib", 1.0),
        ("days", 3.0),
        ("tokens", 1e9),
        ("by_layer", True),
        ("allow_delay", True),
    ],
)
def test_what_a_network_cannot_have_is_refused_not_ignored(name, value):
    words = rf"--{re.escape(name.replace('_', '-'))} does not go with a \[network\]"
    for planner in (lambda job, **asked: best(job, PlanRequest(**asked)), heddle.plan):
        with pytest.raises(HeddleError, match=words):
            planner(SPREAD, **{name: value})


def test_commands_and_functions_offer_the_fields_of_the_request():
    """Each field once: as a keyword of `heddle.plan`, and as an option; `fixed` as one for each of its own."""
    fields = {each.name for each in dataclasses.fields(PlanRequest)}
    assert set(inspect.signature(heddle.plan).parameters) == fields | {"job"}
    options = set(inspect.signature(plan_command).parameters)
    assert options >= fields - {"fixed"}
    assert options >= {each.option.name or each.name for each in FIELDS if each.option}


def test_every_field_of_a_plan_is_listed_once():
    names = [each.name for each in FIELDS]
    assert len(names) == len(set(names))
    assert {*names, "update"} == {each.name for each in dataclasses.fields(Plan)}  # a search is of synchronous updates
    assert set(AXES) <= {each.name for each in FIELDS if each.option}


def test_compression_of_links_is_for_networks():
    with pytest.raises(HeddleError, match="needs a \\[network\\]"):
        heddle.plan(JOB, allow_compression="int8")


@pytest.mark.parametrize("job", [JOB, SPREAD], ids=["cluster", "network"])
def test_a_job_without_a_plan_gets_the_same_one_from_everybody(job):
    planned, found = with_best_plan(job)
    again = best(job).best
    assert found is not None
    assert planned.plan == again.plan
    assert replace(planned.predicted, rank=None, feasible=None) == again.predicted
    assert heddle.plan(job).best.plan == planned.plan
    assert heddle.simulate(job).plan == planned.plan
    assert choice_in_words(found).startswith("Planned ")


def test_a_job_with_a_plan_keeps_it():
    with_plan = replace(JOB, plan=simulate(with_best_plan(JOB)[0]).plan)
    assert with_best_plan(with_plan) == (with_plan.planned, None)


def test_late_updates_are_considered_if_allowed():
    job = replace(JOB, model=replace(JOB.model, tied=False))
    assert best(job).late == ()
    found = best(job, PlanRequest(fixed={"pipeline": 4, "data": 1, "microbatch": 2}, devices=4, allow_delay=True))
    assert all(one.plan.update != "synchronous" and one.step_seconds < found.best.step_seconds for one in found.late)
    assert found.late


def test_a_job_without_a_plan_never_becomes_one_of_a_single_device():
    with pytest.raises(HeddleError, match="has no \\[plan\\]"):
        _ = JOB.planned
