"""The integer program: optimal on what can be enumerated, and what it knows of memory and cost."""

import itertools
import shutil
import subprocess

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import heddle
from heddle.lanes import check, cost, emit, ir, packs
from heddle.lanes.choose import choice, ilp
from heddle.lanes.choose.schedule import Cycle, arrange
from heddle.lanes.dependence import Addresses, regions

HEAD = "define void @f(ptr noalias %o, ptr noalias %a, ptr %b, i64 %i, i32 %j) {\n"


def module(body, head=HEAD):
    return ir.take_apart(ir.named(ir.parse_llvm(f"{head}{body}\n  ret void\n}}\n")))


def graph_of(body, family="znver3"):
    made = module(body)
    (region,) = regions(made.functions[0], made, smallest=1)
    return made, packs.build(region, cost.table(family))


PAIR = """
  %x = load float, ptr %a, align 4
  %q = getelementptr inbounds i8, ptr %a, i64 4
  %y = load float, ptr %q, align 4
  %u = fadd float %x, 1.0
  %v = fsub float %y, 2.0
  store float %u, ptr %o, align 4
  %p = getelementptr inbounds i8, ptr %o, i64 4
  store float %v, ptr %p, align 4"""


def cheapest_by_enumeration(graph):
    """Every set of productions, cheapest first to be feasible; only for small graphs."""
    worth = [n for n, p in enumerate(graph.productions) if p.cost]
    free = [n for n, p in enumerate(graph.productions) if not p.cost]
    best = None
    for size in range(len(worth) + 1):
        for chosen in itertools.combinations(worth, size):
            total = choice.cost_of(graph, list(chosen))
            if best is not None and total >= best:
                continue
            if feasible(graph, {*chosen, *free}):
                best = total
    return best


def feasible(graph, has):
    while True:  # drop what lacks something, until nothing does
        lacking = {n for n in has if not all(has & set(graph.makes(need)) for need in graph.productions[n].needs)}
        if not lacking:
            break
        has = has - lacking
    return all(has & set(ways) for ways in graph.stores.values())


def test_optimal_on_a_pair_of_unlike_operations():
    _, graph = graph_of(PAIR)
    assert len(graph.productions) < 40
    found = ilp.solve(graph, 10)
    assert found.facts["status"] == "optimal"
    # load, add, subtract, blend, store: an enumeration agrees that nothing is cheaper.
    assert found.cost == cheapest_by_enumeration(graph) == 5


def test_a_start_is_kept_when_there_is_no_time():
    _, graph = graph_of(PAIR)
    start = choice.used(graph, choice.scalar_choice(graph))
    found = ilp.solve(graph, 0.01, start)
    assert found.cost == choice.cost_of(graph, start)
    assert found.gap > 0


def test_wrong_lanes_are_rejected():
    """The check fails where the emitted code is wrong."""
    made, graph = graph_of(PAIR)
    found = ilp.solve(graph, 10)
    right = emit.emit(graph, found.packing, "lane")
    assert check.check(graph.region, right, made).equal
    wrong = emit.Emitted([line.replace("i32 0, i32 3", "i32 2, i32 1") for line in right.lines], right.declarations)
    assert wrong.lines != right.lines
    assert "another result" in check.check(graph.region, wrong, made).why


def test_packs_that_wait_for_each_other_are_a_cycle():
    """Two store pairs, each of which must come before the other."""
    body = """
  %b4 = getelementptr inbounds i8, ptr %b, i64 4
  %o4 = getelementptr inbounds i8, ptr %o, i64 4
  store float 1.0, ptr %b, align 4
  %x = load float, ptr %b, align 4
  store float %x, ptr %o, align 4
  store float 2.0, ptr %o4, align 4
  %y = load float, ptr %o4, align 4
  store float %y, ptr %b4, align 4"""
    _, graph = graph_of(body)
    windows = [n for n, p in enumerate(graph.productions) if p.kind == "store"]
    assert len(windows) == 2
    both = [
        *windows,
        *(n for n, p in enumerate(graph.productions) if p.kind in ("scalar", "constant", "build") and p.gives >= 0),
    ]
    with pytest.raises(Cycle):
        arrange(graph, choice.used(graph, both))
    found = ilp.solve(graph, 10)  # which leaves at least one of them
    assert sum(n in found.packing.order for n in windows) <= 1


