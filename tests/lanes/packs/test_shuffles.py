"""Vectors out of vectors: a mask takes the lanes that were asked for, and no vector that holds them all is missed."""

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import cost, ir, packs
from heddle.lanes.dependence import regions
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.portfolio import read


def graphs(seeds):
    for seed in seeds:
        module = ir.take_apart(read(kernel(seed, 1 + seed % 3).text))
        for region in regions(module.functions[0], module):
            yield packs.build(region, cost.table("znver3"))


@pytest.mark.parametrize("seed", range(71_000, 71_012))
def test_masks_take_the_lanes_that_were_asked_for(seed):
    for graph in graphs([seed]):
        for p in graph.productions:
            lanes = graph.items[p.gives].lanes
            if p.kind == "shuffle":
                for source, mask in zip(p.needs[0].items, p.masks, strict=True):
                    assert tuple(graph.items[source].lanes[k] for k in mask) == lanes
            elif p.kind == "shuffle2":
                both = [v for source in p.operands for v in graph.items[source].lanes]
                assert tuple(both[k] for k in p.masks[0]) == lanes
            elif p.kind == "patch":
                there = graph.items[p.operands[0]].lanes
                assert {k for k in range(len(lanes)) if there[k] != lanes[k]} <= set(p.masks[0])


def test_no_vector_that_holds_all_lanes_is_missed():
    found = 0
    for graph in graphs(range(71_020, 71_032)):
        # Lanes that go into an instruction as they come out are not to be had from its vector.
        makers = [[graph.productions[n] for n in natives] for natives in graph.natives]
        made = {
            n
            for n, some in enumerate(makers)
            if some and all(p.kind != "pack" or len(p.members) == len(set(graph.items[n].lanes)) for p in some)
        }
        for n, item in enumerate(graph.items):
            ways = [graph.productions[p] for p in graph.makers[n] if graph.productions[p].kind == "shuffle"]
            if ways:
                sources = [u for p in ways for u in p.needs[0].items]
                holds = {u for u in made - {n} if set(item.lanes) <= set(graph.items[u].lanes)}
                assert len(sources) == len(set(sources))
                assert holds <= set(sources)
                found += len(holds)
    assert found > 100
