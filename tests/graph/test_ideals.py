"""Ideals, linear extensions and contraction, against plain enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.graph import Dag, TooManyIdeals, chain, components, contract, enumerate_ideals, linear_extension


@st.composite
def graphs(draw, most=8):
    nodes = draw(st.integers(1, most))
    pairs = list(itertools.combinations(range(nodes), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    names = draw(st.permutations(range(nodes)))
    return Dag.from_edges(nodes, [(names[u], names[v]) for u, v in edges])


def plain_ideals(graph):
    edges = list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    for bits in itertools.product([False, True], repeat=graph.nodes):
        if all(bits[u] or not bits[v] for u, v in edges):
            yield bits


@given(graphs())
@settings(deadline=None)
def test_all_ideals_once_by_size(graph):
    ideals = enumerate_ideals(graph)
    found = [tuple(row) for row in ideals.members.tolist()]
    assert sorted(found) == sorted(plain_ideals(graph))
    assert (np.diff(ideals.sizes) >= 0).all()
    assert not ideals.members[0].any()
    assert ideals.members[-1].all()


@given(graphs())
@settings(deadline=None)
def test_a_linear_extension_is_a_chain_of_ideals(graph):
    order = linear_extension(graph)
    assert sorted(order) == list(range(graph.nodes))
    prefixes = {tuple(row) for row in chain(graph.nodes, order).members.tolist()}
    assert len(prefixes) == graph.nodes + 1
    assert prefixes <= set(plain_ideals(graph))


def test_more_than_64_nodes_need_several_words():
    graph = Dag.from_edges(150, [(v, v + 1) for v in range(149)])
    ideals = enumerate_ideals(graph)
    assert ideals.words.shape == (151, 3)
    assert ideals.sizes.tolist() == list(range(151))
    assert ideals.difference(100, 60) == list(range(60, 100))


def test_too_many_are_refused_early():
    with pytest.raises(TooManyIdeals, match="1,000"):
        enumerate_ideals(Dag.from_edges(200, []), limit=1000)


@given(graphs(), st.data())
@settings(deadline=None)
def test_contraction_keeps_order_and_merges_what_is_between(graph, data):
    together = data.draw(st.lists(st.integers(0, graph.nodes - 1), max_size=3, unique=True))
    small, group = contract(graph, components(graph.nodes, [together] if together else []))
    assert not small.cycle()
    assert len({int(group[v]) for v in together}) <= 1
    reach = {(u, v) for u, v in zip(group[graph.tails].tolist(), group[graph.heads].tolist(), strict=True) if u != v}
    assert reach == set(zip(small.tails.tolist(), small.heads.tolist(), strict=True))
    assert all(u < v for u, v in reach)  # numbered in topological order
    if len(together) < 2:
        assert small.nodes == graph.nodes


def test_a_cycle_is_shown():
    graph = Dag.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)])
    cycle = graph.cycle()
    assert cycle[0] == cycle[-1]
    assert sorted(cycle[1:]) == [1, 2, 3]
    with pytest.raises(HeddleError, match=r"cycle: \w → \w → \w → \w\.") as error:
        graph.require_acyclic("abcde", "The graph")
    assert error.value.why
    assert error.value.hint
