"""Vectors that go round loops of one block and out of them, and what may go into their lanes."""

import re

import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("ortools")

from heddle.lanes import cost, ir, packs
from heddle.lanes.check import check
from heddle.lanes.dependence import Addresses, regions
from heddle.lanes.portfolio import Options, improve, read

SUMS = """
define void @sums(ptr noalias %a, ptr noalias %o, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %s = phi float [ 1.0, %entry ], [ %s2, %loop ]
  %t = phi float [ 2.0, %entry ], [ %t2, %loop ]
  %u = phi float [ 3.0, %entry ], [ %u2, %loop ]
  %v = phi float [ 4.0, %entry ], [ %v2, %loop ]
  %p = getelementptr inbounds [4 x float], ptr %a, i64 %i
  %x = load float, ptr %p, align 4
  %py = getelementptr inbounds i8, ptr %p, i64 4
  %y = load float, ptr %py, align 4
  %pz = getelementptr inbounds i8, ptr %p, i64 8
  %z = load float, ptr %pz, align 4
  %pw = getelementptr inbounds i8, ptr %p, i64 12
  %w = load float, ptr %pw, align 4
  %s2 = fadd float %s, %x
  %t2 = fadd float %t, %y
  %u2 = fadd float %u, %z
  %v2 = fadd float %v, %w
  %i2 = add nuw nsw i64 %i, 1
  %c = icmp eq i64 %i2, %n
  br i1 %c, label %done, label %loop
done:
  %sum = fmul float %s2, %t2
  %more = fmul float %u2, %v2
  store float %sum, ptr %o, align 4
  %q = getelementptr inbounds i8, ptr %o, i64 8
  store float %more, ptr %q, align 4
  ret void
}
"""
FEW = Options(method="ilp", seconds=2, family="znver3")


def block(text, label):
    return text.partition(f"\n{label}:")[2].partition("\n\n")[0].partition("br ")[0]


def only_region(text, label="loop"):
    module = ir.take_apart(read(text))
    found = [r for f in module.functions for r in regions(f, module)]
    return module, next(r for r in found if r.block.label == label)


def test_sums_go_round_as_one_vector_and_are_taken_apart_behind():
    found = improve(SUMS, FEW)
    loop = block(found.modules["ilp"], "loop")
    assert "phi <4 x float> [ <float 1.000000e+00, float 2.000000e+00" in loop
    assert "fadd <4 x float>" in loop
    assert "extractelement" not in loop
    assert "float %s" not in loop
    behind = found.modules["ilp"].partition("br i1")[2]
    assert behind.count("extractelement <4 x float>") == 4
    assert not found.reports[0].rejected
    assert found.reports[0].checked == 1


def test_what_the_loop_itself_reads_stays_a_scalar():
    text = SUMS.replace("  %i2 = add", "  call void @see(float %s2)\n  %i2 = add") + "declare void @see(float)\n"
    _, region = only_region(text)
    assert region.required == {"%s2"}
    assert region.leaving == {"%t2", "%u2", "%v2"}


def test_a_phi_that_makes_addresses_is_not_carried():
    _, region = only_region(SUMS)
    assert set(region.carried) == {"%s", "%t", "%u", "%v"}


def test_a_wrong_lane_of_what_goes_round_is_found():
    module, region = only_region(SUMS)
    from heddle.lanes.decisions import Decisions

    made = Decisions(cost.table("znver3"), ["ilp"], None).of(region, 2.0)
    from heddle.lanes.emit import emit

    right = emit(made.graph, made.solutions["ilp"].packing, "x")
    assert check(region, right, module).equal
    right.lines = [re.sub(r"fadd <4 x float>", "fsub <4 x float>", line) for line in right.lines]
    assert not check(region, right, module).equal


def test_lanes_that_wait_for_each_other_over_turns():
    """A delay line: what one phi is becomes what the next one will be."""
    text = SUMS.replace("[ 3.0, %entry ], [ %u2, %loop ]", "[ 3.0, %entry ], [ %s, %loop ]").replace(
        "[ 4.0, %entry ], [ %v2, %loop ]", "[ 4.0, %entry ], [ %t, %loop ]"
    )
    found = improve(text, FEW)
    assert not found.reports[0].rejected
    assert "phi <" in found.modules["ilp"]


def test_rows_of_a_matrix_do_not_meet_in_other_columns():
    text = """
define void @rows(ptr %a, i64 %k) {
  %row = getelementptr inbounds [5 x double], ptr %a, i64 %k
  %next = getelementptr inbounds i8, ptr %row, i64 8
  %fixed = getelementptr inbounds i8, ptr %a, i64 40
  %x = load double, ptr %row, align 8
  %y = load double, ptr %next, align 8
  store double %x, ptr %fixed, align 8
  store double %y, ptr %row, align 8
  ret void
}
"""
    module = ir.take_apart(ir.named(ir.parse_llvm(text)))
    function = module.functions[0]
    addresses = Addresses(function, module)
    x, y, fixed, _ = [s for s in function.blocks[0].statements if s.memory]
    assert addresses.may_alias(x, fixed)  # where %k is 1
    assert not addresses.may_alias(y, fixed)
    loose = ir.take_apart(ir.named(ir.parse_llvm(text.replace(" inbounds", ""))))
    addresses = Addresses(loose.functions[0], loose)
    _, y, fixed, _ = [s for s in loose.functions[0].blocks[0].statements if s.memory]
    assert addresses.may_alias(y, fixed)  # 40 × %k may wrap to anything


