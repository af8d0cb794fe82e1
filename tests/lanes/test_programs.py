"""Whole programs in C, none of which the policy has learned from: every candidate gives what clang's own code gives."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import ir
from heddle.lanes.child import in_child
from heddle.lanes.portfolio import Options, improve

PROGRAMS = sorted(Path(__file__).with_name("programs").glob("*.c"))
pytestmark = pytest.mark.skipif(
    shutil.which("clang-22") is None and shutil.which("clang") is None, reason="reads C with clang"
)


def by_clang(path, folder):
    """What the program gives without Heddle."""
    library = folder / f"{path.stem}.so"
    clang = shutil.which("clang-22") or shutil.which("clang")
    subprocess.run([clang, "-O1", "-ffp-contract=off", "-shared", "-fPIC", path, "-o", library, "-lm"], check=True)
    call = ctypes.CDLL(str(library)).run
    call.restype = ctypes.c_uint64
    return call()


def by_module(text):
    llvm = ir.binding()
    with llvm.create_mcjit_compiler(ir.parse_llvm(ir.for_this_machine(text)), ir.machine()) as engine:
        engine.finalize_object()
        call = ctypes.CFUNCTYPE(ctypes.c_uint64)(engine.get_function_address("run"))
        said = in_child(lambda: [str(call()).encode()], 60)
    return int(said) if said else None


def candidates_agree(path, folder, **options):
    expected = by_clang(path, folder)
    found = improve(ir.read_source(path), Options(seconds=1, trials=4, **options), None, path.name)
    for name, text in {**found.modules, "chosen": found.text}.items():
        assert by_module(text) == expected, name
    for report in found.reports:
        assert report.cost[report.chosen] <= report.cost["llvm"], report.function
        assert report.rejected == [], report.function
    return found


@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.stem == "awkward"], ids=lambda p: p.stem)
def test_what_must_stay_stays(path, tmp_path):
    candidates_agree(path, tmp_path, method="policy")


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_programs_give_the_same(path, tmp_path):
    found = candidates_agree(path, tmp_path)
    assert sum(r.checked for r in found.reports) > 5
