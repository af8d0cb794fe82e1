"""scaled_dot_product_attention: what its mask says, and keys and values that several heads share."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from heddle.tiles.lower.facts import named
from heddle.tiles.lower.lowering import Lowering
from heddle.tiles.operators.attention import attention as operators
from heddle.tiles.operators.one_query import OneQueryOperator
from heddle.tiles.values import View

aten = torch.ops.aten
NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def covers(node: fx.Node) -> bool:
    """Whether an attention is one of ours."""
    given = named(node, *NAMES)
    sides = [given[name].meta["val"] for name in NAMES[:3]]
    mask = given.get("attn_mask")
    plain = mask is None or mask.meta["val"].dtype in (torch.float32, torch.bool)
    return all(each.dim() == 4 for each in sides) and not given.get("dropout_p") and plain


def attention(lower: Lowering, node: fx.Node) -> None:
    """Lower an attention."""
    given = named(node, *NAMES)
    name = lower.name(node)
    queries = lower.view(given["query"])
    if queries.strides[-1] != 1:
        queries = lower.copy(name, queries)
    if joined(lower, node):
        _one_query(lower, node, name, queries, given)
        return
    keys, values = (lower.view(_before_repeat(lower, given[side])) for side in ("key", "value"))
    if keys.shape[1] != values.shape[1]:
        keys, values = lower.view(given["key"]), lower.view(given["value"])
    batch, heads, count, _ = queries.shape
    causal, mask = bool(given.get("is_causal")), None
    if given.get("attn_mask") is not None:
        causal, mask = _mask(lower, name, given["attn_mask"], (batch, heads, count, keys.shape[2]), causal)
    like = torch.empty((batch, count, heads, values.shape[-1]), device="meta").transpose(1, 2)
    output = lower.allocate(node, like)
    scale = given.get("scale")
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else float(scale)
    lower.views[node] = output
    lower.operators += operators(name, lower.target, lower.tiling, queries, keys, values, output, scale, causal, mask)


def joined(lower: Lowering, node: fx.Node) -> list[fx.Node]:
    """Keys and values of a single query that were kept with new ones behind, which then need not be put together."""
    given = named(node, *NAMES)
    query, mask = given["query"].meta["val"], given.get("attn_mask")
    pairs = [_kept_and_new(lower, given[side], node) for side in ("key", "value")]
    if query.shape[2] != 1 or given.get("is_causal") or None in pairs:
        return []
    (kept, new), other = ([each.meta["val"].shape for each in pair] for pair in pairs if pair is not None)
    lanes = lower.target.lanes
    fits = kept[2] % lanes == 0 and 0 < new[2] <= lanes and query.shape[1] % kept[1] == 0
    if not fits or any(left[:3] != right[:3] for left, right in zip((kept, new), other, strict=True)):
        return []
    if mask is not None:
        value, known = mask.meta["val"], lower.facts.resolve(mask) in lower.facts.known
        if known or value.dtype != torch.float32 or value.shape[-1] != kept[2] + new[2]:
            return []
    return [lower.facts.resolve(given[side]) for side in ("key", "value")]


def _kept_and_new(lower: Lowering, value: Any, reader: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """The two pieces of keys or values that one attention alone reads."""
    node = lower.facts.resolve(value)
    if node in lower.facts.known or node.target is not aten.cat.default or lower.facts.only_user(node) is not reader:
        return None
    pieces, dim = lower._pieces(node)
    return (pieces[0], pieces[1]) if dim == 2 and len(pieces) == 2 and all(map(_is_node, pieces)) else None


def _is_node(value: Any) -> bool:
    return isinstance(value, fx.Node)


def _one_query(lower: Lowering, node: fx.Node, name: str, queries: View, given: dict[str, Any]) -> None:
    def pieces(side: str) -> tuple[View, View]:
        pair = _kept_and_new(lower, given[side], node)
        assert pair is not None
        kept, new = map(lower.view, pair)
        return _rows(lower, name, kept), _rows(lower, name, new)

    keys, values = pieces("key"), pieces("value")
    batch, heads, count, _ = queries.shape
    mask = None
    if given.get("attn_mask") is not None:
        shape = (batch, heads, count, keys[0].shape[2] + keys[1].shape[2])
        mask = _rows(lower, name, lower.view(given["attn_mask"])).then(lambda meta: meta.expand(shape))
    output = lower.allocate(
        node, torch.empty((batch, count, heads, values[0].shape[-1]), device="meta").transpose(1, 2)
    )
    scale = given.get("scale")
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else float(scale)
    lower.views[node] = output
    lower.operators.append(OneQueryOperator(name, lower.target, queries, keys, values, output, scale, mask))


def _rows(lower: Lowering, name: str, view: View) -> View:
    """What has its numbers next to each other."""
    return view if view.strides[-1] == 1 else lower.copy(name, view)


def _before_repeat(lower: Lowering, value: Any) -> Any:
    """Keys or values before they were repeated for the heads that share them."""
    node = lower.facts.argument(value)
    if not isinstance(node, fx.Node) or node.target is not aten.reshape.default:
        return value
    wide = lower.facts.resolve(node.args[0])  # type: ignore[arg-type]
    if wide.target is not aten.expand.default or wide.meta["val"].dim() != 5:
        return value
    single = lower.facts.resolve(wide.args[0])  # type: ignore[arg-type]
    if single.target is not aten.unsqueeze.default or single.args[1] != 2:
        return value
    batch, heads, times, count, size = wide.meta["val"].shape
    same = tuple(node.meta["val"].shape) == (batch, heads * times, count, size)
    source = lower.facts.resolve(single.args[0])  # type: ignore[arg-type]
    return source if same and tuple(source.meta["val"].shape) == (batch, heads, count, size) else value


def _mask(lower: Lowering, name: str, value: fx.Node, shape: tuple[int, ...], causal: bool) -> tuple[bool, View | None]:
    """Whether only the past is seen, and what else a mask says."""
    known = lower.facts.argument(value)
    if isinstance(known, Tensor):
        if known.dtype == torch.bool:
            if bool(known.all()):
                return causal, None
            triangle = torch.ones(shape[-2:], dtype=torch.bool).tril()
            if known.shape[-2:] == triangle.shape and bool((known == triangle).all()):
                return True, None
            known = torch.zeros(known.shape).masked_fill(~known, -math.inf)
        elif not bool(known.any()):
            return causal, None
        small = known[tuple(slice(0, 1) if step == 0 else slice(None) for step in known.stride())]
        view = lower.constant(small.contiguous())
    else:
        view = lower.view(value)
    wide = view.then(lambda meta: meta.expand(shape))
    if wide.dtype == torch.bool and (wide.strides[-1] not in (0, 1) or view.buffer.place == "input"):
        wide = lower.copy(name, view).then(lambda meta: meta.expand(shape))
    return causal, wide