def test_a_table_is_read_by_a_vector_of_indices():
    lines = []
    for k in range(4):
        lines += [
            f"  %p{k} = getelementptr inbounds i8, ptr %i, i64 {8 * k}",
            f"  %i{k} = load i64, ptr %p{k}, align 8",
            f"  %t{k} = getelementptr inbounds i32, ptr %t, i64 %i{k}",
            f"  %x{k} = load i32, ptr %t{k}, align 4",
            f"  %y{k} = xor i32 %x{k}, 7",
            f"  %o{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}",
            f"  store i32 %y{k}, ptr %o{k}, align 4",
        ]
    text = (
        "define void @look(ptr noalias %o, ptr noalias %i, ptr noalias %t) {\n" + "\n".join(lines) + "\n  ret void\n}"
    )
    found = improve(text, FEW)
    assert "@llvm.masked.gather.v4i32.v4p0" in found.modules["ilp"]
    assert found.reports[0].checked == 1
    assert found.reports[0].cost["ilp"] <= found.reports[0].cost["llvm"]


def test_arguments_of_calls_are_read_behind_their_attributes():
    s = ir.parse_statement("%m = call i32 @llvm.smax.i32(i32 range(i32 -5, 9) %x, i32 noundef 0)")
    assert s.lanes == ("%x", "0")
    t = ir.parse_statement("%m = call float @llvm.sqrt.f32(float nofpclass(nan inf) %x)")
    assert t.lanes == ("%x",)


def test_bits_are_cast_in_all_lanes():
    lines = []
    for k in range(4):
        lines += [
            f"  %p{k} = getelementptr inbounds i8, ptr %a, i64 {4 * k}",
            f"  %x{k} = load i32, ptr %p{k}, align 4",
            f"  %f{k} = bitcast i32 %x{k} to float",
            f"  %g{k} = fadd float %f{k}, 1.0",
            f"  %o{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}",
            f"  store float %g{k}, ptr %o{k}, align 4",
        ]
    text = "define void @bits(ptr noalias %o, ptr noalias %a) {\n" + "\n".join(lines) + "\n  ret void\n}"
    assert improve(text, FEW).reports[0].cost["ilp"] == 3  # a load, an addition, a store


def test_a_float_that_stays_as_it_is_keeps_its_zero_and_no_promise():
    """Three sums and one load: the fourth adds -0.0, and `nnan` may not be said of it."""
    lines = []
    for k in range(4):
        lines += [
            f"  %p{k} = getelementptr inbounds i8, ptr %a, i64 {4 * k}",
            f"  %x{k} = load float, ptr %p{k}, align 4",
        ]
        if k == 1:
            lines.append(f"  %y{k} = fadd nnan float %x{k}, %s")
        else:
            lines.append(f"  %y{k} = fmul float %x{k}, 1.0")
    for k in range(4):
        lines += [
            f"  %z{k} = fmul float %{'y' if k == 1 else 'x'}{k}, %s",
            f"  %o{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}",
            f"  store float %z{k}, ptr %o{k}, align 4",
        ]
    text = "define void @odd(ptr noalias %o, ptr noalias %a, float %s) {\n" + "\n".join(lines) + "\n  ret void\n}"
    _, region = only_region(text, "bb")
    graph = packs.build(region, cost.table("znver3"))
    filled = [p for p in graph.productions if p.kind == "pack" and "-0.000000e+00" in graph.items[p.operands[-1]].lanes]
    assert filled
    found = improve(text, FEW)
    assert not found.reports[0].rejected
    for line in found.modules["ilp"].splitlines():
        if "fadd" in line and "<4 x float>" in line:
            assert "nnan" not in line


def test_regions_of_the_same_shape_are_decided_once(monkeypatch):
    from heddle.lanes.choose import ilp

    solved = []
    whole = ilp.solve
    monkeypatch.setattr(ilp, "solve", lambda *a, **k: solved.append(a) or whole(*a, **k))
    parts = []
    for f in range(5):
        body = "".join(
            f"  %p{k} = getelementptr inbounds i8, ptr %from, i64 {4 * k}\n  %x{k} = load float, ptr %p{k}, align 4\n"
            f"  %y{k} = fmul float %x{k}, %s\n  %o{k} = getelementptr inbounds i8, ptr %into, i64 {4 * k}\n"
            f"  store float %y{k}, ptr %o{k}, align 4\n"
            for k in range(4)
        )
        parts.append(f"define void @f{f}(ptr noalias %into, ptr noalias %from, float %s) {{\n{body}  ret void\n}}\n")
    found = improve("\n".join(parts), FEW)
    assert len({r.cost["ilp"] for r in found.reports}) == 1
    assert all(r.checked == 1 for r in found.reports)
    assert len(solved) == 1


