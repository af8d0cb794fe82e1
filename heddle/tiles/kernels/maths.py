"""Functions of vectors in a few multiplications each. NaN stays NaN, and infinities give what they should."""

from __future__ import annotations

import math
from collections.abc import Callable

from llvmlite import ir

from heddle.tiles.kernels.emit import I32, Code, Value

LOG2E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # Cody and Waite: their sum is ln 2, and n × the first is exact
ROUND = 12582912.0  # 1.5 · 2^23: adding it leaves the nearest integer in the lowest bits
# e^r for |r| ≤ ln 2 / 2, as in Cephes' expf: relative error 2e-7
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
# log(1 + r) / r³ up to its first two terms, for m = 1 + r in [√½, √2), as in Cephes' logf
LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
       2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
HALF_ROOT, TINY = 0x3F3504F3, 1.17549435e-38  # the bits of √½; the smallest number with all its digits
# Odd over even polynomials, as in Eigen: the highest power first
TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
     6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)  # fmt: skip
ERF = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02),
)  # fmt: skip


def polynomial(code: Code, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Horner's rule, the highest power first."""
    value = code.constant(coefficients[0])
    for coefficient in coefficients[1:]:
        value = code.fma(value, x, code.constant(coefficient))
    return value


def exp(code: Code, x: Value) -> Value:
    block = code.block
    low = block.fcmp_ordered("<", x, code.constant(-87.33))
    high = block.fcmp_ordered(">", x, code.constant(88.72283))
    within = block.select(low, code.constant(-87.33), block.select(high, code.constant(88.72283), x))
    shifted = code.fma(within, code.constant(LOG2E), code.constant(ROUND))
    n = block.fsub(shifted, code.constant(ROUND))
    r = code.fma(n, code.constant(-LN2_LOW), code.fma(n, code.constant(-LN2_HIGH), within))
    value = code.fma(polynomial(code, r, EXP), block.fmul(r, r), block.fadd(r, code.constant(1.0)))
    integers = ir.VectorType(I32, code.lanes)
    power = block.shl(block.bitcast(shifted, integers), ir.Constant(integers, [23] * code.lanes))
    scaled = block.bitcast(block.add(block.bitcast(value, integers), power), code.vector)
    scaled = block.select(high, code.constant(float("inf")), block.select(low, code.zero(), scaled))
    return block.select(block.fcmp_unordered("uno", x, x), x, scaled)


def log(code: Code, x: Value) -> Value:
    """The natural logarithm, as in Cephes' logf. Negative numbers give NaN, zero minus infinity."""
    block, integers = code.block, ir.VectorType(I32, code.lanes)

    def whole(number: int) -> Value:
        return ir.Constant(integers, [number] * code.lanes)

    small = block.fcmp_ordered("<", x, code.constant(TINY))
    bits = block.bitcast(block.select(small, block.fmul(x, code.constant(2.0**23)), x), integers)
    # x = 2^n · m with m in [√½, √2)
    shifted = block.sub(bits, whole(HALF_ROOT))
    n = block.ashr(shifted, whole(23))
    m = block.bitcast(block.sub(bits, block.shl(n, whole(23))), code.vector)
    n = block.sitofp(block.sub(n, block.select(small, whole(23), whole(0))), code.vector)
    r = block.fsub(m, code.constant(1.0))
    square = block.fmul(r, r)
    value = block.fmul(block.fmul(polynomial(code, r, LOG), square), r)
    value = code.fma(n, code.constant(LN2_LOW), value)
    value = code.fma(square, code.constant(-0.5), value)
    value = code.fma(n, code.constant(LN2_HIGH), block.fadd(r, value))
    value = block.select(block.fcmp_ordered("==", x, code.constant(float("inf"))), x, value)
    value = block.select(block.fcmp_ordered("==", x, code.zero()), code.constant(float("-inf")), value)
    negative = block.fcmp_ordered("<", x, code.zero())
    value = block.select(negative, code.constant(float("nan")), value)
    return block.select(block.fcmp_unordered("uno", x, x), x, value)


def log1p(code: Code, x: Value) -> Value:
    """log(1 + x), and x itself where adding it changes nothing: what is lost in the sum is put back by a factor."""
    block = code.block
    total = block.fadd(code.constant(1.0), x)
    added = block.fsub(total, code.constant(1.0))
    tiny = block.fcmp_ordered("==", added, code.zero())
    endless = block.fcmp_ordered("==", total, code.constant(float("inf")))
    factor = block.fdiv(x, block.select(tiny, code.constant(1.0), added))
    value = block.fmul(log(code, total), block.select(endless, code.constant(1.0), factor))
    return block.select(tiny, x, value)


def _rational(code: Code, x: Value, limit: float, one: float, odd: tuple[float, ...], even: tuple[float, ...]) -> Value:
    """An odd function that approaches 1: polynomials up to `limit`, and from `one` on what fp32 rounds it to."""
    block = code.block
    above = block.select(block.fcmp_ordered(">", x, code.constant(limit)), code.constant(limit), x)
    inside = block.select(block.fcmp_ordered("<", above, code.constant(-limit)), code.constant(-limit), above)
    square = block.fmul(inside, inside)
    value = block.fdiv(block.fmul(inside, polynomial(code, square, odd)), polynomial(code, square, even))
    value = block.select(block.fcmp_ordered(">", x, code.constant(one)), code.constant(1.0), value)
    return block.select(block.fcmp_ordered("<", x, code.constant(-one)), code.constant(-1.0), value)


def tanh(code: Code, x: Value) -> Value:
    return _rational(code, x, 7.90531110763549805, 9.011, *TANH)


def erf(code: Code, x: Value) -> Value:
    return _rational(code, x, 4.0, 3.92, *ERF)


def sigmoid(code: Code, x: Value) -> Value:
    one = code.constant(1.0)
    return code.block.fdiv(one, code.block.fadd(one, exp(code, code.block.fneg(x))))


def _compare(sign: str) -> Callable[[Code, Value, Value], Value]:
    def compare(code: Code, left: Value, right: Value) -> Value:
        block = code.block
        test = block.fcmp_unordered if sign == "!=" else block.fcmp_ordered
        return block.select(test(sign, left, right), code.constant(1.0), code.zero())

    return compare


def _extreme(sign: str, name: str) -> Callable[[Code, Value, Value], Value]:
    """The larger or the smaller; NaN where either is. Against a known number, as in relu, that is one instruction."""

    def extreme(code: Code, left: Value, right: Value) -> Value:
        for known, other in ((left, right), (right, left)):
            if isinstance(known, ir.Constant) and not math.isnan(known.constant[0].constant):
                return code.block.select(code.block.fcmp_ordered(sign, known, other), known, other)
        return code.call(name, left, right)

    return extreme


def _select(code: Code, condition: Value, left: Value, right: Value) -> Value:
    return code.block.select(code.block.fcmp_unordered("!=", condition, code.zero()), left, right)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": lambda code, x, y: code.block.fadd(x, y),
    "sub": lambda code, x, y: code.block.fsub(x, y),
    "mul": lambda code, x, y: code.block.fmul(x, y),
    "div": lambda code, x, y: code.block.fdiv(x, y),
    "neg": lambda code, x: code.block.fneg(x),
    "abs": lambda code, x: code.call("llvm.fabs", x),
    "maximum": _extreme(">", "llvm.maximum"),
    "minimum": _extreme("<", "llvm.minimum"),
    "sqrt": lambda code, x: code.call("llvm.sqrt", x),
    "rsqrt": lambda code, x: code.block.fdiv(code.constant(1.0), code.call("llvm.sqrt", x)),
    "exp": exp,
    "log": log,
    "log1p": log1p,
    "tanh": tanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "select": _select,
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "eq": _compare("=="),
    "ne": _compare("!="),
}
