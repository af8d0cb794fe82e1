"""Placement for throughput against brute force, a plain evaluator, and what the published programs answered."""

import csv
import dataclasses
import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.planning.placement import ip as placement_ip
from heddle.planning.placement.operator_graph import graph_from
from heddle.planning.placement.place import place
from tests.helpers.placement_check import evaluate, leads_back
from tests.helpers.published import DATA, needs_data

times = st.integers(0, 9).map(float)


@st.composite
def documents(draw, most=6, training=False):
    count = draw(st.integers(1, most))
    pairs = list(itertools.combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=8)) if pairs else []
    moves = [draw(times) for _ in range(2 * count)]
    nodes = [
        {
            "id": v,
            "supportedOnFpga": draw(st.integers(0, 5)) > 0,
            "cpuLatency": draw(times) * 3,
            "fpgaLatency": draw(times),
            "isBackwardNode": False,
            "size": float(draw(st.integers(0, 5))),
            "colorClass": v if training else draw(st.sampled_from([None, None, None, 0, 1])),
        }
        for v in range(count)
    ]
    if training:  # twins, with every edge mirrored, and some edges from forward to backward
        for v in range(count):
            nodes.append({**nodes[v], "id": count + v, "isBackwardNode": True, "fpgaLatency": draw(times)})
        edges = edges + [(count + v, count + u) for u, v in edges]
        for v in range(count):
            if draw(st.booleans()):
                edges.append((v, count + draw(st.integers(0, v))))
    return {
        "maxFPGAs": draw(st.integers(0, 2)),
        "maxCPUs": draw(st.integers(0, 2)),
        "maxSizePerFPGA": float(draw(st.integers(3, 12))),
        "nodes": nodes,
        "edges": [{"sourceId": u, "destId": v, "cost": moves[u]} for u, v in edges],
    }


def brute_force(document, contiguous):
    """The best value over all assignments."""
    ids = [node["id"] for node in document["nodes"]]
    kinds = ["accelerator"] * document["maxFPGAs"] + ["cpu"] * document["maxCPUs"]
    forward = [node["id"] for node in document["nodes"] if not node["isBackwardNode"]]
    best = math.inf
    for chosen in itertools.product(range(len(kinds)), repeat=len(forward)):
        device = dict(zip(forward, chosen, strict=True))
        device |= {v: device[v - len(forward)] for v in ids if v not in device}  # twins
        devices = [{"kind": k, "operators": [v for v in ids if device[v] == m]} for m, k in enumerate(kinds)]
        try:
            value = max(evaluate(document, devices, document["maxSizePerFPGA"]))
        except ValueError:
            continue
        if value < best and not (contiguous and leads_back(document, devices)):
            best = value
    return best


def value_of(document, **options):
    """The placement's value, which a plain evaluator must find as well; infinite where nothing fits."""
    try:
        found = place(graph_from(document), **options)
    except HeddleError:
        return math.inf, None
    devices = [dataclasses.asdict(device) for device in found.devices]
    loads = evaluate(document, devices, document["maxSizePerFPGA"])
    assert max(loads) == pytest.approx(found.value, rel=1e-9)
    assert loads == pytest.approx([device.load for device in found.devices], rel=1e-9)
    assert found.lower_bound <= found.value
    return found.value, found


@given(documents())
@settings(deadline=None, max_examples=60)
def test_the_exact_program_is_as_good_as_brute_force(document):
    best = brute_force(document, contiguous=True)
    value, found = value_of(document, method="dp")
    assert value == pytest.approx(best, rel=1e-9)
    if found:
        assert found.optimal
        assert found.contiguous
        assert not leads_back(document, [dataclasses.asdict(device) for device in found.devices])


@given(documents(most=5, training=True))
@settings(deadline=None, max_examples=40)
def test_backward_operators_follow_their_twins(document):
    assert value_of(document, method="dp")[0] == pytest.approx(brute_force(document, contiguous=True), rel=1e-9)


@given(documents(most=5))
@settings(deadline=None, max_examples=25)
def test_the_integer_program_is_as_good_as_brute_force(document):
    value, found = value_of(document, contiguous=False, time_limit=20)
    assert value == pytest.approx(brute_force(document, contiguous=False), rel=1e-5)
    assert not found or found.optimal


@given(documents(most=6, training=True))
@settings(deadline=None, max_examples=40)
def test_bounds_and_quick_answers_enclose_the_best(document):
    best = brute_force(document, contiguous=False)
    for method in ("greedy", "local", "one", "dpl"):
        value, found = value_of(document, method=method)
        assert value >= best * (1 - 1e-9)
        if found:
            assert found.lower_bound <= best * (1 + 1e-9)


REFERENCE = DATA / "reference_placement.csv"


