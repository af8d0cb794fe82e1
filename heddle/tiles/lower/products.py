"""Products and convolutions, with the group behind them as their epilogue where its operands allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from heddle.tiles.kernels.recipe import IDENTITY, Recipe, references
from heddle.tiles.lower.facts import named
from heddle.tiles.lower.groups import Group, Looked, reduces
from heddle.tiles.lower.lowering import Lowering
from heddle.tiles.operators.product import ProductOperator, packed, packed_constant
from heddle.tiles.operators.windows import Taps, Window, WindowsOperator
from heddle.tiles.values import View

aten = torch.ops.aten


@dataclass
class Epilogue:
    """What is done with the sums, and where the result goes, all as matrices of rows × columns."""

    output: View
    recipe: Recipe = IDENTITY
    operands: list[View] = field(default_factory=list)


def attach(lower: Lowering, group: Group) -> tuple[fx.Node, list[fx.Node]] | None:
    """The product that a group may be the epilogue of, and the views between the two."""
    recipe, operands = group.recipe(lower.facts)
    if reduces(recipe) or group.shape != tuple(group.last.meta["val"].shape):
        return None
    found = []
    for each in operands:
        if isinstance(each, Looked | Tensor):
            continue
        chain: list[fx.Node] = []
        node = each
        while lower.kinds.get(node) == "view" and _alone(lower, node, chain, group):
            chain.append(node)
            node = lower.facts.resolve(node.args[0])
        ours = lower.kinds.get(node) in ("product", "convolution") and _alone(lower, node, chain, group)
        if ours and node.meta["val"].numel() == group.last.meta["val"].numel():
            found.append((node, chain[::-1]))
    return max(found, key=lambda pair: lower.facts.place[pair[0]], default=None)


def _alone(lower: Lowering, node: fx.Node, chain: list[fx.Node], group: Group) -> bool:
    """Whether nobody but the group reads a node, by way of the chain."""
    allowed = [chain[-1]] if chain else group.nodes
    return node not in lower.facts.returned and all(user in allowed for user in lower.facts.users[node])


def finish(
    lower: Lowering,
    node: fx.Node,
    natural: Tensor,
    rows: int,
    columns: int,
    bias: View | None,
    batch: Sequence[int],
    group: Group | None,
    chain: list[fx.Node],
) -> Epilogue | None:
    """How the sums become the value of a product, or of the group behind it; None where the group cannot follow."""
    first = chain[-1] if chain else node
    meta = natural
    for each in chain:
        meta = each.target(meta, *each.args[1:], **each.kwargs)  # type: ignore[operator]
    if meta.untyped_storage()._cdata != natural.untyped_storage()._cdata:
        return None
    shape, strides = tuple(meta.shape), meta.stride()
    order = sorted(range(meta.dim()), key=lambda dim: (-strides[dim], shape[dim] != 1))
    wanted = (*batch, rows, columns)

    def matrix(view: View) -> View | None:
        try:
            return view.then(lambda each: each.expand(shape).permute(order).view(wanted))
        except RuntimeError:
            return None

    operands, recipe = [], IDENTITY
    if bias is not None:
        operands.append(bias.then(lambda each: each.expand(wanted)))
        recipe = (("load", 0), ("load", 1), ("add", 0, 1))
    last = node
    if group is not None:
        if tuple(group.shape) != shape:
            return None
        after, values = group.recipe(lower.facts, first)
        given = [lower._operand(each) for each in values[1:]]
        views = [matrix(each) if isinstance(each, View) and each.dtype == torch.float32 else None for each in given]
        if any(each is None for each in views):
            return None
        recipe = _joined(recipe, after, len(operands))
        operands += [each for each in views if each is not None]
        last = group.last
    result = lower.allocate(last, meta)
    output = matrix(result)
    if output is None or output.strides[-1] != 1:
        return None
    lower.views[last] = result
    return Epilogue(output, recipe, operands)


def _joined(before: Recipe, after: Recipe, shift: int) -> Recipe:
    """One recipe behind another: the second's operand 0 is the first's result."""
    found, place = list(before), {}
    for number, instruction in enumerate(after):
        if instruction == ("load", 0):
            place[number] = len(before) - 1
            continue
        name, *rest = instruction
        values = [place[each] for each in rest] if references(instruction) else rest
        if name == "load":
            values = [rest[0] + shift]
        place[number] = len(found)
        found.append((name, *values))
    return tuple(found[: place[len(after) - 1] + 1])


def product(lower: Lowering, node: fx.Node, group: Group | None = None, chain: list[fx.Node] | None = None) -> bool:
    """linear, addmm, mm, bmm and matmul. Gives whether it is done: with a group it may have to be without."""
    left, right, bias = _sides(lower, node)
    shape = tuple(node.meta["val"].shape)
    columns = shape[-1]
    if isinstance(right, Tensor):
        batch: tuple[int, ...] = ()
        rows = node.meta["val"].numel() // columns
    else:
        batch, rows = shape[:-2], shape[-2]
    depth = lower.facts.argument(left).shape[-1] if isinstance(left, Tensor) else left.meta["val"].shape[-1]
    vectors = lower.target.panel_vectors(columns, depth)
    epilogue = finish(lower, node, lower.meta(node), rows, columns, bias, batch, group, chain or [])
    if epilogue is None:
        return False
    name = lower.name(group.last if group else node)
    if isinstance(right, Tensor):
        matrix = _left(lower, name, lower.view(left), (rows, depth))
        weight = _packed_once(lower, right, vectors)
        shared: tuple[int, ...] = ()
    else:
        wide = lower.view(left).then(lambda each: each.expand(*batch, rows, depth))
        matrix = wide if wide.strides[-1] == 1 else lower.copy(name, wide)
        other = lower.view(right[0])
        if right[1]:
            other = other.then(lambda each: each.transpose(-1, -2))
        pack = packed(f"{name}.right", lower.target, other, vectors)
        lower.operators.append(pack)
        weight, shared = pack.output, _shared(other.shape[:-2], batch)
    lower.operators.append(
        ProductOperator(
            name,
            lower.target,
            lower.tiling,
            matrix,
            weight,
            epilogue.output,
            depth,
            vectors,
            epilogue.recipe,
            epilogue.operands,
            shared=shared,
        )
    )
    return True


def _sides(lower: Lowering, node: fx.Node) -> tuple[Any, Any, View | None]:
    """Left side; right side as a known matrix of depth × columns, or as (node, whether it is turned); bias."""
    facts = lower.facts
    given = [facts.argument(each) for each in node.args]
    if node.target is aten.addmm.default:
        bias, left, right = given[:3]
        turned = False
    else:
        left, right, *rest = given
        bias, turned = (rest[0] if rest else None), node.target is aten.linear.default
    added = None if bias is None else lower.view(bias)
    if isinstance(right, Tensor) and right.dim() == 2:
        return left, (right.t() if turned else right), added
    return left, (right, turned), added


def _packed_once(lower: Lowering, weight: Tensor, vectors: int) -> View:
    key = (weight.data_ptr(), tuple(weight.shape), weight.stride(), vectors)
    if key not in lower.weights:
        lower.weights[key] = (weight, packed_constant(weight, vectors, lower.target.lanes))
    return lower.weights[key][1]


def _left(lower: Lowering, name: str, view: View, shape: tuple[int, int]) -> View:
    matrix = view.as_matrix(*shape)
    if matrix is None or matrix.strides[-1] != 1:
        matrix = lower.copy(name, view).as_matrix(*shape)
    assert matrix is not None
    return matrix


def _shared(sizes: Sequence[int], batch: Sequence[int]) -> tuple[int, ...]:
    """How far the packed right side moves with each dim of the batch: not at all where it is broadcast."""
    steps: list[int] = []
    step = 1
    padded = [1] * (len(batch) - len(sizes)) + list(sizes)
    for size in reversed(padded):
        steps.insert(0, 0 if size == 1 else step)
        step *= size
    return tuple(steps)


def covers(lower: Lowering, node: fx.Node) -> bool:
    """Whether a product is one of ours."""
    tensors = list(node.all_input_nodes)
    if any(each.meta["val"].dtype != torch.float32 for each in tensors if "val" in each.meta):
        return False
    if node.kwargs or any(each.meta["val"].dim() < 2 for each in tensors[-2:] if node.target is aten.matmul.default):
        return False
    if node.target is aten.addmm.default:
        return node.args[0].meta["val"].dim() <= 2  # type: ignore[union-attr]
    if node.target is aten.linear.default and not isinstance(lower.facts.argument(node.args[1]), Tensor):
        return len(node.args) < 3 and node.args[0].meta["val"].dim() == 2  # type: ignore[union-attr]
    return node.args[0].meta["val"].dim() >= 2  # type: ignore[union-attr]


def convolution(lower: Lowering, node: fx.Node, group: Group | None = None, chain: list[fx.Node] | None = None) -> bool:
    """conv2d: a product over windows; one channel at a time where each has its own weights."""
    geometry = conv_geometry(lower, node)
    assert geometry is not None
    source, weight, bias, window, depthwise = geometry
    value = node.meta["val"]
    count, channels, height, width = value.shape
    natural = torch.empty(tuple(value.shape), device="meta").to(memory_format=torch.channels_last)
    rows = count * height * width
    added = None if bias is None else lower.view(bias)
    epilogue = finish(lower, node, natural, rows, channels, added, (), group, chain or [])
    if epilogue is None:
        return False
    name = lower.name(group.last if group else node)
    image = channels_last(lower, name, lower.view(source))
    if depthwise:
        taps = Taps.of(image, window, height, width, 0.0)
        weights = lower.constant(weight.reshape(channels, -1).t().contiguous())
        lower.operators.append(
            WindowsOperator(name, lower.tiling, "depthwise", image, taps, weights, epilogue.output, epilogue.recipe,
                            epilogue.operands)
        )  # fmt: skip
        return True
    depth = image.shape[1]
    vectors = lower.target.panel_vectors(channels, depth * weight[0, 0].numel())
    plain = window == Window((1, 1), (1, 1), (0, 0), (1, 1))
    matrix = image.then(lambda each: each.permute(0, 2, 3, 1)).reshaped((rows, depth)) if plain else None
    original = lower.facts.argument(node.args[1])
    key = (original.data_ptr(), tuple(weight.shape), vectors, node.name)
    if key not in lower.weights:
        flat = weight.permute(2, 3, 1, 0).reshape(-1, channels)
        lower.weights[key] = (original, packed_constant(flat, vectors, lower.target.lanes))
    table = None if matrix is not None else Taps.of(image, window, height, width, 0.0)
    lower.operators.append(
        ProductOperator(
            name,
            lower.target,
            lower.tiling,
            matrix or image,
            lower.weights[key][1],
            epilogue.output,
            depth,
            vectors,
            epilogue.recipe,
            epilogue.operands,
            table,
        )
    )
    return True


def conv_geometry(lower: Lowering, node: fx.Node) -> tuple[Any, Tensor, Tensor | None, Window, bool] | None:
    """Image, weights, bias and window of a convolution that is one of ours; None otherwise."""
    given = named(node, "input", "weight", "bias", "stride", "padding", "dilation", "groups")
    source, weight = lower.facts.resolve(node.args[0]), lower.facts.argument(node.args[1])  # type: ignore[arg-type]
    bias = lower.facts.argument(given.get("bias"))
    if not isinstance(weight, Tensor) or isinstance(bias, fx.Node) or node.meta["val"].dim() != 4:
        return None
    groups = given.get("groups", 1)
    channels = source.meta["val"].shape[1]
    depthwise = groups > 1 and groups == channels == weight.shape[0]
    if groups != 1 and not depthwise:
        return None
    if node in lower.facts.scaled:
        scale, shift = lower.facts.scaled[node]
        weight = weight * scale.reshape(-1, 1, 1, 1)
        bias = shift if bias is None else bias * scale + shift
    stride, padding, dilation = (
        tuple(given.get(key, default))
        for key, default in (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)))
    )
    two = [each * 2 if len(each) == 1 else each for each in (stride, padding, dilation)]
    added = padded(lower, source)
    if added is not None:
        source, top, left = added
        two[1] = (two[1][0] + top, two[1][1] + left)
    return source, weight, bias, Window(tuple(weight.shape[2:]), *two), depthwise  # type: ignore[arg-type]


def padded(lower: Lowering, node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """What a padding with zeros pads, and by how much above and to the left, where only convolutions read it."""
    if getattr(node, "target", None) not in (aten.pad.default, aten.constant_pad_nd.default):
        return None
    sides = list(node.args[1]) + [0] * (4 - len(node.args[1]))  # type: ignore[arg-type]
    plain = node.target is aten.constant_pad_nd.default or len(node.args) < 3 or node.args[2] == "constant"
    value = node.args[-1] if isinstance(node.args[-1], int | float) else node.kwargs.get("value") or 0
    readers = lower.facts.users.get(node, [])
    if not plain or value or len(sides) != 4 or min(sides) < 0 or node in lower.facts.returned:
        return None
    if any(lower.kinds.get(each) != "convolution" for each in readers):
        return None
    return lower.facts.resolve(node.args[0]), sides[2], sides[0]  # type: ignore[arg-type]


def channels_last(lower: Lowering, name: str, image: View) -> View:
    """An image with channels next to each other, copied where they are not."""
    if image.strides[1] == 1 or image.shape[1] == 1:
        return image
    like = torch.empty(image.shape, device="meta").to(memory_format=torch.channels_last)
    return lower.copy(f"{name}.image", image, like)
