"""Loops of a function: how deep each block lies, and what does not change in them."""

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import cost, ir, packs
from heddle.lanes.dependence import loops, regions
from heddle.lanes.portfolio import Options, improve

NEST = """define void @nest(ptr noalias %o, ptr noalias %a, float %s, i64 %n) {
entry:
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i2, %after ]
  br label %inner
inner:
  %j = phi i64 [ 0, %outer ], [ %j2, %inner ]
  %k = mul i64 %j, 8
  %p = getelementptr inbounds i8, ptr %a, i64 %k
  %q = getelementptr inbounds i8, ptr %p, i64 4
  %x = load float, ptr %p, align 4
  %y = load float, ptr %q, align 4
  %u = fmul float %x, %s
  %v = fmul float %y, %s
  %r = getelementptr inbounds i8, ptr %o, i64 %k
  %t = getelementptr inbounds i8, ptr %r, i64 4
  store float %u, ptr %r, align 4
  store float %v, ptr %t, align 4
  %j2 = add i64 %j, 1
  %more = icmp slt i64 %j2, %n
  br i1 %more, label %inner, label %after
after:
  %i2 = add i64 %i, 1
  %again = icmp slt i64 %i2, %n
  br i1 %again, label %outer, label %done
done:
  ret void
}
"""


def test_depths_and_weights():
    found = loops(ir.take_apart(NEST).functions[0])
    assert found.depth == {"entry": 0, "outer": 1, "inner": 2, "after": 1, "done": 0}
    assert [found.weight(label) for label in ("entry", "outer", "inner")] == [1, 10, 100]
    assert found.innermost["inner"] == {"inner"}
    assert found.innermost["after"] == {"outer", "inner", "after"}


def test_what_a_loop_keeps_is_made_before_it():
    module = ir.take_apart(NEST)
    (region,) = regions(module.functions[0], module)
    assert "%s" in region.steady
    assert not region.steady & {"%k", "%j"}
    graph = packs.build(region, cost.table("znver3"))
    broadcasts = [p for p in graph.productions if p.kind == "broadcast"]
    assert broadcasts
    assert all(p.cost > 0 for p in broadcasts)  # dearer than nothing, but outside the loop
    assert region.preheader == "outer"
    found = improve(NEST, Options(method="ilp", seconds=2, family="znver3"))
    outer, inner = (
        found.modules["ilp"].partition(f"\n{label}:")[2].partition(" br ")[0] for label in ("outer", "inner")
    )
    assert "shufflevector" in outer
    assert "shufflevector" not in inner
    assert "fmul <2 x float>" in inner


def test_without_one_way_into_a_loop_nothing_is_made_before_it():
    text = NEST.replace(
        "br label %outer\nouter", "%c = icmp eq i64 %n, 7\n  br i1 %c, label %inner, label %outer\nouter", 1
    )
    text = text.replace("[ 0, %outer ], [ %j2", "[ 0, %outer ], [ 0, %entry ], [ %j2")
    text = text.replace("%i2 = add i64 %i, 1", "%i2 = add i64 %n, 1").replace("%i = phi", "%unused = phi")
    module = ir.take_apart(ir.named(ir.parse_llvm(text)))
    (region,) = regions(module.functions[0], module)
    assert region.preheader == ""
    assert not region.steady


def test_blocks_are_chosen_one_by_one():
    """LLVM's packing where it is the cheapest, ours elsewhere; never dearer than LLVM's in all."""
    found = improve(NEST, Options(method="ilp", seconds=2, family="znver3"))
    (report,) = found.reports
    assert report.cost[report.chosen] <= report.cost["llvm"]
    assert any(block.cost["ilp"] < block.cost["scalar"] for block in report.blocks)
