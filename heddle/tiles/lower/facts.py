"""What is known about a captured graph before anything is cut: constants, identities, and who reads what."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from heddle.capturing.program import Program, is_random, is_view, tensors_of
from heddle.tiles.lower.pointwise import ALONG_ROWS, COMPARISONS, REDUCTION_TARGETS, is_pointwise

aten = torch.ops.aten
SAME = {
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.contiguous.default,
    aten.lift_fresh_copy.default,
}
NORMS = {aten.layer_norm.default, aten.rms_norm.default}
PRODUCTS = {aten.linear.default, aten.addmm.default, aten.mm.default, aten.bmm.default, aten.matmul.default}
POOLS = {aten.max_pool2d.default, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default}
RECURRENT = {  # they draw only with dropout between their layers
    getattr(kind, given) for kind in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu) for given in ("input", "data")
}
BATCH_NORM = aten._native_batch_norm_legit_no_training.default


class Facts:
    """Names follow `resolve`, which looks through what changes nothing."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: dict[fx.Node, Any] = {}  # values that never change
        self.same: dict[fx.Node, fx.Node] = {}
        self.scaled: dict[fx.Node, tuple[Tensor, Tensor]] = {}  # convolutions that take over a batch norm
        self.affine: dict[fx.Node, tuple[Tensor, Tensor]] = {}  # batch norms that follow something else
        for node in program.exported.graph.nodes:
            if node.name in program.state:
                self.known[node] = program.tensor(program.state[node.name]).detach()
        with torch.no_grad():
            for node in program.calls:
                self._note(node)
        self.order = [node for node in program.calls if node not in self.known and node not in self.same]
        self.place = {node: number for number, node in enumerate(self.order)}
        self.users: dict[fx.Node, list[fx.Node]] = {}
        for node in self.order:
            for each in dict.fromkeys(map(self.resolve, node.all_input_nodes)):
                self.users.setdefault(each, []).append(node)
        self.outputs = [self.resolve(value) if isinstance(value, fx.Node) else value for value in program.outputs]
        self.returned = {value for value in self.outputs if isinstance(value, fx.Node)}

    def resolve(self, node: fx.Node) -> fx.Node:
        while node in self.same:
            node = self.same[node]
        return node

    def argument(self, value: Any) -> Any:
        """An argument with the values of nodes that are known."""
        if isinstance(value, fx.Node):
            value = self.resolve(value)
            return self.known.get(value, value)
        return value

    def only_user(self, node: fx.Node) -> fx.Node | None:
        """The one node that reads another, which is no output."""
        users = self.users.get(node, [])
        return users[0] if len(users) == 1 and node not in self.returned else None

    def _note(self, node: fx.Node) -> None:
        sources = [self.resolve(each) for each in node.all_input_nodes]
        if (all(each in self.known for each in sources) and not is_random(node)) or self._is_known_part(node, sources):
            given = {each: self.known[self.resolve(each)] for each in node.all_input_nodes}
            self.known[node] = _evaluate(node, given)
            return
        first = node.args[0] if node.args else None
        if node.target in SAME or self._same_dtype(node) or _rests(node):
            self.same[node] = first  # type: ignore[assignment]
        elif node.target is operator.getitem and isinstance(first, fx.Node) and first.target is BATCH_NORM:
            self._batch_norm(node, first)

    def _is_known_part(self, node: fx.Node, sources: list[fx.Node]) -> bool:
        return node.target is operator.getitem and sources[0] in self.known

    def _same_dtype(self, node: fx.Node) -> bool:
        if node.target not in (aten._to_copy.default, aten.type_as.default):
            return False
        return bool(node.meta["val"].dtype == node.args[0].meta["val"].dtype)  # type: ignore[union-attr]

    def _batch_norm(self, part: fx.Node, norm: fx.Node) -> None:
        """A norm with fixed statistics scales the weights of a convolution that it is right behind, else numbers."""
        image, weight, bias, mean, variance, _, epsilon = (self.argument(each) for each in norm.args)
        if part.args[1] != 0 or not all(isinstance(each, Tensor) for each in (mean, variance)):
            return
        scale = torch.rsqrt(variance.double() + epsilon)
        scale = scale if weight is None else scale * weight.double()
        shift = -mean.double() * scale
        shift = shift if bias is None else shift + bias.double()
        self.same[norm] = image
        fits = (
            isinstance(image, fx.Node)
            and image.target in (aten.conv1d.default, aten.conv2d.default)
            and image not in self.scaled
            and len({self.resolve(each) for each in image.users}) == 1
            and isinstance(self.argument(image.args[1]), Tensor)
        )
        if fits:
            self.scaled[image] = (scale.float(), shift.float())
            self.same[part] = image
        else:
            wide = (-1, *[1] * (norm.args[0].meta["val"].dim() - 2))  # type: ignore[union-attr]
            self.affine[part] = (scale.float().reshape(wide), shift.float().reshape(wide))


