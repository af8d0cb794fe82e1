"""Products of a few rows with weights in fewer bits: those of the weights that the bits stand for."""

import math

import pytest
import torch

from heddle.native.llvm import binding
from heddle.tiles.kernels.digits import BLOCK, GROUP, Digits
from heddle.tiles.kernels.library import KernelLibrary, library
from heddle.tiles.kernels.narrow import VECTORS, NarrowProduct
from heddle.tiles.kernels.target import Target, this_cpu
from heddle.tiles.operators.narrow import narrow_weights, rounded, unrounded
from tests.tiles.kernels.test_kernels import run, smaller


def wide_without_dots() -> KernelLibrary:
    """AVX-512 as it was before it had products of bytes; elsewhere the machine's own."""
    cpu = this_cpu()
    if cpu.lanes != 16:
        return library()
    return KernelLibrary(Target(cpu.triple, "x86-64-v4", "", cpu.lanes, cpu.registers))


CPUS = {"this CPU": library, "AVX-512": wide_without_dots, "AVX2": smaller}


def digits(code: KernelLibrary, x: torch.Tensor) -> torch.Tensor:
    rows, depth = x.shape
    blocks = torch.empty(rows, -(-depth // GROUP) * BLOCK, dtype=torch.uint8)
    for row, out in zip(x, blocks, strict=True):
        run(code, Digits(depth % GROUP), row, out, depth // GROUP, int(depth % GROUP > 0))
    return blocks


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 75, 150), (3, 64, 64), (4, 33, 17)])
def test_products_are_those_of_the_rounded_weights(cpu, bits, rows, depth, columns):
    code = CPUS[cpu]()
    x, weight = torch.randn(rows, depth), torch.randn(depth, columns) * torch.rand(columns) ** 4
    bias, out = torch.randn(columns), torch.full((rows + 1, columns), 7.0)
    left, stride = x, depth
    if bits < 16:
        left = digits(code, x)
        stride = left.shape[1]
    panel = VECTORS * code.target.lanes
    epilogue = (("load", 0), ("load", 1), ("add", 0, 1))
    kernel = NarrowProduct(bits, rows, depth, columns, stride, columns, epilogue, ((0, 1),))
    packed = narrow_weights(weight, bits, code.target.lanes).buffer.constant
    run(code, kernel, left, packed, out, bias, columns // panel, int(columns % panel > 0))
    exact = weight.bfloat16() if bits == 16 else unrounded(*rounded(weight, bits))
    wanted = x.double() @ exact.double() + bias
    largest = (x.abs().double() @ exact.abs().double()).max()
    assert float((out[:rows] - wanted).abs().max() / largest) < (1e-6 if bits == 16 else 1e-4)
    assert (out[rows] == 7).all()  # nothing is written behind the end


@pytest.mark.parametrize("cpu", CPUS)
def test_numbers_that_are_none_reach_the_sums(cpu):
    code = CPUS[cpu]()
    x = torch.ones(3, GROUP)
    x[0, 5], x[1, 7], x[2] = math.nan, math.inf, 1e-40
    panel = VECTORS * code.target.lanes
    packed = narrow_weights(torch.ones(GROUP, panel), 4, code.target.lanes).buffer.constant
    left, out = digits(code, x), torch.empty(3, panel)
    run(code, NarrowProduct(4, 3, GROUP, panel, left.shape[1], panel, (("load", 0),), ()), left, packed, out, 1, 0)
    assert not out[:2].isfinite().any()
    assert (out[2].abs() < 1e-30).all()


def test_codes_are_the_nearest():
    weight = torch.randn(70, 9)
    weight[:GROUP, 3] = 0
    for bits, step in ((8, 127), (4, 8)):
        codes, scales = rounded(weight, bits)
        off = (unrounded(codes, scales) - weight).abs()
        per_weight = scales.abs().repeat_interleave(GROUP, 0)[:70]
        # Half a step, but for what rounding the scale cuts from the ends, and the end that 4 bits do not have.
        assert (off <= per_weight * (0.5 if bits == 8 else 1.0) * 1.01 + per_weight * step * 2**-8).all()
        assert float((off / per_weight.clamp_min(1e-9)).median()) < 0.3
        assert (codes[:GROUP, 3] == 0).all()


def test_this_machine_uses_its_products_of_bytes():
    target = this_cpu()
    if not target.has("avx512vnni"):
        pytest.skip("this CPU has none")
    kernel = NarrowProduct(4, 1, 64, 64, 144, 64, (("load", 0),), ())
    module = binding().parse_assembly(kernel.write("kernel", target))
    assert "vpdpbusd" in library().machine.emit_assembly(module)
