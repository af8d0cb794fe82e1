"""What code says of itself is kept, and names of its own never clash with ours."""

import re

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import ir
from heddle.lanes.bench import bench, table_of
from heddle.lanes.portfolio import Options, improve


def kernel(attributes="", x="x", entry="", head=""):
    lines = [
        f"""  %p{k} = getelementptr inbounds i8, ptr %a, i64 {4 * k}
  %{x}{k} = load float, ptr %p{k}, align 4
  %y{k} = fadd float %{x}{k}, 1.0
  %q{k} = getelementptr inbounds i8, ptr %o, i64 {4 * k}
  store float %y{k}, ptr %q{k}, align 4
"""
        for k in range(4)
    ]
    return f"{head}define void @f(ptr noalias %o, ptr %a) {attributes} {{\n{entry}{''.join(lines)}  ret void\n}}\n"


def by_ilp(text):
    found = improve(text, Options(method="ilp", seconds=1))
    return found, found.reports[0]


@pytest.mark.parametrize(
    "attributes", ["noimplicitfloat", '"use-soft-float"="true"', '"target-features"="+soft-float,-sse"']
)
def test_code_that_may_not_use_vectors_is_left_alone(attributes):
    found, report = by_ilp(kernel(attributes))
    assert report.checked == 0
    assert "left alone" in report.notes[0]
    assert " x float>" not in found.modules["ilp"]


def test_features_that_llvm_knows_are_kept():
    told = "+retpoline-indirect-calls,+harden-sls-ret,+nonsense-of-2050,+cx8"
    text = ir.fitted(kernel(f'"target-cpu"="pentium4" "tune-cpu"="nonsense" "target-features"="{told}"'), "It")
    if ir.binding().get_default_triple().startswith("x86_64"):
        assert '"target-features"="+retpoline-indirect-calls,+harden-sls-ret,+cx8"' in text
        assert '"target-cpu"="pentium4"' in text
    assert "nonsense" not in text


GLOBALS = "@scalar = external global [4 x float]\n@packed = external global [4 x float]\n"


@pytest.mark.parametrize(
    "text",
    [
        kernel(x="in."),
        kernel(x="check.in."),
        kernel(entry="lane0_i0:\n"),
        kernel(entry="lane0_p0:\n"),
        kernel(head=GLOBALS).replace("ptr %a,", "ptr @scalar,").replace("ptr %o,", "ptr @packed,"),
        kernel(x="in.slots").replace("%o", "%out.0"),
    ],
    ids=["value", "ours", "label", "label of the policy", "globals", "slots"],
)
def test_any_name_may_be_taken(text):
    found, report = by_ilp(text)
    assert report.rejected == []
    assert report.checked == 1
    assert re.search(r"fadd <4 x float>", found.modules["ilp"])


def test_a_file_without_functions_is_skipped_with_a_word(tmp_path):
    (tmp_path / "empty.ll").write_text("@x = global i32 3\n")
    (tmp_path / "kernel.ll").write_text(kernel())
    found = bench(tmp_path, Options(method="llvm"))
    assert "no function with a body" in found["skipped"][0]["why"]
    assert any("skipped" in line and "empty.ll" in line for line in table_of(found))