def test_lanes_of_two_kinds_are_brought_together_by_a_shuffle():
    """Every other lane is a load as it is: the others are one sum, not four scalars that are inserted."""
    lines = []
    for k in range(4):
        lines += [
            f"  %p{k} = getelementptr inbounds i8, ptr %a, i64 {4 * k}",
            f"  %x{k} = load i32, ptr %p{k}, align 4",
            f"  %r{k} = getelementptr inbounds i8, ptr %a, i64 {64 + 4 * k}",
            f"  %y{k} = load i32, ptr %r{k}, align 4",
            f"  %s{k} = mul i32 %y{k}, %y{k}",
            f"  %q{2 * k} = getelementptr inbounds i8, ptr %o, i64 {8 * k}",
            f"  store i32 %x{k}, ptr %q{2 * k}, align 4",
            f"  %q{2 * k + 1} = getelementptr inbounds i8, ptr %o, i64 {8 * k + 4}",
            f"  store i32 %s{k}, ptr %q{2 * k + 1}, align 4",
        ]
    made, graph = graph_of("\n".join(lines))
    found = ilp.solve(graph, 10)
    kinds = [graph.productions[n].kind for n in found.packing.order]
    assert kinds.count("store") == kinds.count("pack") == kinds.count("shuffle2") == 1
    assert kinds.count("load") == 2
    emitted = emit.emit(graph, found.packing, "lane")
    assert check.check(graph.region, emitted, made).equal


def test_counting_bits_does_not_end_a_region():
    body = PAIR.replace("%u = fadd", "%z = call i32 @llvm.ctlz.i32(i32 %j, i1 true)\n  %u = fadd")
    made = ir.take_apart(
        ir.named(
            ir.parse_llvm(f"declare i32 @llvm.ctlz.i32(i32, i1)\n{HEAD}{body}\n store i32 %z, ptr %b\n ret void\n}}")
        )
    )
    (region,) = regions(made.functions[0], made)
    assert sum(s.memory for s in region.statements) == 5
    graph = packs.build(region, cost.table("znver3"))
    emitted = emit.emit(graph, ilp.solve(graph, 5).packing, "lane")
    assert check.check(region, emitted, made).equal


def addresses(body, head=HEAD):
    made = module(body, head)
    return Addresses(made.functions[0], made), {s.name: s for s in made.functions[0].blocks[0].statements}


def test_addresses_are_sums():
    found, _ = addresses("""
  %k = add i64 %i, 3
  %p = getelementptr inbounds float, ptr %a, i64 %k
  %k2 = or disjoint i64 %i, 1
  %p2 = getelementptr inbounds float, ptr %a, i64 %k2
  %n = add nsw i32 %j, 2
  %e = sext i32 %n to i64
  %p3 = getelementptr inbounds [8 x double], ptr %b, i64 %i, i64 %e
  %w = add i32 %j, 2
  %z = sext i32 %w to i64
  %p4 = getelementptr inbounds double, ptr %b, i64 %z""")
    assert found.address("%p") == found.address("%p2").__class__("%a", (("%i", 4),), 12)
    assert found.address("%p2").offset == 4
    assert found.address("%p3").terms == (("%i", 64), ("s:%j", 8))
    assert found.address("%p3").offset == 16
    assert found.address("%p4").terms == (("s:%w", 8),)  # the sum may wrap: its constant stays inside


def test_who_may_alias_whom():
    found, at = addresses("""
  %p = getelementptr inbounds i8, ptr %b, i64 4
  %q = getelementptr inbounds i8, ptr %b, i64 %i
  %l0 = load float, ptr %b, align 4
  %l1 = load float, ptr %p, align 4
  %l2 = load float, ptr %q, align 4
  %l3 = load double, ptr %b, align 8
  %l4 = load float, ptr %a, align 4
  %l5 = load float, ptr %o, align 4""")
    alias = lambda x, y: found.may_alias(at[x], at[y])  # noqa: E731
    assert not alias("%l0", "%l1")  # four bytes each, four apart
    assert alias("%l1", "%l3")  # eight bytes reach into it
    assert alias("%l0", "%l2")  # who knows where
    assert not alias("%l4", "%l5")  # noalias
    assert not alias("%l0", "%l4")


