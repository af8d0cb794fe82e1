"""What may meet in memory: the rule by types, and a check that does not take the rule's word for it."""

import re

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import ir
from heddle.lanes.dependence import Addresses
from heddle.lanes.portfolio import Options, improve

# Loads and stores by turns, as C++ that calls C has them after linking: types of two roots.
LINES = [
    line.replace("#", str(k)).replace("@", str(4 * k))
    for k in range(4)
    for line in (
        "  %p# = getelementptr inbounds i8, ptr %a, i64 @",
        "  %x# = load i32, ptr %p#, align 4, !tbaa !5",
        "  %q# = getelementptr inbounds i8, ptr %o, i64 @",
        "  store i32 1#, ptr %q#, align 4, !tbaa !1",
    )
] + [
    line.replace("#", str(k)).replace("@", str(4 * k))
    for k in range(4)
    for line in (
        "  %y# = mul i32 %x#, 3",
        "  %s# = getelementptr inbounds i8, ptr %r, i64 @",
        "  store i32 %y#, ptr %s#, align 4, !tbaa !1",
    )
]
LINKED = "define void @f(ptr %o, ptr %a, ptr %r) {\n" + "\n".join(LINES) + "\n  ret void\n}\n"
TYPES = """!1 = !{!2, !2, i64 0}
!2 = !{!"int", !3, i64 0}
!3 = !{!"omnipotent char", !4, i64 0}
!4 = !{!"Simple C/C++ TBAA"}
!5 = !{!6, !6, i64 0}
!6 = !{!"other", !7, i64 0}
!7 = !{!"omnipotent char", !8, i64 0}
!8 = !{!"Simple C++ TBAA"}
"""
ONE_ROOT = TYPES.replace('!6 = !{!"other", !7', '!6 = !{!"other", !3')
NO_NAME = ONE_ROOT.replace('!{!"Simple C/C++ TBAA"}', "distinct !{}")


@pytest.mark.parametrize(("types", "alias"), [(TYPES, True), (ONE_ROOT, False), (NO_NAME, True)])
def test_types_of_different_roots_may_be_the_same_memory(types, alias):
    module = ir.take_apart(ir.named(ir.parse_llvm(LINKED + types)))
    found = Addresses(module.functions[0], module)
    at = {s.name or s.text: s for s in module.functions[0].blocks[0].statements}
    store = next(s for text, s in at.items() if text.startswith("store i32 10"))
    assert found.may_alias(at["%x1"], store) == alias


def test_the_check_finds_a_broken_rule(monkeypatch):
    monkeypatch.setattr(Addresses, "types_may_alias", lambda *_: False)
    (report,) = improve(LINKED + TYPES, Options(method="ilp", seconds=2), "f").reports
    assert report.checked == 0
    assert "another result" in report.rejected[0]


def test_code_that_goes_by_its_types_passes():
    """Whole numbers are read between floats that are written: they are never the same memory."""
    text = re.sub(r"store i32 1\d", "store float 2.5", LINKED).replace("store i32 %y", "store float %y")
    text = text.replace("mul i32 %x", "sitofp i32 %x").replace(", 3\n", " to float\n")
    (report,) = improve(text + ONE_ROOT, Options(method="ilp", seconds=2), "f").reports
    assert report.rejected == []
    assert report.checked == 1


def test_an_index_may_be_one_more_than_another(monkeypatch):
    """One array, at two places: the check must bring them together at any distance."""
    monkeypatch.setattr(Addresses, "may_alias", lambda *_: False)
    text = LINKED.replace("ptr %o, ptr %a, ptr %r", "ptr noalias %b, ptr noalias %r, i64 %i, i64 %j")
    starts = "".join(f"  %{n} = getelementptr inbounds i32, ptr %b, i64 %{i}\n" for n, i in (("a", "i"), ("o", "j")))
    text = text.replace("{\n", "{\n" + starts, 1)
    (report,) = improve(text + TYPES, Options(method="ilp", seconds=2), "f").reports
    assert report.checked == 0
    assert "another result" in report.rejected[0]