def reference(method):
    """What the published program answered, by granularity and workload."""
    if not REFERENCE.exists():
        return {}
    with REFERENCE.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["objective"] == "max-load" and row["method"] == method]
    values = {}
    for row in rows:
        path = DATA / "placement" / "throughput" / row["granularity"] / f"{row['workload']}.json"
        if path.exists():
            values[path] = float(row["value_ms"])
    return values


SLOW = {"gnmt_training", "bert_L-12_training", "bert_l-12_inference"}


@needs_data
@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(path, value, id=f"{path.parent.name}-{path.stem}", marks=[pytest.mark.slow] * (path.stem in SLOW))
        for path, value in reference("DP over ideals").items()
    ],
)
def test_as_good_as_the_published_exact_integer_program(path, value):
    document = json.loads(path.read_text())
    found, placement = value_of(document, method="dp")
    assert found <= value * (1 + 1e-6)
    assert placement.optimal
    assert placement.contiguous


@needs_data
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in reference("DP linearised (DPL)")]
)
def test_a_line_is_nearly_as_good(path):
    exact = reference("DP over ideals").get(path) or reference("DP linearised (DPL)")[path]
    value, _ = value_of(json.loads(path.read_text()), method="dpl")
    assert value <= exact * 1.005


@needs_data
def test_inception_is_within_a_hundredth_of_its_bound():
    document = json.loads((DATA / "placement/throughput/layer/inceptionv3_inference.json").read_text())
    value, placement = value_of(document, time_limit=60)
    assert value <= 51.5518636 * (1 + 1e-6)
    assert placement.lower_bound >= value * 0.99


@needs_data
def test_any_split_of_bert_is_better_than_a_pipeline():
    document = json.loads((DATA / "placement/throughput/operator/bert_l-3_inference.json").read_text())
    value, placement = value_of(document, contiguous=False, time_limit=20)
    assert value <= 21.9084
    assert placement.optimal


def small(**changes):
    node = {"supportedOnFpga": True, "cpuLatency": 9, "fpgaLatency": 1, "isBackwardNode": False, "size": 2**30}
    document = {
        "maxFPGAs": 2,
        "maxCPUs": 0,
        "maxSizePerFPGA": 2**31,
        "nodes": [{**node, "id": v, "name": f"op {v}"} for v in "abcd"],
        "edges": [{"sourceId": u, "destId": v, "cost": 1} for u, v in ("ab", "bc", "cd")],
    }
    return {**document, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edges": [{"sourceId": u, "destId": v, "cost": 1} for u, v in ("ab", "ba")]}, "cycle: . → . → ."),
        ({"edges": [{"sourceId": "a", "destId": "x", "cost": 1}]}, "edge 0 names the node 'x'"),
        ({"edges": [{"sourceId": "a", "destId": "b", "cost": -2}]}, "cost = -2 of edge 0"),
        ({"nodes": [{"id": 0, "cpuLatency": -1}], "edges": []}, "cpuLatency = -1 of node 0"),
        ({"maxFPGAs": 0}, "0 accelerators and 0 CPUs"),
        ({"maxSizePerFPGA": 2**29}, r"op a \(node a\) fits no device.\nIt needs 1 GiB, and an accelerator has 0.5 GiB"),
        ({"maxFPGAs": 1}, "No placement fits 1 accelerators of 2 GiB"),
        ({"nodes": []}, "no nodes"),
    ],
)
def test_mistakes_are_told(changes, words):
    with pytest.raises(HeddleError, match=words) as error:
        place(graph_from(small(**changes)))
    assert error.value.why


def test_unknown_words_are_told():
    for option in ({"method": "dpp"}, {"objective": "fun"}):
        with pytest.raises(HeddleError, match="There is no"):
            place(graph_from(small()), **option)


def test_too_many_ideals_fall_back_to_a_line_and_say_so():
    document = small(edges=[])
    found = place(graph_from(document), method="dp", ideals=5)
    assert "more than 5 ideals" in found.notes[0]
    assert found.value == 2
    assert found.lower_bound <= 2


def test_without_ortools_the_integer_program_says_what_to_install(monkeypatch):
    monkeypatch.setattr(placement_ip.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HeddleError, match=r"needs ortools") as error:
        place(graph_from(small()), method="ip")
    assert "pip install '.[plan]'" in error.value.hint
    assert place(graph_from(small()), method="dp", ideals=3).value == 3  # two parts, and a move each


def test_ctrl_c_gives_the_best_so_far(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("heddle.planning.placement.place.enumerate_ideals", interrupted)
    found = place(graph_from(small()))
    assert found.value == 3
    assert found.notes == ("Stopped by Ctrl-C: the best so far.",)
    assert not found.optimal


def test_a_time_limit_gives_the_best_so_far():
    document = small(edges=[{"sourceId": u, "destId": v, "cost": 1} for u, v in ("ab", "ac", "bd", "cd")])
    found = place(graph_from(document), time_limit=0)
    assert found.value == 4
    assert found.notes[-1] == "Time ran out before every split was seen."
    assert not found.optimal
