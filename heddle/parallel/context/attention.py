"""Attention over tokens that several ranks share, by four ways for queries to meet the keys of others.

* ring: keys and values of one rank after the other come by while those before are attended to. In turn t every rank
  sends its own straight to the rank that is t further on; a rank whose keys nobody there may see sends nothing.
  Backwards they come by again, and their gradients are sent back.
* gather: every rank gets all keys and values first; back, their gradients are summed where they belong.
* all-to-all: every rank gets all tokens of some heads, attends as one device does, and gives the output back.
* 2d: ranks that are neighbors do that among themselves, and so each has more tokens of fewer heads; between these
  groups runs a ring. (USP, arXiv 2405.07719; what a group holds of a sample is what one rank of a shorter axis would.)

The first two hold queries, keys, values, output and statistics of their own tokens for the backward pass, and nothing
of the others'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from heddle.models.attention import attend
from heddle.models.documents import Documents
from heddle.parallel.collectives import Handle, gather, reduce_scatter, start_all_to_all
from heddle.parallel.context.cut import TokenBlock, as_held, blocks, in_order
from heddle.parallel.context.kernel import Gradients, MergedAttention
from heddle.parallel.context.pieces import AttentionPiece, pieces
from heddle.parallel.mesh import Axis, Mesh
from heddle.trace.lanes import Collective


class Sight:
    """Whose queries see whose keys, among ranks that share samples: found once for all layers.

    It takes as many looks as there are pairs of ranks. Layer by layer, the host would look for longer than a GPU
    computes.
    """

    def __init__(self, ranks: int, sequence: int, window: int | None, documents: Documents) -> None:
        self.ranks, self.window, self.documents = ranks, window, documents
        self.held = [blocks(sequence, rank, ranks) for rank in range(ranks)]
        self.whole = (TokenBlock(0, sequence, 0),)
        self.seen: dict[tuple[int, int | None], list[AttentionPiece]] = {}

    def pieces(self, queries: int, keys: int | None) -> list[AttentionPiece]:
        """What one rank's queries see of another's keys; None: of all keys in their order."""
        if (queries, keys) not in self.seen:
            others = self.whole if keys is None else self.held[keys]
            self.seen[queries, keys] = pieces(self.held[queries], others, self.window, self.documents)
        return self.seen[queries, keys]

    def wants(self, rank: int, turn: int) -> bool:
        """Whether a rank needs the keys of the one that is so many places before it."""
        return bool(self.pieces(rank, (rank - turn) % self.ranks))

    @cached_property
    def turns(self) -> list[int]:
        """The turns of the ring in which somebody needs somebody's keys."""
        ranks = range(self.ranks)
        return [turn for turn in ranks[1:] if any(self.wants(rank, turn) for rank in ranks)]


sight = lru_cache(maxsize=64)(Sight)  # of the microbatches under way, each with documents of its own


class Shared:
    """One rank's place among those that share samples: what its queries see of whose keys."""

    def __init__(self, axis: Axis, sequence: int, window: int | None, documents: Documents = ()) -> None:
        self.axis, self.window, self.documents = axis, window, documents
        self.sight = sight(axis.size, sequence, window, documents)

    def pieces(self, queries: int, keys: int) -> list[AttentionPiece]:
        """What one rank's queries see of another's keys."""
        return self.sight.pieces(queries, keys)

    def of_whole(self) -> list[AttentionPiece]:
        """What this rank's queries see of all keys in their order."""
        return self.sight.pieces(self.axis.rank, None)

    def turns(self) -> list[int]:
        """The turns of the ring in which somebody needs somebody's keys."""
        return self.sight.turns

    def start_turn(self, x: Tensor, turn: int, back: bool = False) -> Handle:
        """Begin to send `x` to the rank that is so many places on, if it wants it, and to receive; or the other way."""
        axis, size = self.axis, self.axis.size
        onward, before = (axis.rank + turn) % size, (axis.rank - turn) % size
        there, here = self.sight.wants(onward, turn), self.sight.wants(axis.rank, turn)
        to, source, leaves, comes = (before, onward, here, there) if back else (onward, before, there, here)
        rows = len(x) if comes else 0
        sends = [len(x) if leaves and rank == to else 0 for rank in range(size)]
        receives = [rows if rank == source else 0 for rank in range(size)]
        return start_all_to_all(x if leaves else x[:0], axis, sends, receives, Collective.TURN)


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, shared: Shared) -> Tensor:
        kv, me, size = torch.stack((k, v)), shared.axis.rank, shared.axis.size
        attended = MergedAttention(q)
        coming = _Ahead(shared, kv)
        for piece in shared.pieces(me, me):
            attended.add(piece, q, *kv)
        for turn, others in coming:
            for piece in shared.pieces(me, (me - turn) % size):
                attended.add(piece, q, *others)
        return _finished(ctx, q, kv, attended, shared)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (gradient,), shared = gradients, ctx.shared
        q, kv, out, logs = ctx.saved_tensors
        me, size = shared.axis.rank, shared.axis.size
        made = Gradients(q, out, logs, gradient)
        of_kv = torch.zeros(kv.shape, dtype=logs.dtype, device=kv.device)
        coming = _Ahead(shared, kv)
        for piece in shared.pieces(me, me):
            made.add(piece, kv, of_kv)
        going: Handle | None = None
        for turn, others in coming:
            of_others = torch.zeros_like(of_kv)
            for piece in shared.pieces(me, (me - turn) % size):
                made.add(piece, others, of_others)
            _take(of_kv, going)
            going = shared.start_turn(of_others.to(kv.dtype), turn, back=True)
        _take(of_kv, going)
        of_k, of_v = of_kv.to(kv.dtype).unbind()
        return made.of_q.to(q.dtype), of_k, of_v, None


