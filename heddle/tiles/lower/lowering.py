"""From a captured graph to operators that can be cut into tiles, in an order in which they can run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from heddle.capturing.program import Program
from heddle.tiles.graph import Operator
from heddle.tiles.kernels.recipe import IDENTITY
from heddle.tiles.kernels.target import Target
from heddle.tiles.lower.facts import Facts, kind_of
from heddle.tiles.lower.groups import FusedNodes, Looked, find_groups, reduces
from heddle.tiles.operators.fallback import FallbackOperator
from heddle.tiles.operators.rows import Lookup, RowsOperator
from heddle.tiles.operators.turn import TurnOperator, turned
from heddle.tiles.tiling import Tiling
from heddle.tiles.values import Buffer, View, constant, new

Weights = dict[Any, tuple[Tensor, Any]]  # packed ones with what they are packed from


class Lowering:
    """Operators as they are made, and where each node's value is."""

    def __init__(self, program: Program, target: Target, tiling: Tiling, weights: Weights, bits: int = 32) -> None:
        self.program, self.target, self.tiling = program, target, tiling
        self.bits = bits  # of weights that meet a few rows
        self.digits: dict[Any, View] = {}  # of rows that meet codes
        self.weights = weights  # packed ones, shared by all signatures of a module
        self.facts = Facts(program)
        self.kinds = {node: kind_of(self.facts, node) for node in self.facts.order}
        self.groups, self.inside = find_groups(self.facts, self.kinds)
        self.of_last = {group.last: group for group in self.groups}
        self.operators: list[Operator] = []
        self.views: dict[fx.Node, Any] = {}
        self.constants: dict[int, tuple[Tensor, View]] = {}
        self.destinations = self._destinations()
        self.outputs: dict[fx.Node, int] = {}  # the number of the output that a node is
        for number, node in enumerate(program.inputs):
            value = node.meta.get("val")
            if isinstance(value, Tensor):
                meta = torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")
                width = max(value.shape[-1] if value.dim() else 1, 1)
                self.views[node] = View(Buffer(value.numel(), value.dtype, width, "input", number), meta)

    def name(self, node: fx.Node) -> str:
        return self.program.where(node)

    def meta(self, node: fx.Node) -> Tensor:
        """Shape and type of a node's value, contiguous."""
        value = node.meta["val"]
        return torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")

    # Values

    def view(self, value: Any) -> View:
        """Where a value is; views are made when they are first asked for."""
        if isinstance(value, Tensor):
            return self.constant(value)
        node = self.facts.resolve(value)
        if node in self.facts.known:
            return self.constant(self.facts.known[node])
        if node not in self.views:
            assert self.kinds[node] in ("view", "part"), (node, self.kinds[node])
            self.views[node] = self._made_view(node)
        return self.views[node]

    def constant(self, tensor: Tensor) -> View:
        """A constant's view, kept once."""
        if id(tensor) not in self.constants:
            self.constants[id(tensor)] = (tensor, constant(tensor))  # the tensor is kept, so that its id stays its own
        return self.constants[id(tensor)][1]

    def _made_view(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            return self.view(node.args[0])[node.args[1]]  # type: ignore[index]
        source = self.view(node.args[0])

        def apply(meta: Tensor) -> Any:
            return node.target(meta, *node.args[1:], **node.kwargs)  # type: ignore[operator]

        return source.then(apply) or self.copy(self.name(node), source).then(apply)

    def allocate(self, node: fx.Node, like: Tensor) -> View:
        """Memory for a node's value in the order of `like`: an output's own, where that order is what it must have."""
        if node in self.destinations:
            cat, dim, begin, size = self.destinations[node]
            return self._cat_buffer(cat).then(lambda meta: meta.narrow(dim, begin, size))
        view = new(like.shape, like=like)
        wanted = node.meta["val"]
        if node in self.facts.returned and node not in self.outputs and _same_order(view.meta, wanted):
            self.outputs[node] = len(self.outputs)
            view.buffer.place, view.buffer.number = "output", self.outputs[node]
        return view

    def copy(self, name: str, source: View, like: Tensor | None = None) -> View:
        """The same numbers elsewhere, contiguous or in another order."""
        if source.dtype == torch.float32:
            target = new(source.shape, like=like)
            self.move(name, source, target)
            return target
        target = new(source.shape, dtype=source.dtype)
        self.operators.append(self.fallback(name, "aten.clone.default", lambda given: given, [source], [target]))
        return target

    def move(self, name: str, source: View, target: View) -> None:
        """The same numbers, in another order of memory or not."""
        pair = turned(source, target)
        if pair is not None:
            self.operators.append(TurnOperator(name, self.target, self.tiling, *pair))
        else:
            self.operators.append(RowsOperator(name, self.tiling, source.shape, IDENTITY, [source], target))

    def fallback(
        self, name: str, operator_: str, function: Callable[[Sequence[Tensor]], Sequence[Tensor]],
        inputs: list[View], outputs: list[View],
    ) -> FallbackOperator:  # fmt: skip
        number = sum(isinstance(each, FallbackOperator) for each in self.operators)
        return FallbackOperator(name, operator_, function, inputs, outputs, number=number)

    # Concatenation: pieces that only it reads are computed in place

    def _destinations(self) -> dict[fx.Node, tuple[fx.Node, int, int, int]]:
        found = {}
        for node in self.facts.order:
            if self.kinds[node] != "cat":
                continue
            pieces, dim = self._pieces(node)
            begin = 0
            for piece in pieces:
                size = piece.meta["val"].shape[dim] if isinstance(piece, fx.Node) else piece.shape[dim]
                alone = isinstance(piece, fx.Node) and self.facts.only_user(piece) is node and pieces.count(piece) == 1
                images = self._joins_images(node) and self.kinds.get(piece) in ("convolution", "pooling", "upsampling")
                if alone and (piece in self.of_last or images):
                    found[piece] = (node, dim, begin, size)
                begin += size
        return found

    def _pieces(self, node: fx.Node) -> tuple[list[Any], int]:
        pieces = [self.facts.argument(each) for each in node.args[0]]  # type: ignore[union-attr]
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        return pieces, dim % node.meta["val"].dim()

    def _joins_images(self, node: fx.Node) -> bool:
        """Channels behind each other, in a network that convolves: they stay next to each other in memory."""
        return node.meta["val"].dim() == 4 and self._pieces(node)[1] == 1 and "convolution" in self.kinds.values()

    def _cat_buffer(self, node: fx.Node) -> View:
        if node not in self.views:
            like = self.meta(node)
            if self._joins_images(node):
                like = like.to(memory_format=torch.channels_last)
            self.views[node] = self.allocate(node, like)
        return self.views[node]

    def cat(self, node: fx.Node) -> None:
        whole = self._cat_buffer(node)
        pieces, dim = self._pieces(node)
        begin = 0
        for piece in pieces:
            size = (piece.meta["val"] if isinstance(piece, fx.Node) else piece).shape[dim]
            if piece not in self.destinations and size:
                target = View(whole.buffer, whole.meta.narrow(dim, begin, size))
                source = self.view(piece)
                self.move(self.name(node), source, target)
            begin += size

    # Groups

    def group(self, group: FusedNodes) -> None:
        """Element-wise work and what goes along rows, as one operator."""
        recipe, operands = group.recipe(self.facts)
        given = [self._operand(each) for each in operands]
        rows = reduces(recipe) or any(isinstance(each, Lookup) for each in given)
        like = self.meta(group.last)
        if not rows:
            shaped = [each.meta for each in given if isinstance(each, View) and each.shape == group.shape]
            like = max((torch.empty_like(each, dtype=torch.float32) for each in shaped), key=_size, default=like)
        output = self.allocate(group.last, like)
        self.views[group.last] = output
        if output.meta.dim() < len(group.shape):
            output = output.then(lambda meta: meta.unsqueeze(-1))
        if not group.shape:
            output = output.then(lambda meta: meta.reshape(1))
        shape = group.shape or (1,)
        self.operators.append(RowsOperator(self.name(group.last), self.tiling, shape, recipe, given, output))

    def _operand(self, value: Any) -> View | Lookup:
        if not isinstance(value, Looked):
            return self.view(value)
        table, index = value.node.args[:2]
        return Lookup(self.view(table), self.view(index))

    # What only PyTorch does

    def torch_operator(self, node: fx.Node) -> None:
        inputs = [self.facts.resolve(each) for each in node.all_input_nodes]
        needed = [each for each in dict.fromkeys(inputs) if each not in self.facts.known]
        known = {each: self.facts.known[self.facts.resolve(each)] for each in node.all_input_nodes
                 if self.facts.resolve(each) in self.facts.known}  # fmt: skip

        def function(given: Sequence[Tensor]) -> Sequence[Tensor]:
            values = dict(zip(needed, given, strict=True))

            def value(each: fx.Node) -> Any:
                return known[each] if each in known else values[self.facts.resolve(each)]

            arguments = fx.node.map_arg((node.args, node.kwargs), value)
            made = node.target(*arguments[0], **arguments[1])  # type: ignore[operator]
            return [made] if isinstance(made, Tensor) else [each for each in made if isinstance(each, Tensor)]

        value = node.meta["val"]
        several = not isinstance(value, Tensor)
        outputs = [
            new(each.shape, dtype=each.dtype) for each in (value if several else [value]) if isinstance(each, Tensor)
        ]
        views = [self.view(each) for each in needed]
        self.views[node] = outputs if several else outputs[0]
        self.operators.append(self.fallback(self.name(node), str(node.target), function, views, outputs))


def _same_order(mine: Tensor, wanted: Tensor) -> bool:
    """Whether two tensors lie in memory alike; dims of one number say nothing."""
    pairs = zip(mine.shape, mine.stride(), wanted.stride(), strict=True)
    return mine.dtype == wanted.dtype and all(size == 1 or a == b for size, a, b in pairs)


def _size(tensor: Tensor) -> int:
    return tensor.numel()
