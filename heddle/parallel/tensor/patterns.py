"""Tensor parallelism of modules that somebody else wrote: products stay what they are, their weights become slices.

A split product reads all of its input and gives some of its outputs (column), or reads some of its input and gives all
outputs, summed over the ranks (row). What is between the two is the module's own code, with fewer heads or columns.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.errors import HeddleError
from heddle.models.own.build import build_on_meta, unwatched
from heddle.models.own.files import OwnBatch, OwnFile, read_file
from heddle.models.own.patterns import PatternRule, divided, is_conv1d, rules_of, split_dim
from heddle.parallel.collectives import gather, slice_of, sum_partial, to_all
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import place_of, set_place, split_parameter
from heddle.spec.own import OwnModel


@dataclass(frozen=True)
class TensorExchange:
    """What split products say to the other tensor ranks."""

    axis: Axis

    def to_all(self, x: Tensor) -> Tensor:
        """Every rank reads it for other outputs: gradients are summed."""
        return to_all(x, self.axis)

    def summed(self, x: Tensor) -> Tensor:
        """Every rank has a part of it."""
        return sum_partial(x, self.axis)

    def gathered(self, x: Tensor) -> Tensor:
        """Every rank has some columns of it, and goes on with all."""
        return _GatherColumns.apply(x, self.axis)


class ShapesOnly(TensorExchange):
    """The same without anybody to talk to: shapes are right, numbers are not."""

    def to_all(self, x: Tensor) -> Tensor:
        """It, again."""
        return x

    def summed(self, x: Tensor) -> Tensor:
        """It, again."""
        return x

    def gathered(self, x: Tensor) -> Tensor:
        """As many times as there are ranks."""
        return torch.cat([x] * self.axis.size, dim=-1)


class _GatherColumns(torch.autograd.Function):
    """All ranks go on alike with what is gathered, so each has all of its gradient, and takes its own columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return gather(x.movedim(-1, 0).contiguous(), axis).movedim(0, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return slice_of(gradient.movedim(-1, 0), ctx.axis).movedim(0, -1).contiguous(), None


def split_by_patterns(
    module: nn.Module,
    rules: dict[str, PatternRule],
    divide: tuple[str, ...] | None,
    axis: Axis,
    exchange: TensorExchange | None = None,
) -> None:
    """Make every parameter of a module this rank's slice, as its rule says; what two modules share stays shared."""
    say = exchange or TensorExchange(axis)
    for owner, name, value in divided(module, rules, divide):
        if value % axis.size:
            raise HeddleError(
                f"{type(owner).__name__}.{name} = {value} cannot be split over tensor = {axis.size}.",
                "Every tensor rank has an equal share.",
                f"Use a tensor degree that divides {value}.",
            )
        setattr(owner, name, value // axis.size)
    names = {parameter: name for name, parameter in module.named_parameters()}
    made: dict[nn.Parameter, nn.Parameter] = {}
    for path, owner in module.named_modules():
        own = [p for p in owner._parameters.values() if p is not None and p in names]
        found = {rules[names[p]] for p in own if names[p] in rules}
        for rule in found:
            forward = _forward_of(owner, rule, say, path)
            if forward is not None:
                owner.forward = types.MethodType(forward, owner)
        for name, parameter in list(owner._parameters.items()):
            if parameter is not None and parameter in names:
                if parameter not in made:
                    made[parameter] = _split(owner, names[parameter], parameter, rules, axis)
                owner._parameters[name] = made[parameter]


def _split(
    owner: nn.Module, name: str, parameter: nn.Parameter, rules: dict[str, PatternRule], axis: Axis
) -> nn.Parameter:
    rule = rules[name]
    if rule.role == "partial":
        set_place(parameter, replace(place_of(parameter), partial=frozenset({"tensor"})))
    dim = split_dim(owner, name, rule.role)
    if dim is None:
        return parameter
    if rule.role != "vocabulary" and parameter.shape[dim] % axis.size:
        raise HeddleError(
            f"{name} has {parameter.shape[dim]} {'inputs' if rule.role == 'row' else 'outputs'}, which tensor = "
            f"{axis.size} does not divide.",
            f"The pattern {rule} splits it.",
            "Use another tensor degree.",
        )
    return split_parameter(parameter, dim, axis.rank, axis.size)


def _forward_of(module: nn.Module, rule: PatternRule, say: TensorExchange, path: str) -> Callable[..., Tensor] | None:
    """What a split module computes; None: what it computed before."""
    transposed = is_conv1d(module)
    plain = transposed or type(module).forward is nn.Linear.forward
    if rule.role == "row":
        if not plain:
            raise _cannot(
                module, rule, path, "A row split sums what ranks made of their inputs, and this is no product."
            )
        return _row(say, transposed)
    if rule.role == "column":
        return _column(say, transposed) if plain else None  # what is no product is cut with its activations
    if rule.role == "vocabulary":
        if plain:
            return _head(say, transposed)
        if isinstance(module, nn.Embedding) and type(module).forward is nn.Embedding.forward and not module.max_norm:
            return _embedding(say)
        raise _cannot(
            module, rule, path, "A vocabulary is that of an nn.Embedding, or of an nn.Linear that ends a model."
        )
    return None


def _cannot(module: nn.Module, rule: PatternRule, path: str, why: str) -> HeddleError:
    return HeddleError(
        f"The pattern {rule} is wrong for {path}, which is a {type(module).__name__}.",
        why,
        "Put it under another key of plan: replicated, where every rank computes the same.",
    )


def _product(module: Any, x: Tensor, transposed: bool, bias: Tensor | None) -> Tensor:
    return F.linear(x, module.weight.t() if transposed else module.weight, bias)


def _column(say: TensorExchange, transposed: bool) -> Callable[..., Tensor]:
    def column(self: Any, x: Tensor) -> Tensor:
        return _product(self, say.to_all(x), transposed, self.bias)

    return column


def _row(say: TensorExchange, transposed: bool) -> Callable[..., Tensor]:
    def row(self: Any, x: Tensor) -> Tensor:
        y = say.summed(_product(self, x, transposed, None))
        return y if self.bias is None else y + self.bias

    return row


def _head(say: TensorExchange, transposed: bool) -> Callable[..., Tensor]:
    def head(self: Any, x: Tensor) -> Tensor:
        shape = place_of(self.weight).shape
        return say.gathered(_product(self, say.to_all(x), transposed, self.bias))[..., : shape[int(transposed)]]

    return head


def _embedding(say: TensorExchange) -> Callable[..., Tensor]:
    def embedding(self: Any, ids: Tensor) -> Tensor:
        rows, rank = len(self.weight), say.axis.rank
        local = ids - rank * rows
        elsewhere = (local < 0) | (local >= rows)
        pad = -1 if self.padding_idx is None else self.padding_idx - rank * rows
        padding = pad if 0 <= pad < rows else None
        x = F.embedding(local.masked_fill(elsewhere, 0), self.weight, padding)
        return say.summed(x.masked_fill(elsewhere.unsqueeze(-1), 0.0))

    return embedding


def check_split(spec: OwnModel, tensor: int) -> None:
    """Run the split module on tensors without values: a pattern that does not fit is named before training."""
    file = read_file(spec.module)
    module = build_on_meta(file, spec.small)
    rules = rules_of(file, module)
    axis = Axis(ranks=tuple(range(tensor)))
    split_by_patterns(module, rules, file.divide, axis, ShapesOnly(axis))
    called: list[str] = []
    for path, each in module.named_modules():
        if any(True for _ in each.parameters(recurse=False)):
            each.register_forward_pre_hook(lambda _module, _args, path=path: called.append(path))
    try:
        with unwatched(), torch.device("meta"), torch.no_grad():
            ids = torch.zeros(1, spec.sequence, dtype=torch.long)
            file.loss(module, OwnBatch(ids, torch.zeros_like(ids)))
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        if "meta tensors" in str(error):  # only what it tells of a loss is missing: the module was passed
            return
        raise _named(file, rules, called, tensor, error) from error


def _named(
    file: OwnFile, rules: dict[str, PatternRule], called: list[str], tensor: int, error: BaseException
) -> HeddleError:
    """Which pattern a shape that does not fit comes from: that of the module where it showed, and of the one before."""
    blamed: list[str] = []
    for path in reversed(called):
        mine = {rule for name, rule in rules.items() if name.rpartition(".")[0] == path}
        blamed += [f"{rule} for {path}" for rule in mine]
        if len(blamed) >= 2 or not mine:
            break
    first = blamed[0] if blamed else "one of the patterns"
    others = f" It reads what {blamed[1]} gave." if len(blamed) > 1 else ""
    around = {path for path in called if called[-1].startswith(f"{path}.")}  # with parameters beside their modules'
    own = {str(rule) for name, rule in rules.items() if name.rpartition(".")[0] in around}
    others += f" Beside it are parameters of {' and '.join(sorted(own))}." if own else ""
    return HeddleError(
        f"{file.path}: tensor = {tensor} does not fit: {str(error).splitlines()[0]}",
        f"It showed at the pattern {first}.{others}",
        "The first product of a pair is column, the second row; norms are replicated. Attributes that count heads are "
        "divided: name them in plan['divide'] if they are called otherwise.",
    )
