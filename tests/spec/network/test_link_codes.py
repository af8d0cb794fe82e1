"""Codes by link: what a plan file says of them, which link has which, and what each mistake is told."""

from __future__ import annotations

import tomllib

import pytest

from heddle.errors import HeddleError
from heddle.spec import Plan
from heddle.spec.job import dumps_job, job_from_tables
from heddle.spec.network.link_codes import AxisCodes, LinkCodes, alike, axis_codes, code_of, codes_used
from heddle.spec.ranks import places_of
from heddle.spec.tables import build, to_table

TEXT = """
[model]
layers = 4
hidden = 16
heads = 4
vocab = 64
sequence = 8
[data]
text = "-"
[network]
across = { latency_ms = 50.0, gbps = 0.1 }
inside = { latency_ms = 0.1, gbps = 10.0 }
regions = { Ohio = 2, Tokyo = 1, Desk = 1 }
[plan]
data = 4
compress_gradients = "bf16"
[[plan.codes]]
gradients = "int8"
activations = "bf16"
[[plan.codes]]
groups = ["Tokyo", "Ohio"]
gradients = "int4"
[[plan.codes]]
links = "inside"
groups = ["Ohio"]
gradients = "none"
"""


def test_a_file_says_which_links_have_which_codes_and_is_written_as_it_was():
    job = job_from_tables(tomllib.loads(TEXT))
    found = {
        (a, b): tuple(code_of(job.plan, what, a, b) for what in ("gradients", "activations"))
        for a, b in (("Ohio", "Tokyo"), ("Tokyo", "Desk"), ("Ohio", "Ohio"), ("Desk", "Desk"))
    }
    assert found == {
        ("Ohio", "Tokyo"): ("int4", "bf16"),  # what is left out is as for all links between groups
        ("Tokyo", "Desk"): ("int8", "bf16"),
        ("Ohio", "Ohio"): ("none", "none"),
        ("Desk", "Desk"): ("bf16", "none"),  # as for all
    }
    assert code_of(job.plan, "gradients", "Tokyo", "Ohio") == "int4"
    assert codes_used(job.plan, "gradients") == ("bf16", "int8", "int4")
    assert job_from_tables(tomllib.loads(dumps_job(job))).plan == job.plan
    assert "codes" not in to_table(Plan(data=2))


def test_a_sum_is_told_in_the_code_of_the_narrowest_link():
    job = job_from_tables(tomllib.loads(TEXT))
    places = places_of(job.plan, job.network)
    assert places == ("Ohio", "Ohio", "Tokyo", "Desk")
    assert axis_codes(job.plan, places, (0, 1, 3), 0) == AxisCodes(("int8", "none", "int8"), "int8")
    assert axis_codes(job.plan, places, (0, 1), 1) is None
    assert axis_codes(job.plan, (), (0, 1), 1) == AxisCodes(("bf16", "bf16"), "bf16")
    assert axis_codes(job.plan, places, (2,), 0) is None
    assert alike([None, AxisCodes(("int8", "none"), "int8")], 2) == AxisCodes(("int8", "int8"), "int8")
    assert alike([None, None], 2) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"codes": [{}]}, "sets neither gradients nor activations for the links between groups"),
        ({"codes": [{"gradients": "int9"}]}, "plan.codes[0].gradients = 'int9' is not known"),
        ({"codes": [{"activations": "int4"}]}, "plan.codes[0].activations = 'int4' is not known"),
        ({"codes": [{"links": "beside", "gradients": "int8"}]}, "'beside' is not known"),
        ({"codes": [{"groups": ["Ohio"], "gradients": "int8"}]}, "links = 'between' and groups = ['Ohio']"),
        ({"codes": [{"groups": ["Ohio", "Ohio"], "gradients": "int8"}]}, "groups = ['Ohio', 'Ohio']"),
        ({"codes": [{"links": "inside", "groups": ["a", "b"], "gradients": "int8"}]}, "links = 'inside' and groups"),
        ({"codes": [{"gradients": "int8"}, {"gradients": "int4"}]}, "two tables for the links between groups"),
        ({"codes": [{"groups": ["Ohio", "Osaka"], "gradients": "int8"}]}, "names the group 'Osaka'"),
        ({"zero": 2}, "cannot be combined with zero = 2"),
    ],
)
def test_mistakes_are_told(change, told):
    tables = tomllib.loads(TEXT)
    tables["plan"] |= change
    with pytest.raises(HeddleError) as caught:
        job_from_tables(tables)
    assert told in caught.value.what
    assert caught.value.why
    assert caught.value.hint


def test_codes_need_a_network_and_tensor_ranks_in_one_group():
    tables = tomllib.loads(TEXT)
    network = tables.pop("network")
    with pytest.raises(HeddleError, match=r"the job has no \[network\]"):
        job_from_tables(tables)
    tables |= {"network": network, "plan": {"tensor": 2, "data": 2, "codes": [{"gradients": "int8"}]}}
    job = job_from_tables(tables)
    with pytest.raises(HeddleError, match="tensor ranks in Desk and Tokyo"):
        places_of(job.plan, job.network)
    with pytest.raises(HeddleError, match="cannot be combined with precision"):
        job_from_tables(tables | {"train": {"precision": "fp16"}})


@pytest.mark.parametrize("groups", [(), ("Ohio", "Tokyo")])
def test_words_say_which_links(groups):
    codes = build(LinkCodes, {"groups": list(groups), "gradients": "int8"}, "plan.codes")
    assert codes.words == ("links between Ohio and Tokyo" if groups else "links between groups")
