"""The search in machine code: only legal choices, never dearer than its start, the same every time."""

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import cost, ir, packs
from heddle.lanes.choose import choice
from heddle.lanes.choose.schedule import arrange
from heddle.lanes.dependence import regions
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.portfolio import read
from heddle.lanes.search import flat

TABLE = cost.table("znver3")


def graphs(seeds):
    for seed in seeds:
        module = ir.take_apart(read(kernel(seed, 1 + seed % 3).text))
        for region in regions(module.functions[0], module):
            yield packs.build(region, TABLE)


def scalar(graph):
    return choice.used(graph, choice.scalar_choice(graph))


@pytest.mark.parametrize("seed", range(70_000, 70_012))  # some of them loops
def test_whatever_the_scores_the_choice_is_legal_and_no_dearer(seed):
    for graph in graphs([seed]):
        score = np.random.default_rng(seed).normal(size=len(graph.productions))
        start = scalar(graph)
        found = flat(graph).search(score, start, 60, 10**6)
        assert choice.cost_of(graph, found) <= choice.cost_of(graph, start)
        assert choice.used(graph, found) == found  # nothing in it that nobody asks for
        arrange(graph, found)  # raises where there is no order
        done = [m for n in found if graph.productions[n].gives < 0 for m in graph.productions[n].members]
        assert sorted(done) == sorted(graph.stores)
        assert flat(graph).search(score, start, 60, 10**6) == found


def test_more_attempts_find_no_worse():
    for graph in graphs(range(70_020, 70_026)):
        score = -flat(graph).estimates
        prices = [choice.cost_of(graph, flat(graph).search(score, scalar(graph), n, 10**9)) for n in (1, 10, 100)]
        assert prices == sorted(prices, reverse=True)


def test_estimates_are_what_their_needs_cost_together():
    """Of a production without alternatives above it, exactly; of others never less than its own cost."""
    for graph in graphs(range(70_030, 70_034)):
        found = choice.estimates(graph)
        for n, p in enumerate(graph.productions):
            assert found[n] >= p.cost
            if not p.needs or p.late:
                assert found[n] == p.cost
        for ways in graph.stores.values():
            assert all(found[n] < 1e8 for n in ways)  # all of them can be made


def test_what_waits_for_itself_is_not_chosen():
    """Lanes that each read the other pair's result: both vectors together would be a cycle."""
    text = """define void @f(ptr noalias %o, ptr noalias %q, double %a, double %b) {
  %x0 = fadd double %a, 1.0
  %y1 = fmul double %b, 3.0
  %y0 = fmul double %x0, 3.0
  %x1 = fadd double %y1, 1.0
  store double %x0, ptr %o, align 8
  %o1 = getelementptr inbounds i8, ptr %o, i64 8
  store double %x1, ptr %o1, align 8
  store double %y0, ptr %q, align 8
  %q1 = getelementptr inbounds i8, ptr %q, i64 8
  store double %y1, ptr %q1, align 8
  ret void
}
"""
    module = ir.take_apart(ir.named(ir.parse_llvm(text)))
    (region,) = regions(module.functions[0], module)
    graph = packs.build(region, TABLE)
    wide = np.array([float(len(p.members)) for p in graph.productions])  # wants every pack it can get
    packed = [n for n, p in enumerate(graph.productions) if p.kind == "pack"]
    assert len(packed) >= 2
    arrange(graph, flat(graph).search(wide * 100, scalar(graph), 20, 10**6))