FACTORS = """
define void @factors(ptr noalias %a, ptr noalias %o, ptr noalias %f, i64 %n) {
entry:
FIRST
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %p = getelementptr inbounds [4 x float], ptr %a, i64 %i
  %q = getelementptr inbounds [4 x float], ptr %o, i64 %i
BODY
  %i2 = add nuw nsw i64 %i, 1
  %c = icmp eq i64 %i2, %n
  br i1 %c, label %done, label %loop
done:
  ret void
}
"""


def factors(between=""):
    first = [
        f"  %fp{k} = getelementptr inbounds i8, ptr %f, i64 {4 * k}\n  %f{k} = load float, ptr %fp{k}, align 4"
        for k in range(4)
    ]
    body = [
        f"  %ap{k} = getelementptr inbounds i8, ptr %p, i64 {4 * k}\n  %x{k} = load float, ptr %ap{k}, align 4\n"
        f"  %y{k} = fmul float %x{k}, %f{k}\n"
        f"  %op{k} = getelementptr inbounds i8, ptr %q, i64 {4 * k}\n  store float %y{k}, ptr %op{k}, align 4"
        for k in range(4)
    ]
    return FACTORS.replace("FIRST", "\n".join([*first, between])).replace("BODY", "\n".join(body))


def test_what_was_loaded_before_a_loop_is_loaded_again_as_one():
    found = improve(factors(), FEW)
    entry = block(found.modules["ilp"], "entry")
    assert "load <4 x float>, ptr %f" in entry
    assert "insertelement" not in entry
    assert not found.reports[0].rejected


def test_but_not_if_it_may_have_been_overwritten():
    found = improve(factors("  store float 9.0, ptr %fp2, align 4"), FEW)
    assert "load <4 x float>, ptr %f" not in found.modules["ilp"]
    found = improve(factors("  call void @see()") + "declare void @see()\n", FEW)
    assert "load <4 x float>, ptr %f" not in found.modules["ilp"]
    found = improve(factors("  store float 9.0, ptr %o, align 4"), FEW)  # noalias
    assert "load <4 x float>, ptr %f" in found.modules["ilp"]


def test_a_loop_right_behind_another():
    """What the second needs is made between them, not in every turn of the first."""
    second = """
next:
  %j = phi i64 [ 0, %loop ], [ %j2, %next ]
  %k = phi float [ %s2, %loop ], [ %k2, %next ]
  %l = phi float [ %t2, %loop ], [ %l2, %next ]
  %m = phi float [ %u2, %loop ], [ %m2, %next ]
  %n4 = phi float [ %v2, %loop ], [ %n42, %next ]
  %ka = fmul float %k, %s2
  %kb = fadd float %ka, %k
  %kc = fmul float %kb, %ka
  %k2 = fsub float %kc, %kb
  %la = fmul float %l, %t2
  %lb = fadd float %la, %l
  %lc = fmul float %lb, %la
  %l2 = fsub float %lc, %lb
  %ma = fmul float %m, %u2
  %mb = fadd float %ma, %m
  %mc = fmul float %mb, %ma
  %m2 = fsub float %mc, %mb
  %n4a = fmul float %n4, %v2
  %n4b = fadd float %n4a, %n4
  %n4c = fmul float %n4b, %n4a
  %n42 = fsub float %n4c, %n4b
  %j2 = add nuw nsw i64 %j, 1
  %d = icmp eq i64 %j2, 5
  br i1 %d, label %done, label %next
done:
"""
    text = SUMS.replace("label %done, label %loop", "label %next, label %loop").replace("\ndone:\n", second)
    text = text.replace("%s2, %t2\n  %more = fmul float %u2, %v2", "%k2, %l2\n  %more = fmul float %m2, %n42")
    found = improve(text, FEW)
    assert not found.reports[0].rejected
    packed = found.modules["ilp"]
    assert packed.count("phi <4 x float>") == 2
    assert "insertelement" not in block(packed, "loop")


def test_a_call_that_may_throw_ends_what_stands():
    loads = "".join(
        f"  %p{k} = getelementptr inbounds i8, ptr %a, i64 {4 * k}\n  %x{k} = load float, ptr %p{k}, align 4\n"
        for k in range(4)
    )
    uses = "".join(
        f"  %y{k} = fmul float %x{k}, %s\n  %q{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}\n"
        f"  store float %y{k}, ptr %q{k}, align 4\n"
        for k in range(4)
    )
    text = (
        f"define void @f(ptr %a, ptr %o, float %s) personality ptr @p {{\nentry:\n{loads}"
        "  invoke void @change() to label %go unwind label %bad\n"
        f"go:\n{uses}  ret void\n"
        "bad:\n  %l = landingpad { ptr, i32 } cleanup\n  store float %s, ptr %o, align 4\n"
        "  resume { ptr, i32 } %l\n}\n"
        "declare void @change()\ndeclare i32 @p(...)\n"
    )
    _, region = only_region(text, "go")
    assert not region.standing.loads
    found = improve(text, FEW)
    assert "load <4 x float>" not in found.modules["ilp"]
