"""Kernels alone, against PyTorch: functions, products, attention, for this CPU and for smaller ones."""

import ctypes
import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.native.llvm import binding
from heddle.tiles.kernels.attention import AttentionKernel
from heddle.tiles.kernels.emit import HEADER
from heddle.tiles.kernels.library import KernelLibrary, library
from heddle.tiles.kernels.maths import FUNCTIONS
from heddle.tiles.kernels.product import ProductKernel
from heddle.tiles.kernels.rows import Access, Rows
from heddle.tiles.kernels.target import Target, from_features, this_cpu
from heddle.tiles.operators.product import pack_weight
from heddle.tiles.values import constant

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def smaller() -> KernelLibrary:
    """What a machine with AVX2 and no more would run; elsewhere the machine's own."""
    cpu = this_cpu()
    if not cpu.triple.startswith("x86_64"):
        return library()
    wide = from_features(cpu.triple, "x86-64-v3", {"avx2": True, "fma": True}, cpu.l1, cpu.l2)
    return KernelLibrary(Target(cpu.triple, "x86-64-v3", "", wide.lanes, wide.registers))


@pytest.fixture(scope="module", params=["this CPU", "AVX2"])
def code(request):
    return library() if request.param == "this CPU" else smaller()


def run(code: KernelLibrary, kernel, *operands, scratch: int = 0):
    """Operands are tensors, or numbers."""
    words = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in operands]
    record = np.array([0] * HEADER + words, dtype=np.int64)
    bases, room = np.zeros(1, dtype=np.int64), torch.empty(scratch // 4 + 64)
    CALL(code.address(kernel))(record.ctypes.data, bases.ctypes.data, room.data_ptr())


REFERENCE = {
    "neg": torch.neg, "abs": torch.abs, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "exp": torch.exp, "tanh": torch.tanh,
    "log": torch.log, "log1p": torch.log1p,
    "erf": torch.erf, "sigmoid": torch.sigmoid, "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "maximum": torch.maximum, "minimum": torch.minimum, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "eq": torch.eq, "ne": torch.ne, "select": lambda a, b: torch.where(a != 0, b, a),
}  # fmt: skip
UNARY = {"neg", "abs", "sqrt", "rsqrt", "exp", "log", "log1p", "tanh", "erf", "sigmoid"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_pytorch(code, name):
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 88.7, 89.0, -87.0, -104.0, 1e-30, 5.0, -5.0]
    x = torch.tensor([*special, *torch.linspace(-9, 9, 301).tolist()])
    y = torch.cat((x[7:], x[:7]))
    places = (0,) if name in UNARY else (0, 1, 0) if name == "select" else (0, 1)
    recipe = (("load", 0), ("load", 1), (name, *places))
    out = torch.empty(len(x))
    access = Access((), 1)
    run(code, Rows((), len(x), recipe, (access, access), access), out, x, y, 0, 0, 1)
    wanted = REFERENCE[name](x) if name in UNARY else REFERENCE[name](x, y)
    assert torch.allclose(out, wanted.float(), rtol=1e-6, atol=1e-7 if name != "exp" else 1e-37, equal_nan=True)


@given(st.integers(1, 40), st.integers(1, 130), st.integers(1, 70), st.booleans(), st.integers(0, 30))
@settings(max_examples=12, deadline=None)
def test_products_of_all_sizes(rows, columns, depth, small, part):
    code = smaller() if small else library()
    lanes, vectors = code.target.lanes, code.target.panel_vectors(columns)
    block = min(code.target.register_rows(vectors), rows)
    a, w, bias = torch.randn(rows, depth), torch.randn(depth, columns), torch.randn(columns)
    packed = constant(pack_weight(w, vectors, lanes)).buffer.constant
    out = torch.full((rows + 1, columns), 7.0)
    epilogue = (("load", 0), ("load", 1), ("add", 0, 1))
    kernel = ProductKernel(
        depth, columns, vectors, block, rows % block, depth, columns, epilogue, ((0, 1),), 1, 0, min(part, depth)
    )
    panel = vectors * lanes
    numbers = (rows // block, int(rows % block > 0), columns // panel, int(columns % panel > 0))
    run(code, kernel, a, packed, out, 0, 0, bias, *numbers)
    assert torch.allclose(out[:rows], a @ w + bias, rtol=1e-4, atol=1e-4)
    assert (out[rows] == 7).all()  # nothing is written behind the end


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys", "head"), [(1, 1, 4), (13, 13, 20), (29, 50, 33), (50, 29, 64)])
def test_attention_is_pytorchs(code, causal, queries, keys, head):
    target = code.target
    q, k, v = torch.randn(queries, head), torch.randn(keys, head), torch.randn(keys, head)
    rows = min(target.register_rows(2), queries)
    kernel = AttentionKernel(head, head, keys, rows, queries % rows, head, head, 2, 2, 0.3, causal)
    packed = [constant(pack_weight(each, 2, target.lanes)).buffer.constant for each in (k.t(), v)]
    out = torch.empty(queries, head)
    numbers = (0, queries // rows, int(queries % rows > 0))
    run(code, kernel, out, q, *packed, 0, *numbers, scratch=kernel.scratch(target.lanes))
    wanted = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal, scale=0.3)
    assert torch.allclose(out, wanted[0], rtol=1e-5, atol=1e-5)


def test_products_are_as_fast_as_those_of_pytorch():
    """A compiler's change of mood is seen here: CPU time of one thread, the best of many, more on a busy core."""
    rows, columns, depth = 128, 768, 768
    code = library()
    vectors = code.target.panel_vectors(columns)
    block = code.target.block_rows(vectors, rows)
    a, w, out = torch.randn(rows, depth), torch.randn(depth, columns), torch.empty(rows, columns)
    packed = constant(pack_weight(w, vectors, code.target.lanes)).buffer.constant
    kernel = ProductKernel(depth, columns, vectors, block, rows % block, depth, columns, (("load", 0),), (), 1)
    panel = vectors * code.target.lanes
    numbers = (rows // block, int(rows % block > 0), columns // panel, int(columns % panel > 0))
    torch.set_num_threads(1)
    best = {"ours": math.inf, "torch": math.inf}
    for turn in range(1000):
        if turn >= 200 and best["torch"] / best["ours"] > 0.95:
            break
        for name, work in (
            ("ours", lambda: run(code, kernel, a, packed, out, 0, 0, *numbers)),
            ("torch", lambda: a @ w),
        ):
            start = time.thread_time()
            work()
            best[name] = min(best[name], time.thread_time() - start)
    assert best["torch"] / best["ours"] > 0.95


def test_the_generator_writes_for_arm():
    llvm = binding()
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM writes only for its own machine")
    arm = from_features("aarch64-unknown-linux-gnu", "neoverse-n1", {"neon": True}, 64 << 10, 1 << 20)
    assert (arm.lanes, arm.registers) == (4, 32)
    machine = target.create_target_machine(cpu=arm.cpu, opt=3)
    kernel = ProductKernel(64, 48, 3, 8, 3, 64, 48, (("load", 0),), (), 1)
    text = machine.emit_assembly(llvm.parse_assembly(kernel.write("kernel", arm)))
    assert "fmla" in text


def test_kernels_are_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDDLE_TILES_CACHE", str(tmp_path))
    access = Access((), 1)
    kernel = Rows((), 19, (("load", 0), ("exp", 0)), (access,), access)
    first, second = KernelLibrary(this_cpu()), KernelLibrary(this_cpu())
    first.address(kernel)
    (file,) = tmp_path.glob("*.o")
    second.address(kernel)
    assert (first.compiled, second.compiled) == (1, 0)
    whole = file.read_bytes()
    # the loader would run into the end of half a file, and of one whose pages never reached the disk
    for damaged in (b"damaged", b"", whole[: len(whole) // 2], whole[:96] + bytes(len(whole) - 96)):
        file.write_bytes(damaged)
        third = KernelLibrary(this_cpu())
        third.address(kernel)
        assert third.compiled == 1
        assert file.read_bytes() == whole
    # and into machine code that somebody else planted
    file.rename(tmp_path / "planted")
    file.symlink_to("planted")
    fourth = KernelLibrary(this_cpu())
    fourth.address(kernel)
    assert fourth.compiled == 1
    assert not file.is_symlink()
