"""What was decided: how a model is spread over devices, and the rules that let nothing be lost on the way."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from heddle.errors import HeddleError, divisors, listing, nearest_number
from heddle.schedule.registry import rule_of
from heddle.spec.model import ModelSpec
from heddle.spec.ranges import Count, Degree, NonNegative, check_ranges
from heddle.spec.tables import to_table

Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the work is split. The defaults are one device doing everything."""

    tensor: Degree = 1  # Megatron column/row split of every layer
    sequence: bool = False  # sequence-parallel regions between the tensor-parallel ones
    pipeline: Degree = 1  # stages, one per pipeline rank
    virtual: Degree = 1  # chunks per pipeline rank (interleaved)
    data: Degree = 1  # replicas, each with its own samples
    zero: Literal[0, 1, 2, 3] = 0  # what replicas shard: 1 optimizer, 2 +gradients, 3 +parameters
    microbatch: Degree = 1  # samples a rank works on at once
    schedule: str = "1f1b"  # one of heddle.schedule.NAMES
    stages: tuple[Count, ...] = ()  # layers of each chunk in model order; empty: as even as can be
    recompute: Recompute | tuple[Recompute, ...] = "none"  # one word, or one per layer

    def __post_init__(self) -> None:
        check_ranges(self, "plan")
        if self.virtual > 1 and self.pipeline == 1:
            raise HeddleError(
                f"virtual = {self.virtual} needs a pipeline.",
                "Virtual chunks shorten the bubble of a pipeline; one stage has none.",
                "Use virtual = 1, or pipeline = 2.",
            )
        rule_of(self.schedule).check_virtual(self.virtual)
        if self.zero >= 2 and self.pipeline > 1:
            raise HeddleError(
                f"zero = {self.zero} cannot be combined with pipeline = {self.pipeline}.",
                "Gradients and parameters stay whole over the microbatches in flight; sharding them would "
                "repeat the communication for every microbatch.",
                "Use zero = 1, or pipeline = 1.",
            )
        if self.sequence and self.tensor == 1:
            raise HeddleError(
                "sequence = true needs tensor parallelism.",
                "The sequence is split over the tensor-parallel ranks.",
                "Use sequence = false, or tensor = 2.",
            )

    @property
    def world(self) -> int:
        """Devices the plan uses."""
        return self.tensor * self.pipeline * self.data

    @property
    def chunks(self) -> int:
        """Pieces the layers are cut into."""
        return self.pipeline * self.virtual

    @property
    def hash(self) -> str:
        """Twelve hex digits that name this decision."""
        return hashlib.sha256(json.dumps(to_table(self), sort_keys=True).encode()).hexdigest()[:12]

    def rank_of(self, chunk: int) -> int:
        """The pipeline rank that holds a chunk."""
        return rule_of(self.schedule).placement.rank_of(chunk, self.pipeline)

    def chunks_of(self, rank: int) -> tuple[int, ...]:
        """The chunks that a pipeline rank holds."""
        return rule_of(self.schedule).placement.chunks_of(rank, self.pipeline, self.virtual)

    @property
    def last_rank(self) -> int:
        """The pipeline rank that holds the end of the model; its beginning is on rank 0."""
        return self.rank_of(self.chunks - 1)

    def microbatches(self, global_batch: int) -> int:
        """Microbatches each rank works through in one step."""
        return global_batch // (self.data * self.microbatch)

    def layers_of(self, chunk: int, layers: int) -> range:
        """The layers that chunk holds, counted over the whole model."""
        bounds = [0, *accumulate(self.stages or even_stages(layers, self.chunks))]
        return range(bounds[chunk], bounds[chunk + 1])

    def recompute_of(self, layer: int) -> Recompute:
        """What layer recomputes in the backward pass."""
        return self.recompute if isinstance(self.recompute, str) else self.recompute[layer]

    def resolved(self, model: ModelSpec) -> Plan:
        """The same plan with its stages written out."""
        return replace(self, stages=self.stages or even_stages(model.layers, self.chunks))

    def check(self, model: ModelSpec, global_batch: int, sequence: int) -> None:
        """Refuse a plan that does not carry every layer, head, vocabulary row and sample exactly once."""
        self._check_layers(model)
        # kv_heads divides heads, so these degrees split heads, kv_heads and ffn alike
        degrees = listing(divisors(math.gcd(model.kv_heads, model.ffn)))
        for name, heads in (("heads", model.heads), ("kv_heads", model.kv_heads)):
            if heads % self.tensor:
                raise HeddleError(
                    f"{heads} {name} cannot be split over tensor = {self.tensor}.",
                    "Every tensor-parallel rank holds the same number of whole heads.",
                    f"{degrees} can split the whole model.",
                )
        if model.ffn % self.tensor:
            raise HeddleError(
                f"ffn = {model.ffn} cannot be split over tensor = {self.tensor}.",
                "Every tensor-parallel rank holds the same number of its columns.",
                f"{degrees} can split the whole model.",
            )
        if self.sequence and sequence % self.tensor:
            raise HeddleError(
                f"A sequence of {sequence} tokens cannot be split over tensor = {self.tensor}.",
                "Sequence parallelism gives every tensor-parallel rank an equal slice of the sequence.",
                f"Use a sequence of {max(1, sequence // self.tensor) * self.tensor}, or sequence = false.",
            )
        share = self.data * self.microbatch
        if global_batch % share:
            below = global_batch // share * share
            near = f"{below} or {below + share}" if below else str(share)
            hint = f"Use global_batch = {near}"
            if global_batch % self.data == 0:
                fits = nearest_number(self.microbatch, divisors(global_batch // self.data))
                hint += f", or microbatch = {fits}"
            raise HeddleError(
                f"global_batch = {global_batch} is not divisible by data × microbatch = {self.data} × "
                f"{self.microbatch} = {share}.",
                "Every replica takes the same whole number of microbatches.",
                hint + ".",
            )
        if self.pipeline > 1:
            rule_of(self.schedule).check_microbatches(self.pipeline, self.microbatches(global_batch))

    def _check_layers(self, model: ModelSpec) -> None:
        if model.layers < self.chunks:
            raise HeddleError(
                f"{model.layers} layers cannot fill pipeline × virtual = {self.pipeline} × {self.virtual} chunks.",
                "Every chunk holds at least one layer.",
                f"Use {self._fewer_chunks(model.layers)}.",
            )
        if self.stages:
            even = list(even_stages(model.layers, self.chunks))
            if len(self.stages) != self.chunks:
                raise HeddleError(
                    f"stages lists {len(self.stages)} chunks, the plan has {self.chunks}.",
                    f"It needs pipeline × virtual = {self.pipeline} × {self.virtual} entries.",
                    f"As even as can be: stages = {even}.",
                )
            if sum(self.stages) != model.layers:
                raise HeddleError(
                    f"stages = {list(self.stages)} carries {sum(self.stages)} layers, the model has {model.layers}.",
                    "Every layer is trained exactly once, and every chunk holds at least one.",
                    f"As even as can be: stages = {even}.",
                )
        if not isinstance(self.recompute, str) and len(self.recompute) != model.layers:
            raise HeddleError(
                f"recompute lists {len(self.recompute)} layers, the model has {model.layers}.",
                "It is one word for all layers, or one per layer.",
                'For example recompute = "selective".',
            )

    def _fewer_chunks(self, layers: int) -> str:
        """The ways to have no more chunks than layers; several chunks per rank still need a pipeline."""
        ways = []
        if self.virtual > 1 and layers >= self.pipeline:
            ways.append(f"virtual = {layers // self.pipeline}")
        if layers // self.virtual > 1 or self.virtual == 1:
            ways.append(f"pipeline = {layers // self.virtual}")
        return ", or ".join(ways) or f"virtual = 1 and pipeline = {layers}"


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a plan was predicted to do when it was chosen; training compares itself with it."""

    step_seconds: NonNegative
    tokens_per_second: NonNegative | None = None
    mfu: NonNegative | None = None
    bubble: NonNegative | None = None  # idle over ideal time of the pipeline
    worst_stage_gib: NonNegative | None = None  # memory of one device of the fullest stage

    def __post_init__(self) -> None:
        check_ranges(self, "predicted")


def even_stages(layers: int, chunks: int) -> tuple[int, ...]:
    """Layers of each chunk, as even as can be.

    The chunks that get one more sit before the last, which also holds the output layer, and where there is a choice
    after the first, which holds the embedding.
    """
    small, extra = divmod(layers, chunks)
    first = (chunks - extra) // 2
    return tuple(small + (first <= chunk < first + extra) for chunk in range(chunks))
