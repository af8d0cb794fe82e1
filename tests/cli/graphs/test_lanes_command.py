"""`heddle lanes`: what it prints and writes, and what it says to bad input."""

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

pytest.importorskip("llvmlite")

from heddle.cli.app import app
from heddle.errors import HeddleError
from heddle.lanes import ir
from heddle.lanes.portfolio import Options, improve
from tests.helpers.commands import REPOSITORY

KERNEL = """define void @pairs(ptr noalias %o, ptr %a) {
  %x = load double, ptr %a, align 8
  %q = getelementptr inbounds i8, ptr %a, i64 8
  %y = load double, ptr %q, align 8
  %u = fmul double %x, 3.0
  %v = fmul double %y, 3.0
  store double %u, ptr %o, align 8
  %p = getelementptr inbounds i8, ptr %o, i64 8
  store double %v, ptr %p, align 8
  ret void
}
"""
C = """void cross(float *restrict o, const float *restrict a, const float *restrict b) {
  o[0] = a[1] * b[2] - a[2] * b[1];
  o[1] = a[2] * b[0] - a[0] * b[2];
  o[2] = a[0] * b[1] - a[1] * b[0];
}
"""


def heddle(*arguments):
    return CliRunner().invoke(app, ["lanes", *map(str, arguments)])


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "kernel.ll"
    path.write_text(KERNEL)
    return path


def refused(*arguments):
    answer = heddle(*arguments)
    assert isinstance(answer.exception, HeddleError), answer.output
    error = answer.exception
    assert error.what
    assert error.why
    assert error.hint
    return str(error)


def test_json_has_costs_of_every_candidate(kernel):
    answer = heddle(kernel, "--json", "--method", "ilp", "--time", "--cpu", "skylake")
    facts = json.loads(answer.stdout)
    (function,) = facts["functions"]
    (block,) = function["blocks"]
    assert function["function"] == "pairs"
    assert function["equal"] is True
    assert block["cost"]["scalar"] == 6
    assert block["cost"]["ilp"] == 3
    assert set(block["cost"]) == {"scalar", "llvm", "ilp", "policy", "pairs", "chosen"}
    assert block["gap"] == 0
    assert set(block["seconds"]) == {"llvm", "ilp"}
    assert {"scalar", "llvm", "ilp", "llvm again"} <= set(function["nanoseconds"])
    assert block["method"] == function["chosen"]


def test_the_module_is_written_and_verified(kernel, tmp_path):
    out = tmp_path / "packed.ll"
    answer = heddle(kernel, "-o", out, "--explain", "--method", "ilp")
    assert "cost   scalar 6" in answer.stdout
    assert "store <2 x double>" in out.read_text()
    ir.parse_llvm(out.read_text())
    assembly = heddle(kernel, "-S")
    assert "pairs:" in assembly.stdout


@pytest.mark.skipif(shutil.which("clang-22") is None and shutil.which("clang") is None, reason="reads C with clang")
def test_a_folder_of_c_is_a_table(tmp_path):
    (tmp_path / "cross.c").write_text(C)
    (tmp_path / "broken.c").write_text("void f( {")
    (tmp_path / "pairs.ll").write_text(KERNEL)
    found = json.loads(heddle("bench", tmp_path, "--json", "--method", "ilp").stdout)
    assert {f["function"] for f in found["functions"]} == {"cross", "pairs"}
    assert found["summary"]["worse_than_llvm"] == []
    assert "clang cannot compile" in found["skipped"][0]["why"]
    table = heddle("bench", tmp_path, "--method", "ilp").stdout
    assert "mean cost reduction" in table


def test_bad_input_is_told_in_three_parts(kernel, tmp_path):
    assert "Did you mean 'pairs'" in refused(kernel, "--function", "pair")
    assert "There is no method 'lp'" in refused(kernel, "--method", "lp")
    assert "no table of costs for 'z80'" in refused(kernel, "--cpu", "z80")
    assert "There is no file" in refused(tmp_path / "no.ll")
    assert "takes one file" in refused(kernel, kernel)
    assert "Missing argument" in heddle("bench").output
    assert "has no .c or .ll file" in refused("bench", tmp_path / "empty")
    old = tmp_path / "old.ll"
    old.write_text("define void @f(ptr %p) {\n  %x = from.another.version float 1.0\n  ret void\n}\n")
    assert "is not IR that LLVM" in refused(old)
    deep = tmp_path / "deep.ll"
    deep.write_text(f"%t = type {'{' * 100_000}\n")  # which LLVM reads by calling itself until the stack is full
    assert "is not IR: LLVM's parser crashes on it" in refused(deep)
    bits = tmp_path / "bits.ll"
    bits.write_bytes(b"BC\xc0\xde\xff\xfe")
    assert "bits.ll is not text" in refused(bits)
    os.mkfifo(tmp_path / "pipe.ll")
    assert "pipe.ll is a pipe" in refused(tmp_path / "pipe.ll")
    assert "/dev/zero is a device" in refused(kernel, "--method", "policy", "--weights", "/dev/zero")
    bits.write_bytes((2).to_bytes(8, "little") + b"[]")
    assert "does not hold the weights of a policy" in refused(kernel, "--method", "policy", "--weights", bits)
    assert "does not hold the weights of a policy" in refused(kernel, "--weights", bits)
    assert "There is no folder" in refused(kernel, "-o", tmp_path / "none" / "packed.ll")
    assert "There is no folder" in refused("train", tmp_path, "-o", tmp_path / "none" / "weights.safetensors")
    assert "It is a folder" in refused(kernel, "-o", tmp_path)
    assert "is the name of a C file" in refused(kernel, "-o", tmp_path / "kernel.c")
    empty = tmp_path / "declared.ll"
    empty.write_text("declare void @f()\n")
    assert "no function with a body" in refused(empty)