def _evaluate(node: fx.Node, given: dict[fx.Node, Any]) -> Any:
    arguments = fx.node.map_arg((node.args, node.kwargs), lambda each: given[each])
    return node.target(*arguments[0], **arguments[1])  # type: ignore[operator]


def named(node: fx.Node, *names: str) -> dict[str, Any]:
    """The arguments of a call by their names, those that were given."""
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def draws(node: fx.Node) -> bool:
    """Whether a call draws random numbers: dropout that is switched off does not."""
    if not is_random(node) or node.target is operator.getitem:
        return False
    if node.target is aten.scaled_dot_product_attention.default:
        return bool(node.kwargs.get("dropout_p") or (len(node.args) > 4 and node.args[4]))
    if node.target in RECURRENT:
        given = named(node, *(each.name for each in node.target._schema.arguments))  # type: ignore[union-attr]
        return bool(given.get("dropout") and given.get("train"))
    return not _rests(node)


def _rests(node: fx.Node) -> bool:
    """A dropout that drops nothing."""
    return node.target is aten.dropout.default and not (node.args[1] and node.args[2])


def kind_of(facts: Facts, node: fx.Node) -> str:
    """What a node is to us; "torch" for what only PyTorch can do."""
    values = list(tensors_of(node.meta.get("val")))
    if not values or any(value.numel() == 0 for value in values):
        return "part" if node.target is operator.getitem else "torch"
    if node in facts.affine:
        return "pointwise" if values[0].dtype == torch.float32 else "torch"
    if node.target is operator.getitem:
        return "part"
    if node.target is not aten.clone.default and is_view(node):
        return "view"
    floats = all(value.dtype == torch.float32 for value in values)
    if node.target in COMPARISONS and is_pointwise(node):
        return "comparison"
    if is_pointwise(node):
        return "pointwise"
    if not floats:
        return "torch"
    if node.target in ALONG_ROWS or node.target in REDUCTION_TARGETS:
        return "row" if _along_last(node) else "mean" if _over_image(node) else "torch"
    if node.target is aten.embedding.default:
        weight, index = facts.argument(node.args[0]), node.args[1]
        wide = isinstance(weight, Tensor) and index.meta["val"].dtype == torch.int64  # type: ignore[union-attr]
        return "lookup" if wide else "torch"
    if node.target in PRODUCTS:
        return "product"
    simple: dict[Any, str] = {
        aten.conv2d.default: "convolution",
        aten.conv1d.default: "convolution",
        aten.conv2d.padding: "convolution",
        aten.conv1d.padding: "convolution",
        aten.scaled_dot_product_attention.default: "attention",
        aten.cat.default: "cat",
        aten.upsample_nearest2d.vec: "upsampling",
        aten.upsample_bilinear2d.vec: "upsampling",
    }
    return "pooling" if node.target in POOLS else simple.get(node.target, "torch")


def _along_last(node: fx.Node) -> bool:
    first = node.args[0]
    if not isinstance(first, fx.Node) or first.meta["val"].dtype != torch.float32:
        return False
    rank = first.meta["val"].dim()
    if node.target in NORMS:
        return len(node.args[1]) == 1  # type: ignore[arg-type]
    dims = node.args[1] if len(node.args) > 1 else None
    if isinstance(dims, int):
        dims = [dims]
    return isinstance(dims, list | tuple) and [dim % rank for dim in dims] == [rank - 1] and "dtype" not in node.kwargs


def _over_image(node: fx.Node) -> bool:
    """A mean over height and width, as before a classifier."""
    if node.target is not aten.mean.dim or node.args[0].meta["val"].dim() != 4:  # type: ignore[union-attr]
        return False
    return sorted(dim % 4 for dim in node.args[1]) == [2, 3]  # type: ignore[operator,union-attr]