class _Ahead:
    """Keys and values of the others, one after the other; the next are under way while some are used."""

    def __init__(self, shared: Shared, kv: Tensor) -> None:
        self.shared, self.kv = shared, kv
        self.turns = shared.turns()
        self.next = self._start(0)

    def _start(self, number: int) -> Handle | None:
        return self.shared.start_turn(self.kv, self.turns[number]) if number < len(self.turns) else None

    def __iter__(self) -> Any:
        for number, turn in enumerate(self.turns):
            assert self.next is not None
            others = self.next.wait()
            self.next = self._start(number + 1)
            yield turn, others


def _take(of_kv: Tensor, coming: Handle | None) -> None:
    """Add up what another rank found of the gradients of this one's keys and values, where it found any."""
    if coming is not None and len(part := coming.wait()):
        of_kv += part


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, shared: Shared) -> Tensor:
        kv = torch.stack((k, v))
        whole, attended = _gathered(kv, shared.axis), MergedAttention(q)
        for piece in shared.of_whole():
            attended.add(piece, q, *whole)
        return _finished(ctx, q, kv, attended, shared)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (gradient,), shared = gradients, ctx.shared
        q, kv, out, logs = ctx.saved_tensors
        whole = _gathered(kv, shared.axis)
        made = Gradients(q, out, logs, gradient)
        of_whole = torch.zeros(whole.shape, dtype=logs.dtype, device=whole.device)
        for piece in shared.of_whole():
            made.add(piece, whole, of_whole)
        del whole  # there is memory for all keys and values twice, but no more
        of_whole = of_whole.to(kv.dtype)
        of_whole = as_held(of_whole, 3, shared.axis.size)
        of_k, of_v = reduce_scatter(of_whole, shared.axis)[0].unbind()
        return made.of_q.to(q.dtype), of_k, of_v, None


def _gathered(kv: Tensor, axis: Axis) -> Tensor:
    """Keys and values of all tokens in their order."""
    return in_order(gather(kv[None], axis), 3)


def _finished(ctx: Any, q: Tensor, kv: Tensor, attended: MergedAttention, shared: Shared) -> Tensor:
    out = attended.out.to(q.dtype)
    ctx.save_for_backward(q, kv, out, attended.logs)
    ctx.shared = shared
    return out


class _Swap(torch.autograd.Function):
    """From all heads of a rank's tokens, [samples, heads, tokens, size], to all tokens of its share of the heads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, tokens: bool) -> Tensor:
        ctx.axis, ctx.tokens = axis, tokens
        return _to_tokens(x, axis) if tokens else _to_heads(x, axis)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        return (_to_heads if ctx.tokens else _to_tokens)(gradient, ctx.axis), None, None


def _to_tokens(x: Tensor, axis: Axis) -> Tensor:
    parts = x.unflatten(1, (axis.size, -1)).movedim(1, 0)
    return in_order(start_all_to_all(parts, axis).wait(), 2)


def _to_heads(x: Tensor, axis: Axis) -> Tensor:
    parts = start_all_to_all(as_held(x, 2, axis.size), axis).wait()
    # token by token, as the product behind attention reads it
    return parts.permute(1, 3, 0, 2, 4).flatten(2, 3).transpose(1, 2)


def _by_heads(q: Tensor, k: Tensor, v: Tensor, axis: Axis, attend_all: Callable[..., Tensor]) -> Tensor:
    """Attention of all tokens that ranks of an axis hold to themselves, each with its share of the heads."""
    heads = k.shape[1]
    group = q.shape[1] // heads
    # the heads that belong together travel together: the queries of a group, its key and its value
    grouped = torch.cat((q.unflatten(1, (heads, group)), k[:, :, None], v[:, :, None]), dim=2)
    mine = _Swap.apply(grouped.flatten(1, 2), axis, True)
    mine = mine.unflatten(1, (-1, group + 2))
    mine_q, mine_k, mine_v = mine[:, :, :group].flatten(1, 2), mine[:, :, group], mine[:, :, group + 1]
    swapped: Tensor = _Swap.apply(attend_all(mine_q, mine_k, mine_v), axis, False)
    return swapped


def _all_to_all(q: Tensor, k: Tensor, v: Tensor, shared: Shared) -> Tensor:
    return _by_heads(q, k, v, shared.axis, partial(attend, window=shared.window, documents=shared.documents))


EXCHANGES: dict[str, Callable[[Tensor, Tensor, Tensor, Shared], Tensor]] = {
    "ring": _Ring.apply,
    "gather": _Gather.apply,
    "all-to-all": _all_to_all,
}


def share_context(attention: Any, mesh: Mesh, exchange: str) -> None:
    """Let a layer's attention reach the tokens that other ranks of the context axis hold."""
    window, size, two_dims = attention.window, mesh.context.size, exchange == "2d"
    stretch = attention.score_scale * attention.head_size**0.5  # over what the kernels scale by
    axis = mesh.context_outer if two_dims else mesh.context
    among = EXCHANGES["ring" if two_dims else exchange]

    def attend_together(q: Tensor, k: Tensor, v: Tensor, documents: Documents) -> Tensor:
        q = q if attention.scale is None else q * stretch
        shared = Shared(axis, size * q.shape[2], window, documents)
        if two_dims:
            return _by_heads(q, k, v, mesh.context_inner, lambda *mine: among(mine[0], mine[1], mine[2], shared))
        return among(q, k, v, shared)

    attention.attend = torch.compiler.disable(attend_together)
