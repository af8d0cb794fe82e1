"""One module from the chosen candidates: functions that must stay as they are do, with all that their heads say."""

import re

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import ir, pack
from heddle.lanes.emit import Emitted, combine
from heddle.lanes.portfolio import Options, improve, read

BODY = "".join(
    f"""  %p{k} = getelementptr inbounds i8, ptr %a, i64 {4 * k}
  %x{k} = load float, ptr %p{k}, align 4
  %y{k} = fadd float %x{k}, 1.0
  %q{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}
  store float %y{k}, ptr %q{k}, align 4
"""
    for k in range(4)
)
DEBUG = """!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C11, file: !2, isOptimized: true, emissionKind: FullDebug)
!2 = !DIFile(filename: "k.c", directory: "/")
!3 = distinct !DISubprogram(name: "f", file: !2, type: !4, unit: !1, spFlags: DISPFlagDefinition)
!4 = !DISubroutineType(types: !5)
!5 = !{null}
"""
HEADS = {
    "plain": ("", "", ""),
    "optsize": ("optsize", "", ""),
    "minsize": ("minsize optsize", "", ""),
    "alwaysinline": ("alwaysinline", "", ""),
    "noinline": ("noinline", "", ""),
    "section": ("nounwind", 'section ".fast" align 64', ""),
    "comdat": ("nounwind", "comdat", "$f = comdat any\n"),
    "collected": ("", 'gc "shadow-stack"', ""),
    "personality": ("", "personality ptr @p", "declare i32 @p(...)\n"),
    "debug": ("nounwind", "!dbg !3", DEBUG),
    "unnamed": ("local_unnamed_addr nounwind", "", ""),
}


def module(attributes="", behind="", more=""):
    head = f"define void @f(ptr noalias %o, ptr noalias %a) {attributes} {behind} {{\n"
    other = f"define void @g(ptr noalias %o, ptr noalias %a) {{\n{BODY}  ret void\n}}\n"
    return (more if "$" in more else "") + head + BODY + "  ret void\n}\n" + other + (more if "$" not in more else "")


@pytest.mark.parametrize("what", HEADS)
def test_a_function_that_stays_keeps_its_head(what):
    attributes, behind, more = HEADS[what]
    scalar = ir.take_apart(read(module(attributes, behind, more)))
    text = combine.combine(scalar, {}, {"f": "scalar", "g": "llvm"}, ir.machine())
    f, g = ir.take_apart(text).functions
    assert f.text().count("fadd float") == 4  # as it was, …
    assert "fadd <4 x float>" in g.text()  # … while LLVM packed the other
    assert f.head.partition("#")[0] == scalar.functions[0].head.partition("#")[0]
    group = re.search(r" (#\d+) ?", f.head)
    inside = re.search(rf"^attributes {group[1]} = {{(.*)}}$", text, re.M)[1] if group else ""
    assert set(attributes.split()) - {"local_unnamed_addr"} <= set(inside.split())
    assert "optnone" not in text
    assert combine.BARE not in text
    assert ("noinline" in inside) == (what == "noinline")
    if behind:
        assert behind.split()[0] in f.head


def test_what_llvm_does_not_take_as_a_whole_stays_scalar(monkeypatch):
    real = pack._settle

    def settle_with_a_name_taken(pending, *rest):
        every = [packed for waiting in pending for packed in waiting.packed]
        real(pending, *rest)
        for packed in every:
            if packed.emitted is not None and packed.region.function.name == "f":
                packed.emitted = Emitted(["%o = add i32 1, 2", *packed.emitted.lines], packed.emitted.declarations)

    monkeypatch.setattr(pack, "_settle", settle_with_a_name_taken)
    found = improve(module(), Options(method="ilp", seconds=1))
    f, g = found.reports
    assert "LLVM's verifier" in f.rejected[0]
    assert f.checked == 0
    assert f.cost["ilp"] == f.cost["scalar"] > g.cost["ilp"]
