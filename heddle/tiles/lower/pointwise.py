"""PyTorch's element-wise operators and those along rows, as instructions of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from heddle.tiles.kernels.recipe import Instruction, Recipe

aten = torch.ops.aten


class Writer:
    """A recipe being written; equal instructions are written once."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.places: dict[Instruction, int] = {}

    def __call__(self, name: str, *values: Any) -> int:
        instruction = (name, *values)
        if instruction not in self.places:
            self.places[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return self.places[instruction]

    def const(self, value: float) -> int:
        return self("const", float(value))

    def ending(self, place: int) -> Recipe:
        """The recipe up to its result, which stands last."""
        return tuple(self.instructions[: place + 1])


Write = Callable[..., int]
POINTWISE: dict[Any, Write] = {}
ALONG_ROWS: dict[Any, Write] = {}
COMPARISONS: set[Any] = set()


def _register(table: dict[Any, Write], *targets: Any) -> Callable[[Write], Write]:
    def add(function: Write) -> Write:
        table.update(dict.fromkeys(targets, function))
        return function

    return add


for _name, _targets in {
    "mul": (aten.mul.Tensor, aten.mul.Scalar),
    "maximum": (aten.maximum.default,),
    "minimum": (aten.minimum.default,),
    "neg": (aten.neg.default,),
    "abs": (aten.abs.default,),
    "exp": (aten.exp.default,),
    "log": (aten.log.default,),
    "log1p": (aten.log1p.default,),
    "erf": (aten.erf.default,),
    "tanh": (aten.tanh.default,),
    "sigmoid": (aten.sigmoid.default,),
    "sqrt": (aten.sqrt.default,),
    "rsqrt": (aten.rsqrt.default,),
    "div": (aten.div.Tensor, aten.div.Scalar),
}.items():
    POINTWISE.update(dict.fromkeys(_targets, lambda w, *values, name=_name: w(name, *values)))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    for _kind in ("Tensor", "Scalar"):
        _target = getattr(getattr(aten, _name), _kind)
        POINTWISE[_target] = lambda w, left, right, name=_name: w(name, left, right)
        COMPARISONS.add(_target)


@_register(POINTWISE, aten.add.Tensor, aten.add.Scalar)
def _add(w: Writer, left: int, right: int, *, alpha: float = 1) -> int:
    return w("add", left, right if alpha == 1 else w("mul", right, w.const(alpha)))


@_register(POINTWISE, aten.sub.Tensor, aten.sub.Scalar)
def _sub(w: Writer, left: int, right: int, *, alpha: float = 1) -> int:
    return w("sub", left, right if alpha == 1 else w("mul", right, w.const(alpha)))


@_register(POINTWISE, aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(w: Writer, left: int, right: int) -> int:
    return w("sub", right, left)


@_register(POINTWISE, aten.reciprocal.default)
def _reciprocal(w: Writer, x: int) -> int:
    return w("div", w.const(1.0), x)


@_register(POINTWISE, aten.square.default)
def _square(w: Writer, x: int) -> int:
    return w("mul", x, x)


@_register(POINTWISE, aten.relu.default)
def _relu(w: Writer, x: int) -> int:
    return w("maximum", x, w.const(0.0))


@_register(POINTWISE, aten.silu.default)
def _silu(w: Writer, x: int) -> int:
    return w("mul", x, w("sigmoid", x))


@_register(POINTWISE, aten.gelu.default)
def _gelu(w: Writer, x: int, *, approximate: str = "none") -> int:
    half = w("mul", x, w.const(0.5))
    if approximate == "tanh":
        cube = w("mul", w("mul", x, x), x)
        inner = w("mul", w("add", x, w("mul", cube, w.const(0.044715))), w.const(0.7978845608028654))
        return w("mul", half, w("add", w("tanh", inner), w.const(1.0)))
    return w("mul", half, w("add", w("erf", w("mul", x, w.const(0.7071067811865476))), w.const(1.0)))


@_register(POINTWISE, aten.clamp.default)
def _clamp(w: Writer, x: int, low: int | None = None, high: int | None = None) -> int:
    if low is not None:
        x = w("maximum", x, low)
    return x if high is None else w("minimum", x, high)


@_register(POINTWISE, aten.hardtanh.default)
def _hardtanh(w: Writer, x: int, low: int | None = None, high: int | None = None) -> int:
    return _clamp(w, x, w.const(-1.0) if low is None else low, w.const(1.0) if high is None else high)


@_register(POINTWISE, aten.relu6.default)
def _relu6(w: Writer, x: int) -> int:
    return _clamp(w, x, w.const(0.0), w.const(6.0))


@_register(POINTWISE, aten.clamp_min.default)
def _clamp_min(w: Writer, x: int, low: int) -> int:
    return w("maximum", x, low)


@_register(POINTWISE, aten.hardsigmoid.default)
def _hardsigmoid(w: Writer, x: int) -> int:
    shifted = w("add", x, w.const(3.0))
    return w("div", w("minimum", w("maximum", shifted, w.const(0.0)), w.const(6.0)), w.const(6.0))


@_register(POINTWISE, aten.hardswish.default)
def _hardswish(w: Writer, x: int) -> int:
    return w("mul", x, _hardsigmoid(w, x))


@_register(POINTWISE, aten.leaky_relu.default)
def _leaky_relu(w: Writer, x: int, slope: int | None = None) -> int:
    low = w("mul", x, w.const(0.01) if slope is None else slope)
    return w("select", w("gt", x, w.const(0.0)), x, low)


@_register(POINTWISE, aten.where.self)
def _where(w: Writer, condition: int, left: int, right: int) -> int:
    return w("select", condition, left, right)


@_register(POINTWISE, aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(w: Writer, x: int, mask: int, value: int) -> int:
    return w("select", mask, value, x)


@_register(POINTWISE, aten.pow.Tensor_Scalar)
def _pow(w: Writer, x: int, power: int) -> int:
    exponent = w.instructions[power][1]
    if exponent in (0.5, -0.5):
        return w("sqrt" if exponent > 0 else "rsqrt", x)
    value = x
    for _ in range(int(abs(exponent)) - 1):
        value = w("mul", value, x)
    return value if exponent > 0 else w("div", w.const(1.0), value)


POWERS = {-2, -1, -0.5, 0.5, 1, 2, 3, 4}


@_register(ALONG_ROWS, aten._softmax.default, aten.softmax.int)
def _softmax(w: Writer, x: int) -> int:
    weights = w("exp", w("sub", x, w("max", x)))
    return w("div", weights, w("sum", weights))


@_register(ALONG_ROWS, aten.layer_norm.default)
def _layer_norm(w: Writer, x: int, weight: int | None, bias: int | None, *, epsilon: float, count: int) -> int:
    share = w.const(1.0 / count)
    centerd = w("sub", x, w("mul", w("sum", x), share))
    variance = w("mul", w("sum", w("mul", centerd, centerd)), share)
    value = w("mul", centerd, w("rsqrt", w("add", variance, w.const(epsilon))))
    value = value if weight is None else w("mul", value, weight)
    return value if bias is None else w("add", value, bias)


@_register(ALONG_ROWS, aten.rms_norm.default)
def _rms_norm(w: Writer, x: int, weight: int | None, *, epsilon: float, count: int) -> int:
    mean = w("mul", w("sum", w("mul", x, x)), w.const(1.0 / count))
    value = w("mul", x, w("rsqrt", w("add", mean, w.const(epsilon))))
    return value if weight is None else w("mul", value, weight)


REDUCTION_TARGETS = {aten.mean.dim: "mean", aten.sum.dim_IntList: "sum", aten.amax.default: "max"}


def reduced(w: Writer, kind: str, x: int, count: int) -> int:
    """The mean, sum or maximum of a row."""
    if kind == "mean":
        return w("mul", w("sum", x), w.const(1.0 / count))
    return w(kind, x)


def is_pointwise(node: fx.Node) -> bool:
    """Whether a recipe covers an element-wise operator, with the arguments it has."""
    if node.target is aten._to_copy.default:
        return _dtype(node) == torch.float32 and _dtype(node.args[0]) == torch.bool
    if node.target not in POINTWISE:
        return False
    given = [value for value in node.args if isinstance(value, fx.Node)]
    if _dtype(node) != (torch.bool if node.target in COMPARISONS else torch.float32):
        return False
    if any(_dtype(value) not in (torch.float32, torch.bool) and _shape(value) for value in given):
        return False
    if node.target is aten.pow.Tensor_Scalar:
        return node.args[1] in POWERS
    if set(node.kwargs) - {"alpha", "approximate"}:
        return False
    plain = (fx.Node, int, float, bool, type(None))
    return all(isinstance(value, plain) for value in node.args)


def _dtype(node: Any) -> Any:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return getattr(value, "dtype", None)


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(getattr(node.meta.get("val"), "shape", ()))
