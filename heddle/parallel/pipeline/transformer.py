"""The pipeline over chunks of the transformer, which hand over one tensor.

Between stages each tensor-parallel rank sends only its slice of the tokens, and the receiver gathers them over its
faster links (the scatter/gather optimization, PTD-P §4.1). Over slow links it may send the slice in fewer bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from heddle.models.transformer import Microbatch
from heddle.parallel.codecs import CODECS, Codec
from heddle.parallel.collectives import gather, slice_of
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import Executor, SpanRecorder, StepState
from heddle.parallel.tensor.deferred import DeferredGradients, make_gradients
from heddle.schedule import Action, Message, Schedule
from heddle.spec.network.link_codes import code_of
from heddle.spec.plan import Plan
from heddle.trace.lanes import Lane


class MicrobatchInput(NamedTuple):
    """One microbatch: its tokens, what follows them, and what else layers must know."""

    ids: Tensor
    targets: Tensor
    batch: Microbatch


@dataclass(frozen=True)
class Shape:
    """Of the activations between chunks."""

    tokens: int  # of a microbatch
    hidden: int
    dtype: torch.dtype
    device: torch.device
    sliced: bool  # whether activations are slices of the tokens already (sequence parallelism)


class Pipeline(Executor):
    """Runs a schedule over chunks of the transformer, which hand over one tensor: the activations of its tokens.

    The last one is told the targets, and gives the loss.
    """

    def __init__(
        self,
        schedule: Schedule,
        chunks: Mapping[int, nn.Module],
        mesh: Mesh,
        shape: Shape,
        recorder: SpanRecorder,
        deferred: DeferredGradients | None = None,
        codes: Mapping[tuple[int, int], str] | None = None,
    ) -> None:
        """`codes` are those in which stages send each other tensors, by sender and receiver, where they use some."""
        super().__init__(schedule, mesh, shape.device, recorder)
        self.chunks, self.shape = chunks, shape
        self.codecs = {way: CODECS[code] for way, code in (codes or {}).items()}
        self.deferred = deferred or DeferredGradients()
        # Sliced activations travel as they are; whole ones are sliced for the journey where that is even.
        self.scatter = not shape.sliced and mesh.tensor.size > 1 and shape.tokens % mesh.tensor.size == 0

    def _forward(self, action: Action, step: StepState) -> None:
        _, chunk, microbatch = action
        work: MicrobatchInput = step.works[microbatch]
        last = chunk == self.last_chunk
        x = self._receive(action)
        if x is not None and torch.is_grad_enabled():
            x.requires_grad_()
        self.deferred.wanted = torch.is_grad_enabled() and (chunk, microbatch) in self.schedule.split
        with self.recorder.span(Lane.COMPUTE, action.kind, chunk, microbatch):
            batch = replace(work.batch, targets=work.targets if last else None, scale=step.scale)
            y = self.chunks[chunk](work.ids if x is None else x, batch)
        if last:  # which gives the loss
            if torch.is_grad_enabled():
                step.keep(action, (x, y * step.scale))
            self._told(microbatch, y.detach(), step)
            return
        self._send(action, y.detach())
        if torch.is_grad_enabled():  # only the graph behind the output is kept: its values have been sent
            step.keep(action, (x, get_gradient_edge(y)))

    def _told(self, microbatch: int, loss: Tensor, step: StepState) -> None:  # noqa: ARG002
        """What the last chunk gives of a microbatch is its loss."""
        step.add(loss)

    def _backward(self, action: Action, step: StepState) -> None:
        kept: tuple[Tensor | None, GradientEdge | Tensor] = step.take(action)
        x, output = kept
        gradient = self._receive(action)
        self.deferred.wanted = False  # nor was it in this microbatch's forward, which the backward may repeat
        with self.recorder.span(Lane.COMPUTE, action.kind, action.chunk, action.microbatch):
            torch.autograd.backward(output, gradient)
        self._hand_back(action, x)

    def _backward_input(self, action: Action, step: StepState) -> None:
        kept: tuple[Tensor | None, GradientEdge | Tensor] = step.take(action)
        x, output = kept
        gradient = self._receive(action)
        self.deferred.wanted = True  # as in this microbatch's forward
        with self.recorder.span(Lane.COMPUTE, action.kind, action.chunk, action.microbatch):
            with self.deferred.collecting() as products:
                torch.autograd.backward(output, gradient)
            del kept, output  # what was kept for the way back is gone, but for the products' factors
        step.keep(action, products)
        self._hand_back(action, x)

    def _backward_weight(self, action: Action, step: StepState) -> None:
        products = step.take(action)
        with self.recorder.span(Lane.COMPUTE, action.kind, action.chunk, action.microbatch):
            make_gradients(products)

    def _hand_back(self, action: Action, x: Tensor | None) -> None:
        if x is not None:
            assert x.grad is not None
            self._send(action, x.grad)
            x.grad = None

    def _codec(self, message: Message) -> Codec | None:
        """Of the link that a message crosses."""
        return self.codecs.get((message.source, message.destination))

    def _arrived(self, x: Tensor, message: Message) -> Tensor:
        if (codec := self._codec(message)) is not None:
            values = codec.decode(x, self._rows() * self.shape.hidden)
            x = values.view(self._rows(), self.shape.hidden).to(self.shape.dtype)
        return gather(x, self.mesh.tensor) if self.scatter else x

    def _leaving(self, x: Tensor, message: Message) -> Tensor:
        x = slice_of(x, self.mesh.tensor) if self.scatter else x
        codec = self._codec(message)
        return x if codec is None else codec.encode(x.flatten())

    def _rows(self) -> int:
        return self.shape.tokens // self.mesh.tensor.size if self.scatter or self.shape.sliced else self.shape.tokens

    def _empty(self, message: Message) -> Tensor:
        if self._codec(message) is not None:
            return torch.empty(self._size(message), dtype=torch.uint8, device=self.shape.device)
        return torch.empty(self._rows(), self.shape.hidden, dtype=self.shape.dtype, device=self.shape.device)

    def _size(self, message: Message) -> int:
        numbers, codec = self._rows() * self.shape.hidden, self._codec(message)
        return numbers * self.shape.dtype.itemsize if codec is None else codec.size(numbers)


def stage_codes(plan: Plan, mesh: Mesh) -> dict[tuple[int, int], str]:
    """In which codes this pipeline's stages send to each other, by sender and receiver; not those that send exactly."""

    def code(one: int, two: int) -> str:
        ranks, places = mesh.pipeline.ranks, mesh.places
        return (
            code_of(plan, "activations", places[ranks[one]], places[ranks[two]])
            if places
            else plan.compress_activations
        )

    ways = permutations(range(mesh.pipeline.size), 2)
    return {way: found for way in ways if (found := code(*way)) != "none"}
