"""Code that gets slower as vectors, after reports about LLVM's superword pass: the portfolio leaves it as it is."""

import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("ortools")

from heddle.lanes import cost, ir
from heddle.lanes.portfolio import Options, improve

RING = """define void @ring_step(ptr noalias %cursor, ptr noalias %ring, i32 %size) {
  %second = getelementptr inbounds i8, ptr %cursor, i64 4
  %i = load i32, ptr %cursor, align 4
  %j = load i32, ptr %second, align 4
  %last = add i32 %size, -1
  %i.first = icmp eq i32 %i, 0
  %j.first = icmp eq i32 %j, 0
  %i.less = add i32 %i, -1
  %j.less = add i32 %j, -1
  %i.next = select i1 %i.first, i32 %last, i32 %i.less
  %j.next = select i1 %j.first, i32 %last, i32 %j.less
  %i.wide = zext i32 %i.next to i64
  %j.wide = zext i32 %j.next to i64
  %at = getelementptr inbounds i32, ptr %ring, i64 %i.wide
  %from = getelementptr inbounds i32, ptr %ring, i64 %j.wide
  %x = load i32, ptr %at, align 4
  %y = load i32, ptr %from, align 4
  store i32 %i.next, ptr %cursor, align 4
  store i32 %j.next, ptr %second, align 4
  %less = sub i32 %x, %y
  store i32 %less, ptr %at, align 4
  ret void
}
"""
BYTES = """define void @look_up(ptr noalias %o, ptr noalias %table, ptr noalias %at) {
""" + "".join(
    f"""  %p{k} = getelementptr inbounds i64, ptr %at, i64 {k}
  %i{k} = load i64, ptr %p{k}, align 8
  %e{k} = getelementptr inbounds i8, ptr %table, i64 %i{k}
  %x{k} = load i8, ptr %e{k}, align 1
  %y{k} = xor i8 %x{k}, 90
  %q{k} = getelementptr inbounds i8, ptr %o, i64 {k}
  store i8 %y{k}, ptr %q{k}, align 1
"""
    for k in range(8)
) + "  ret void\n}\n"  # fmt: skip


@pytest.mark.parametrize("cpu", ["znver4", "skylake-avx512", "x86-64-v3", "neoverse-n1"])
def test_cursors_round_a_ring_stay_scalars(cpu):
    """Both would be one vector, and each access would wait for its index to come out of it: 2.5 times as slow."""
    found = improve(RING, Options(family=cpu, seconds=2))
    (report,) = found.reports
    assert report.cost[report.chosen] == report.cost["scalar"]
    assert "extractelement" not in found.text
    assert not report.rejected


def test_an_extract_into_an_address_costs_more_than_one_that_is_stored():
    text = """define void @f(ptr %p, <2 x i64> %v, ptr %o) {
  %a = extractelement <2 x i64> %v, i64 1
  %q = getelementptr inbounds i32, ptr %p, i64 %a
  store i32 1, ptr %q, align 4
  store i64 %b, ptr %o, align 8
  ret void
}
"""

    def price(stored):
        body = text.replace("  store i64 %b, ptr %o, align 8\n", stored)
        function = ir.take_apart(ir.named(ir.parse_llvm(body))).functions[0]
        return sum(cost.costs_of_blocks(cost.table("znver4"), function).values())

    plain = "  %b = extractelement <2 x i64> %v, i64 1\n  store i64 %b, ptr %o, align 8\n"
    other = "  %b = extractelement <2 x i64> %v, i64 1\n  %r = getelementptr i8, ptr %o, i64 %b\n"
    other += "  store i64 0, ptr %r, align 8\n"
    assert price(other) - price(plain) == cost.INTO_ADDRESS


def test_bytes_are_not_gathered():
    """No CPU does: it takes each address out and puts each byte in."""
    table = cost.table("znver4")
    assert table.gather("i8", 8) > 3 * table.gather("i32", 8)
    found = improve(BYTES, Options(family="znver4", seconds=2))
    assert "masked.gather" not in found.text
    (report,) = found.reports
    assert report.cost[report.chosen] <= report.cost["llvm"]
