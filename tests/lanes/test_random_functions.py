"""Functions made at random: what is emitted passes LLVM's verifier and gives the same bits, by a way of running them
that shares nothing with `heddle.lanes.check`."""

import ctypes

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from heddle.lanes import ir
from heddle.lanes.policy.kernels import LENGTH, kernel
from heddle.lanes.portfolio import Options, improve
from tests.helpers.cases import thinned

NUMPY = {"float": np.float32, "double": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
CTYPE = {"float": ctypes.c_float, "double": ctypes.c_double, "i8": ctypes.c_int8, "i16": ctypes.c_int16}
CTYPE |= {"i32": ctypes.c_int32, "i64": ctypes.c_int64}
EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3.4e38, 1.0]


def run(text, kind, arrays, scalar):
    """Call @kernel; arrays are changed in place."""
    llvm = ir.binding()
    parsed = ir.parse_llvm(text)  # which verifies
    with llvm.create_mcjit_compiler(parsed, ir.machine()) as engine:
        engine.finalize_object()
        gives = None if "define void @kernel" in text or "define dso_local void @kernel" in text else CTYPE[kind]
        call = ctypes.CFUNCTYPE(gives, *[ctypes.c_void_p] * len(arrays), CTYPE[kind])(
            engine.get_function_address("kernel")
        )
        return call(*(a.ctypes.data for a in arrays), scalar)


def inputs(kind, seed, overlap):
    random = np.random.default_rng(seed)
    dtype = NUMPY[kind]
    memory = np.zeros(8 * LENGTH, dtype)
    if kind in ("float", "double"):
        memory[:] = random.normal(size=memory.size)
        wild = random.random(memory.size) < (0.3 if seed % 2 else 0)
        memory[wild] = random.choice(np.array(EDGES), size=int(wild.sum())).astype(dtype)
    else:
        memory[:] = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, size=memory.size, endpoint=True)
    starts = [0, 5, 2 * LENGTH, 2 * LENGTH + 3] if overlap else [k * 2 * LENGTH for k in range(4)]
    return memory, [memory[s:] for s in starts]


def same(a, b):
    nan = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
    return bool(((a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")) | nan).all())


def promised(text):
    """Whether the first two pointers, one of which is written to, may not overlap."""
    return "noalias %p0" in text or "noalias %p1" in text


def agree(before, after, kind, apart):
    for seed in range(4):
        overlap = seed >= 2 and not apart
        results = []
        for text in (before, after):
            memory, arrays = inputs(kind, seed, overlap)
            given = run(text, kind, arrays, 3)
            results.append((memory, np.array(given or 0, NUMPY[kind])))
        (one, gave), (two, gives) = results
        if not (same(one, two) and same(gave.reshape(1), gives.reshape(1))):
            return False
    return True


def packed(seed, **options):
    made = kernel(seed, size=1 + seed % 3)
    found = improve(made.text, Options(seconds=0.4, trials=4, **options))
    return made, found


@pytest.mark.parametrize("first", thinned(range(0, 18, 6), slow=[12]))
def test_bits_stay_and_cost_never_rises(first):
    emitted = 0
    for seed in range(first, first + 6):
        made, found = packed(seed, method="ilp", family="znver3")
        (report,) = found.reports
        assert report.rejected == [], seed
        assert report.cost[report.chosen] <= report.cost["llvm"], seed
        emitted += report.checked
        apart = promised(made.text)
        for name in ("ilp", "ilp+llvm"):
            assert agree(made.text, found.modules[name], made.type, apart), (seed, name)
        assert agree(made.text, found.text, made.type, apart), seed
    assert emitted


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_functions():
    rejected, emitted = [], 0
    for seed in range(1000, 1500):
        made, found = packed(seed, method="ilp")
        (report,) = found.reports
        emitted += report.checked
        rejected += [(seed, why) for why in report.rejected]
        assert agree(made.text, found.modules["ilp"], made.type, promised(made.text)), seed
        assert agree(made.text, found.text, made.type, promised(made.text)), seed
    assert rejected == []
    assert emitted > 300


def test_what_a_function_may_not_assume_is_kept():
    """Without noalias a store may change what a later lane loads: that order must stay."""
    text = """define void @kernel(ptr %p0, ptr %p1, ptr %p2, ptr %p3, float %s) {
  %a = load float, ptr %p1, align 4
  %x = fadd float %a, 1.0
  store float %x, ptr %p0, align 4
  %q = getelementptr inbounds i8, ptr %p1, i64 4
  %b = load float, ptr %q, align 4
  %y = fadd float %b, 1.0
  %o = getelementptr inbounds i8, ptr %p0, i64 4
  store float %y, ptr %o, align 4
  ret void
}
"""
    found = improve(text, Options(seconds=1, method="ilp"))
    assert "<2 x float>" not in found.modules["ilp"]
    apart = improve(text.replace("(ptr %p0", "(ptr noalias %p0"), Options(seconds=1, method="ilp"))
    assert "store <2 x float>" in apart.modules["ilp"]
