"""Published graphs with anything in any place: a workload, a graph, or a message in three parts."""

from __future__ import annotations

import copy
import json

import pytest

from heddle.errors import HeddleError
from heddle.planning.piper.workload import workload_from
from heddle.planning.placement.operator_graph import graph_from
from tests.helpers.commands import REPOSITORY

ODD = [None, True, -1, 0.5, 1e300, float("nan"), 2**62, "", "x", [], [1], {}, {"a": []}, [[]], "1"]
READERS = {"layers.json": workload_from, "operators.json": graph_from}


def places(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def shrunk(name):
    """Three nodes and their edges: every kind of place, few times."""
    document = json.loads((REPOSITORY / "examples" / name).read_text())
    document["nodes"] = document["nodes"][:3]
    known = {node["id"] for node in document["nodes"]}
    document["edges"] = [e for e in document["edges"] if {e["sourceId"], e["destId"]} <= known]
    return document


@pytest.mark.parametrize("name", READERS)
def test_any_value_in_any_place_is_read_or_told(name):
    document = shrunk(name)
    tried = refused = 0
    for path in list(places(document)):
        for value in [*ODD, "remove"]:
            changed = copy.deepcopy(document)
            at = changed
            for key in path[:-1]:
                at = at[key]
            if value == "remove":
                del at[path[-1]]
            else:
                at[path[-1]] = value
            tried += 1
            told = message(READERS[name], changed)
            refused += told is not None
            assert told is None or all(told), (path, value, told)
    assert tried > 500
    assert refused > tried / 2


def message(read, document):
    """The three parts; None where it is read."""
    try:
        read(document)
    except HeddleError as error:
        return error.what, error.why, error.hint
    return None


@pytest.mark.parametrize("content", [None, [], 1, "x", [{}]])
@pytest.mark.parametrize("read", READERS.values())
def test_what_is_no_document_is_told(read, content):
    with pytest.raises(HeddleError, match="should be an object"):
        read(content)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("layers.json", {"maxDevices": 10**6}, "not a count"),
        ("layers.json", {"mbsInBatch": 2**40}, "not a count"),
        ("layers.json", {"bandwidth": 0}, "bandwidth = 0"),
        ("operators.json", {"maxFPGAs": 10**6}, "not a count"),
        ("operators.json", {"maxCPUs": 1.5}, "not a count"),
        ("operators.json", {"nodes": [{"id": n} for n in range(20_001)]}, "20,001 entries"),
        ("layers.json", {"nodes": [{"id": n} for n in range(20_001)]}, "20,001 entries"),
    ],
)
def test_sizes_have_a_limit(name, change, told):
    with pytest.raises(HeddleError, match=told):
        READERS[name](shrunk(name) | {"edges": []} | change)