@pytest.mark.skipif(shutil.which("opt-22") is None, reason="compares with LLVM's own tool")
def test_costs_are_those_of_opt():
    text = """define void @f(ptr %p, <4 x float> %v, <8 x i32> %z, double %s) {
  %l = load <4 x float>, ptr %p, align 4
  %a = fadd <4 x float> %l, %v
  %d = fdiv <4 x float> %l, %v
  %h = shufflevector <4 x float> %v, <4 x float> %a, <4 x i32> <i32 0, i32 5, i32 2, i32 7>
  %r = shufflevector <4 x float> %v, <4 x float> poison, <4 x i32> <i32 2, i32 0, i32 3, i32 1>
  %e = extractelement <4 x float> %r, i64 3
  %m = mul <8 x i32> %z, %z
  %k = shl <8 x i32> %m, splat (i32 3)
  %c = sitofp <8 x i32> %k to <8 x float>
  %g = fcmp olt <8 x float> %c, zeroinitializer
  %w = select <8 x i1> %g, <8 x i32> %k, <8 x i32> %m
  %q = call double @llvm.sqrt.f64(double %s)
  ret void
}
declare double @llvm.sqrt.f64(double)
"""
    function = ir.take_apart(ir.named(ir.parse_llvm(text))).functions[0]
    for family in ("znver3", "skylake", "icelake-server", "x86-64-v3"):
        command = ["opt-22", f"-mcpu={family}", "-mtriple=x86_64-linux-gnu", "-cost-kind=throughput"]
        command += ["-passes=print<cost-model>", "-disable-output", "-"]
        said = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stderr
        theirs = [int(line.split("cost of ")[1].split()[0]) for line in said.splitlines() if "cost of" in line]
        table, defs = cost.table(family), cost.definitions(function)
        ours = [cost.statement_cost(table, s, defs) for s in function.blocks[0].statements]
        assert ours == theirs, family


def test_what_is_said_of_a_result_is_no_type():
    said = "%y = tail call range(i32 0, 33) i32 @llvm.ctpop.i32(i32 %x), !range !5"
    assert ir.parse_statement(said).op == "llvm.ctpop"
    assert ir.parse_statement(said).type == "i32"
    said = "%y = tail call nnan nofpclass(nan inf) float @llvm.fabs.f32(float noundef %x)"
    assert ir.parse_statement(said).packable
    assert ir.parse_statement(said).flags == {"nnan"}


def test_a_gather_costs_what_its_loads_do():
    """By LLVM's rule: the loads one by one, and two for each register of addresses; not one, as for a plain call."""
    text = """declare <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr>, <8 x i1>, <8 x float>)
define <8 x float> @f(<8 x ptr> %p) {
  %x = call <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr> %p, <8 x i1> splat (i1 true), <8 x float> poison)
  ret <8 x float> %x
}
"""
    function = ir.take_apart(ir.named(ir.parse_llvm(text))).functions[0]
    costs = {family: cost.costs_of_blocks(cost.table(family), function) for family in ("znver4", "icelake-server")}
    assert [sum(blocks.values()) for blocks in costs.values()] == [10, 12]  # 512 bits are one register, or two


def test_compile_gives_a_callable():
    add = heddle.lanes.compile(
        f"{HEAD}{PAIR}\n  ret void\n}}".replace(", i64 %i, i32 %j", "").replace("ptr %b", "double %b"), seconds=2
    )
    a, o = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    assert add(o, a, 0.0) is None
    assert o.tolist() == [2.0, 0.0]
    assert add.report.equal
    assert "f:" in add.assembly
    for wrong, words in (((o, a), "takes 3 arguments, got 2"), ((o, np.zeros(4)[::2], 0.0), "array with gaps"),
                         ((o, [1, 2], 0.0), "list for ptr"), ((o, a, "x"), "str for double")):  # fmt: skip
        with pytest.raises(heddle.errors.HeddleError, match=words):
            add(*wrong)
    with pytest.raises(heddle.errors.HeddleError, match="is used but not defined here"):
        heddle.lanes.compile("declare void @elsewhere()\ndefine void @g() {\n  call void @elsewhere()\n  ret void\n}")


def test_wide_shuffles_cost_what_opt_says_of_those_it_was_asked():
    """The rule for vectors of several registers, against masks in the table that it does not look at."""
    for family in ("znver3", "skylake"):
        table = cost.table(family)
        for kind, width in (("double", 8), ("double", 16), ("float", 16)):
            lanes = table.register // ir.BITS[kind]
            halves = [2 * i for i in range(width // 2)]
            assert table._by_registers(kind, lanes, halves) == table.costs[f"shrink <{width} x {kind}>"]
        assert table.shuffle("double", 16, [0, 4, 8, 12]) <= table.costs["shrink <16 x double>"]
