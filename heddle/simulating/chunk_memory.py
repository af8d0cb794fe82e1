"""What a microbatch leaves in each chunk of a plan, and the fullest moments of its way on and back."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.cost import adapters, end_memory, memory
from heddle.cost.layers import Chunk, LayerKind, chunk_layers
from heddle.cost.offload import States, states
from heddle.cost.work import Work
from heddle.simulating.fullest import ChunkBytes
from heddle.simulating.layer_bytes import WHOLE, LayerBytes, bytes_of, ends_of, fetched_ahead, of_a_layer
from heddle.simulating.way_back import ActionPeak, Passed, Sums, way_back
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan

NOTHING = States(0.0, 0.0, 0.0)


def chunks_of(model: ModelSpec, plan: Plan, work: Work, known: ChunksOf | None = None) -> list[ChunkBytes]:
    """Of each chunk; `known`: of plans that differ from this one in what their layers do, and in nothing else."""
    every = known or ChunksOf(plan, work)
    last = plan.chunks - 1
    return [every.of(layers, number == 0, number == last) for number, layers in enumerate(chunk_layers(model, plan))]


class ChunksOf:
    """Chunks of a plan, each computed once: chunks of the same layers, and there are many of them, are alike."""

    def __init__(self, plan: Plan, work: Work) -> None:
        self.plan, self.work = plan, work
        self.shapes = [bytes_of(of_a_layer(one)) for _, one in work.each_shape]
        self.ends = ends_of(of_a_layer(work))
        # gradients of one replica in fp32 are made by the first backward of a step
        self.alone = plan.replicas == 1 and work.element == 4
        self.sums = Sums(float(work.sharing), float(work.gloo) * (1 - 1 / float(work.sharing)))
        # of a layer, norms are summed over tensor ranks, too, and so by themselves
        whole = work.adapters_whole if work.frozen else work.replicated_parameters
        self.norms = float(whole) if plan.sequence else 0.0
        table = float(work.padded_vocab * work.hidden)
        self.head = table * float(end_memory.learns_table(work))
        self.table = table * float(work.learns_embed)
        self.frozen_head = float(adapters.frozen_end(work, False, True))
        self.unpacked = float(sum(adapters.unpacked(work)))
        self.stream = float(memory.stream(work))  # bytes of a microbatch between layers
        self.known: dict[tuple[Chunk, bool, bool], ChunkBytes] = {}
        self.passed: dict[tuple[LayerKind, bool, float], Passed] = {}

    def of(self, layers: Chunk, first: bool, last: bool) -> ChunkBytes:
        """Of one chunk."""
        key = layers, first, last
        if key not in self.known:
            self.known[key] = self._of(*key)
        return self.known[key]

    def _of(self, layers: Chunk, first: bool, last: bool) -> ChunkBytes:
        left = sum(count * self.shapes[kind.shape].left(kind) for kind, count in layers)
        if first:
            left += float(self.work.dropout) * self.stream / self.work.element  # the mask of the embedding
        elif layers and layers[0][0].leaves:
            left += self.stream  # what another stage sent stays until its gradient is sent back
        saved = left + last * self.ends.left
        owed = sum(count * self.shapes[kind.shape].owed for kind, count in layers)
        owed += last * self.stream  # whose gradient no message brought
        microbatches = float(self.work.microbatches)
        whole = way_back(self._units(layers, first, last, False), self.plan.prefetch, self.sums, microbatches)
        halved = whole
        if self.plan.puts_off:
            halved = way_back(self._units(layers, first, last, True), 0, Sums(), microbatches)
        products = max((self.shapes[kind.shape].products for kind, _ in layers), default=0.0)
        return ChunkBytes(
            saved=saved,
            owed=owed,
            forward=self._forward(layers, saved, last),
            back=whole.later,
            back_first=whole.first,
            halved=halved.later,
            weights=products,
            weights_first=max(products, whole.made - owed),
            made=whole.made,
            made_halved=sum(unit.makes for unit, _ in self._units((), first, last, True)),
            pending=whole.pending - (whole.due if microbatches == 2 else 0.0),
        )

    def _units(self, layers: Chunk, first: bool, last: bool, halved: bool) -> list[tuple[Passed, int]]:
        """What a backward passes, from the chunk's end on."""
        units = list(self._layers(layers, halved))[::-1]
        if last:
            units.insert(0, (self._head(), 1))
        elif units:  # the gradient that arrived stays until all is done
            unit, count = units[0]
            units[:1] = [(unit._replace(left=unit.left - self.stream), 1), (unit, count - 1)]
        return [*units, (self._embedding(last), 1)] if first else units

    def _layers(self, layers: Chunk, halved: bool) -> Iterator[tuple[Passed, int]]:
        """Each with what comes back beside its backward: of the last layers before it that let theirs go."""
        before: list[float] = []
        for kind, count in layers:
            ahead = fetched_ahead(self.work, self.plan, kind) if kind.leaves else 0
            own = self.shapes[kind.shape].saved[kind.recompute]
            apart = min(count, ahead)  # those whose company differs
            for _ in range(apart):
                yield self._layer(kind, halved, sum(before[-ahead:])), 1
                before.append(own)
            if count > apart:
                yield self._layer(kind, halved, ahead * own), count - apart
            before += [own] * (count - apart) * kind.leaves

    def _layer(self, kind: LayerKind, halved: bool, ahead: float) -> Passed:
        key = kind, halved, ahead
        if key not in self.passed:
            self.passed[key] = self._passed(*key)
        return self.passed[key]

    def _passed(self, kind: LayerKind, halved: bool, ahead: float) -> Passed:
        shape = self.shapes[kind.shape]
        own = states(self.work, shape.parameters, kind.memory, shape.frozen)
        return Passed(
            moment=shape.back(kind, halved, own.summed > 0, ahead),
            early=shape.early(kind),
            left=shape.left(kind),
            states=own if own.summed else NOTHING,
            owed=shape.owed * halved,
            makes=shape.parameters * 4 * (self.alone and not own.summed),
            waits=shape.saved["full"],
            last_summed=self.norms * 4 if own.summed and self.norms else None,
        )

    @property
    def _tied_here(self) -> bool:
        """Whether one stage has both ends of a tied embedding: the gradient of one waits for that of the other."""
        return bool(self.work.tied) and self.plan.pipeline == 1 and self.table > 0

    @property
    def _sums_ends(self) -> bool:
        """Whether two stages have an end each: their gradient lies in a buffer that is always there."""
        return bool(self.work.tied) and self.plan.last_rank > 0 and self.table > 0

    def _end(self, parameters: float) -> States:
        plan = self.plan
        own = states(self.work, parameters, LayerMemory("none", plan.zero, plan.ends_offload))
        return own._replace(unit=0.0) if own.summed else NOTHING  # no end needs its weights on the way back

    def _head(self) -> Passed:
        norm = float(end_memory.final_norm_backward(self.work))
        if self._tied_here:
            return Passed(moment=norm, left=self.ends.left - self.ends.table, waits=self.stream)
        own = self._end(self.head)
        makes = self.head * 4 * (self.alone and not self._sums_ends and not own.summed)
        return Passed(moment=norm, left=self.ends.left, states=own, makes=makes, waits=self.stream)

    def _embedding(self, last: bool) -> Passed:
        positions = float(self.work.position_parameters) * float(self.work.learns_embed)
        own = self._end(self.table + positions)
        made = self._sums_ends or (self.work.tied and self.plan.pipeline > 1)  # by the other end, on the same rank
        makes = (self.table * (not made) + positions) * 4 * (self.alone and not own.summed)
        left = self.ends.table if last and self._tied_here else 0.0
        return Passed(
            moment=float(end_memory.embedding_backward(self.work, 0.0)),
            left=left,
            states=own,
            makes=makes,
            last_summed=self.table * 4 if own.summed and self._sums_ends else None,  # the positions by themselves
        )

    def _forward(self, layers: Chunk, saved: float, last: bool) -> ActionPeak:
        """What the way on holds at most: at the loss, or where dropout draws, or where weights are gathered."""
        behind = saved - last * self.ends.left  # before the loss
        peak = ActionPeak(behind + self.stream)
        ahead = 0.0
        for kind, count in reversed(layers):
            shape = self.shapes[kind.shape]
            unit = states(self.work, shape.parameters, kind.memory, shape.frozen).unit
            for _ in range(min(count, 2)):
                briefly = max(self._dropping(kind, shape), self.unpacked)
                peak = max(peak, ActionPeak(behind + unit + ahead + briefly, unit + ahead))
                behind, ahead = behind - shape.left(kind), unit * min(1, self.plan.prefetch)
        if last:
            ends = LayerMemory("none", self.plan.zero, self.plan.ends_offload)
            unit = states(self.work, self.head, ends, self.frozen_head).unit
            peak = max(peak, ActionPeak(saved + self.ends.briefly + unit, unit))
        return peak

    def _dropping(self, kind: LayerKind, shape: LayerBytes) -> float:
        """Of a layer's dropout, beside the sum that is added to where no backward needs that."""
        return shape.dropping + (shape.saved["full"] if kind.recompute in WHOLE and shape.dropping else 0.0)