def test_what_llvm_crashes_over_is_left_or_refused_in_words(tmp_path):
    path = tmp_path / "scalable.ll"
    lines = ("%x = load <vscale x 4 x float>, ptr %p", "store <vscale x 4 x float> %x, ptr %p", "ret void")
    path.write_text("define void @f(ptr %p) {\n" + "\n".join(lines).replace("store", "fence seq_cst\nstore") + "\n}\n")
    assert "vscale" in heddle(path).stdout
    if ir.binding().get_default_triple().startswith("x86"):  # which has no such vectors: the process would end
        assert "its code generator crashes" in refused(path, "-S")


LEFT_ALONE = {
    "volatile": "  store volatile double %u, ptr %o, align 8\n",
    "atomic": "  store atomic double %u, ptr %o seq_cst, align 8\n",
    "a call between": "  store double %u, ptr %o, align 8\n  call void @pairs(ptr %o, ptr %a)\n",
    "an unknown intrinsic": "  store double %u, ptr %o, align 8\n  call void @llvm.sideeffect()\n",
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_what_is_not_understood_stays(why):
    text = KERNEL.replace("  store double %u, ptr %o, align 8\n", LEFT_ALONE[why])
    text += "declare void @llvm.sideeffect()\n" if "sideeffect" in text else ""
    found = improve(text, Options(method="ilp", seconds=2))
    assert "store <2 x double>" not in found.modules["ilp"]
    assert "store <2 x double>" in improve(KERNEL, Options(method="ilp", seconds=2)).modules["ilp"]


@pytest.mark.slow
def test_ten_thousand_instructions_fall_back_in_seconds(tmp_path):
    import time

    lines = []
    for k in range(2500):
        lines += [
            f"  %p{k} = getelementptr inbounds i8, ptr %a, i64 {8 * k}",
            f"  %x{k} = load double, ptr %p{k}, align 8",
            f"  %o{k} = getelementptr inbounds i8, ptr %o, i64 {8 * (k * 7 % 2500)}",
            f"  store double %x{k}, ptr %o{k}, align 8",
        ]
    path = tmp_path / "large.ll"
    path.write_text("define void @large(ptr %o, ptr %a) {\n" + "\n".join(lines) + "\n  ret void\n}\n")
    began = time.process_time()
    facts = json.loads(heddle(path, "--json").stdout)
    assert facts["functions"][0]["chosen"] in ("llvm", "scalar")
    assert time.process_time() - began < 60  # seconds on an idle machine; LLVM's own passes are most of it


STRUCTURES = """%struct.Point = type { double, double }
define void @shift(ptr noalias %o, ptr %a, i64 %i) {
  %p = getelementptr inbounds %struct.Point, ptr %a, i64 %i
  %q = getelementptr inbounds i8, ptr %p, i64 8
  %x = load double, ptr %p, align 8
  %y = load double, ptr %q, align 8
  %u = fadd double %x, 1.0
  %v = fadd double %y, 1.0
  %r = getelementptr inbounds %struct.Point, ptr %o, i64 %i
  %s = getelementptr inbounds i8, ptr %r, i64 8
  store double %u, ptr %r, align 8
  store double %v, ptr %s, align 8
  ret void
}
"""


def test_the_name_of_a_structure_is_no_value():
    found = improve(STRUCTURES, Options(method="ilp", seconds=2))
    assert found.reports[0].rejected == []
    assert "store <2 x double>" in found.modules["ilp"]


def test_ir_for_machines_that_llvm_does_not_know():
    attributes = 'attributes #0 = { "target-cpu"="of-tomorrow" "target-features"="+thoughts,-avx512er" }\n'
    marked = KERNEL.replace(") {", ") #0 {", 1) + attributes
    assert "store <2 x double>" in improve(marked, Options(method="ilp", seconds=2)).text
    elsewhere = 'target triple = "sparcv9-sun-solaris"\n' + KERNEL
    with pytest.raises(HeddleError, match="is IR for sparcv9, and this machine is"):
        improve(elsewhere, Options(method="llvm"))


def test_the_example_is_packed_better_than_llvm_packs_it():
    answer = heddle(REPOSITORY / "examples" / "kernel.ll", "--json", "--cpu", "x86-64-v3")
    (function,) = json.loads(answer.stdout)["functions"]
    assert function["equal"]
    assert function["cost"][function["chosen"]] < function["cost"]["llvm"]
