"""What was decided: how a model is spread over devices, and the rules that let nothing be lost on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod
from statistics import mode
from typing import get_args

from heddle.errors import HeddleError, listing
from heddle.schedule.actions import Schedule
from heddle.schedule.late import SYNCHRONOUS, LateSchedule, UpdateRule, update_rule
from heddle.schedule.placement import ChunkPlacement
from heddle.schedule.registry import build, like_searched, rule_of, usual
from heddle.schedule.written import SEARCHED, order_for, placed
from heddle.spec.axes import AXES, SUMMED
from heddle.spec.layer_memory import (
    OFFLOAD_WORDS,
    LayerMemory,
    LayerRun,
    Recompute,
    Zero,
    check_offload,
    check_runs,
    check_strategy,
    runs_of,
)
from heddle.spec.model import ModelSpec
from heddle.spec.network.compression import ActivationCode, GradientCode
from heddle.spec.network.exchange_rules import check_exchange, check_fragments, check_places, check_shares
from heddle.spec.network.link_codes import LinkCodes
from heddle.spec.ranges import Count, CountOrZero, Degree, Depth, NonNegative, Positive, check_ranges
from heddle.spec.rules.context import PlanExchange, check_context, check_inner
from heddle.spec.rules.even import even_stages as even_stages
from heddle.spec.rules.experts import check_expert_degree, check_experts_split, check_whole_experts
from heddle.spec.rules.layers import check_layers
from heddle.spec.rules.order import CheckStep, check_order
from heddle.spec.rules.own import check_own
from heddle.spec.rules.within import check_within
from heddle.spec.tables import WHERE_SAID, to_table

_built = lru_cache(maxsize=32)(build)  # plans that are compared often share theirs


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the work is split. The defaults are one device doing everything."""

    tensor: Degree = 1  # Megatron column/row split of every layer
    # chunks of the tokens, so that what tensor ranks exchange in a forward goes on beside its products
    tensor_chunks: Count = field(default=1, metadata=WHERE_SAID)
    sequence: bool = False  # sequence-parallel regions between the tensor-parallel ones
    pipeline: Degree = 1  # stages, one per pipeline rank
    virtual: Degree = 1  # chunks per pipeline rank (interleaved)
    context: Degree = field(default=1, metadata=WHERE_SAID)  # ranks that share the tokens of each sample
    context_exchange: PlanExchange = field(default="ring", metadata=WHERE_SAID)  # how keys and values reach them
    # of a 2d exchange: ranks of each group that exchange by all-to-all; a ring runs between the groups
    context_inner: Degree = field(default=1, metadata=WHERE_SAID)
    data: Degree = 1  # replicas, each with its own samples
    expert: Degree = field(default=1, metadata=WHERE_SAID)  # ranks of data × context that share a layer's experts
    # tensor ranks that split the width of each expert: all of them (0), or 1: each has whole experts and its own tokens
    expert_tensor: CountOrZero = field(default=0, metadata=WHERE_SAID)
    # what replicas shard: 1 optimizer, 2 +gradients and weights, gathered once per step, 3 gathered for every use
    zero: Zero = 0
    # neighboring replicas that share it, each such group with all of it; 0: all replicas share
    zero_within: CountOrZero = field(default=0, metadata=WHERE_SAID)
    microbatch: Degree = 1  # samples a rank works on at once
    schedule: str = usual(1)  # one of heddle.schedule.NAMES
    # of deep-1f1b: microbatches more that a rank starts for each rank behind; None: 1
    extra_warmup: CountOrZero | None = field(default=None, metadata=WHERE_SAID)
    order: tuple[str, ...] = field(default=(), metadata=WHERE_SAID)  # of a searched schedule: heddle.schedule.written
    stages: tuple[Count, ...] = ()  # layers of each chunk in model order; empty: as even as can be
    recompute: Recompute | tuple[Recompute, ...] = "none"  # one word, or one per layer
    # what leaves the device, and where to: "optimizer:disk"; see heddle.spec.layer_memory
    offload: tuple[str, ...] = field(default=(), metadata=WHERE_SAID | OFFLOAD_WORDS)
    prefetch: Depth = field(default=1, metadata=WHERE_SAID)  # layers whose weights or activations are fetched ahead
    layers: tuple[LayerRun, ...] = field(default=(), metadata=WHERE_SAID)  # those that do otherwise
    # when updates are applied: "synchronous", or late, by one of heddle.schedule.late.UPDATES
    update: str = field(default=SYNCHRONOUS, metadata=WHERE_SAID)
    check_step: CheckStep = field(default="before", metadata=WHERE_SAID)  # when an update is checked by all gradients
    # how replicas send gradients to each other, and stages activations, both ways; see heddle.spec.network.compression
    compress_gradients: GradientCode = field(default="none", metadata=WHERE_SAID)
    compress_activations: ActivationCode = field(default="none", metadata=WHERE_SAID)
    codes: tuple[LinkCodes, ...] = field(default=(), metadata=WHERE_SAID)  # of links that carry them otherwise
    # steps of replicas between two meetings; 0: they sum gradients in every step
    local_steps: CountOrZero = field(default=0, metadata=WHERE_SAID)
    # parts of the model that meet in turn, and steps that go on beside a meeting; see heddle.training.outer
    fragments: Count = field(default=1, metadata=WHERE_SAID)
    overlap_steps: CountOrZero = field(default=0, metadata=WHERE_SAID)
    # samples of each replica, where they differ; empty: an equal share
    shares: tuple[Count, ...] = field(default=(), metadata=WHERE_SAID)
    # the device of the job's [network] that each rank runs on; empty: rank r on device r
    devices: tuple[CountOrZero, ...] = field(default=(), metadata=WHERE_SAID)
    # whether a run may choose its layers' strategies once more, by what its first steps take and hold
    adapt: bool = field(default=False, metadata=WHERE_SAID)

    def __post_init__(self) -> None:
        check_ranges(self, "plan")
        if self.virtual > 1 and self.pipeline == 1:
            raise HeddleError(
                f"virtual = {self.virtual} needs a pipeline.",
                "Virtual chunks shorten the bubble of a pipeline; one stage has none.",
                "Use virtual = 1, or pipeline = 2.",
            )
        check_order(self)
        rule_of(self.schedule, self.extra_warmup).check_virtual(self.virtual)
        check_inner(self)
        check_exchange(self)
        check_places(self)
        check_within(self)
        if self.sequence and self.tensor == 1:
            raise HeddleError(
                "sequence = true needs tensor parallelism.",
                "The sequence is split over the tensor-parallel ranks.",
                "Use sequence = false, or tensor = 2.",
            )
        check_offload(self.offload, "plan.offload")
        check_runs(self.layers)
        check_expert_degree(self)
        if any(run.recompute is not None for run in self.layers) and not isinstance(self.recompute, str):
            raise HeddleError(
                "plan.recompute lists layers, but plan.layers also sets recompute for some.",
                "Two lists could contradict each other.",
                'Use one word for plan.recompute, such as "none", and the ranges of plan.layers.',
            )
        words = {self.recompute} if isinstance(self.recompute, str) else set(self.recompute)
        for word in words:
            check_strategy(LayerMemory(word, self.zero, self.offload), self.replicas, None)
        for run in self.layers:
            # with a word for each layer, any of the run's may contradict it; those beyond the list are for `check`
            some = run.numbers[:1] if isinstance(self.recompute, str) else run.numbers[: len(self.recompute)]
            for layer in some:
                if isinstance(self.recompute, str) or layer < len(self.recompute):
                    check_strategy(self.memory_of(layer), self.replicas, layer)

    @property
    def late(self) -> UpdateRule | None:
        """The method by which updates come late; None where they do not."""
        return None if self.update == SYNCHRONOUS else update_rule(self.update)

    @property
    def tied_stages(self) -> int:
        """Stages that a tied embedding's ends lie on; with late updates it is in one place."""
        return self.pipeline if self.late is None else 1

    @property
    def world(self) -> int:
        """Devices the plan uses."""
        return prod(getattr(self, axis) for axis in AXES)

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters and see other samples or tokens: ZeRO shards over them."""
        return prod(getattr(self, axis) for axis in SUMMED)

    @property
    def shards(self) -> int:
        """Ranks that share what ZeRO shards: all replicas, or neighbors among them."""
        return self.zero_within or self.replicas

    @property
    def zeros(self) -> frozenset[int]:
        """The levels of ZeRO that some part of the model has."""
        return frozenset({self.zero, *(run.zero for run in self.layers if run.zero is not None)})

    @property
    def whole_experts(self) -> bool:
        """Whether tensor ranks do not split experts, but share them as those of data × context do."""
        return self.expert_tensor == 1 < self.tensor

    @property
    def expert_ranks(self) -> int:
        """Ranks that experts are shared among, or held by all: those that see other tokens where experts are."""
        return self.replicas * (self.tensor if self.whole_experts else 1)

    @property
    def expert_replicas(self) -> int:
        """Of these, the ranks that hold the same experts."""
        return self.expert_ranks // self.expert

    def tokens(self, sequence: int) -> int:
        """Tokens of a microbatch on one rank, before tensor parallelism splits anything."""
        return self.microbatch * sequence // self.context

    @cached_property
    def chunks(self) -> int:
        """Pieces the layers are cut into."""
        return self.placement.chunks(self.pipeline, self.virtual)

    @cached_property
    def placement(self) -> ChunkPlacement:
        """Which pipeline rank holds which chunk."""
        if self.late is not None:
            return self.late.placement
        return placed(self.virtual) if self.schedule == SEARCHED else rule_of(self.schedule).placement

    @property
    def hash(self) -> str:
        """Twelve hex digits that name this decision."""
        return hashlib.sha256(json.dumps(to_table(self), sort_keys=True).encode()).hexdigest()[:12]

    def rank_of(self, chunk: int) -> int:
        """The pipeline rank that holds a chunk."""
        return self._ranks[chunk]

    @cached_property
    def _ranks(self) -> tuple[int, ...]:
        placement = self.placement
        return tuple(placement.rank_of(chunk, self.pipeline) for chunk in range(self.chunks))

    def chunks_of(self, rank: int) -> tuple[int, ...]:
        """The chunks that a pipeline rank holds."""
        return self.placement.chunks_of(rank, self.pipeline, self.virtual)

    @cached_property
    def last_rank(self) -> int:
        """The pipeline rank that holds the end of the model; its beginning is on rank 0."""
        return self.rank_of(self.chunks - 1)

    def samples(self, global_batch: int, replica: int | None = None) -> range:
        """The samples of a step that a replica takes, by number; of the one that takes most if none is named."""
        shares = self.shares or self.data * (global_batch // self.data,)
        which = shares.index(max(shares)) if replica is None else replica
        return range(sum(shares[:which]), sum(shares[: which + 1]))

    def microbatches(self, global_batch: int, replica: int | None = None) -> int:
        """Microbatches that each rank of a replica works through in one step; of the one that has most."""
        return len(self.samples(global_batch, replica)) // self.microbatch

    def order_of_work(self, global_batch: int, replica: int | None = None) -> Schedule:
        """What each pipeline rank does in a step; where updates come late, in a step after which all have come."""
        microbatches = self.microbatches(global_batch, replica)
        if self.late is not None:
            return LateSchedule(self.late, self.pipeline, microbatches).unrolled(1)
        if self.order:
            return order_for(self.order, self.pipeline, self.virtual, microbatches)
        return _built(self.schedule, self.pipeline, microbatches, self.virtual, self.extra_warmup)

    @property
    def named(self) -> Plan:
        """The same with a schedule of the same kind that has a rule for any number of microbatches."""
        return replace(self, schedule=like_searched(self.virtual), order=()) if self.schedule == SEARCHED else self

    def layers_of(self, chunk: int, layers: int) -> range:
        """The layers that chunk holds, counted over the whole model."""
        bounds = [0, *accumulate(self.stages or even_stages(layers, self.chunks))]
        return range(bounds[chunk], bounds[chunk + 1])

    def recompute_of(self, layer: int) -> Recompute:
        """What layer recomputes in the backward pass."""
        return self.memory_of(layer).recompute

    def recompute_words(self, layers: int) -> Sequence[Recompute]:
        """What each of so many layers recomputes; a search asks this of many plans."""
        if self.layers:
            return [self.memory_of(layer).recompute for layer in range(layers)]
        return [self.recompute] * layers if isinstance(self.recompute, str) else self.recompute

    def memory_of(self, layer: int) -> LayerMemory:
        """What a layer does to need less memory."""
        run = self._run_of.get(layer)
        if run is not None:
            recompute = run.recompute or self.recompute
            zero = self.zero if run.zero is None else run.zero
            offload = self.offload if run.offload is None else run.offload
        else:
            recompute, zero, offload = self.recompute, self.zero, self.offload
        return LayerMemory(recompute if isinstance(recompute, str) else recompute[layer], zero, offload)

    @cached_property
    def _run_of(self) -> dict[int, LayerRun]:
        return {layer: run for run in self.layers for layer in run.numbers}

    def with_memory(self, layers: Sequence[LayerMemory]) -> Plan:
        """The same split, with these strategies of the layers, written as runs; the model's ends stay as they are."""
        usual = LayerMemory(mode(layer.recompute for layer in layers), self.zero, self.ends_offload)
        return replace(self, recompute=usual.recompute, offload=usual.offload, layers=runs_of(layers, usual))

    @property
    def puts_off(self) -> bool:
        """Whether the schedule makes weight gradients apart from the rest of a backward."""
        return self.pipeline > 1 and rule_of(self.schedule).splits

    @property
    def zero_levels(self) -> tuple[Zero, ...]:
        """The levels of ZeRO that all else in the plan goes with: those that its own rules do not refuse."""
        return tuple(level for level in get_args(Zero) if self._goes_with(level))

    def _goes_with(self, level: Zero) -> bool:
        try:
            return replace(self, zero=level, layers=()).zero == level
        except HeddleError:
            return False

    @property
    def by_layer(self) -> bool:
        """Whether layers shard or offload on their own: more than one word for all says."""
        return bool(self.layers or self.offload) or (self.zero >= 2 and self.replicas > 1 and self.pipeline > 1)

    @property
    def ends_offload(self) -> tuple[str, ...]:
        """What leaves the device of the embedding and the output layer: the optimizer's state, or nothing."""
        return tuple(word for word in self.offload if word.startswith("optimizer:"))

    def resolved(self, model: ModelSpec) -> Plan:
        """The same plan with its stages written out."""
        return replace(self, stages=self.stages or even_stages(model.layers, self.chunks))

    def check(self, model: ModelSpec, global_batch: int, sequence: int) -> None:
        """Refuse a plan that does not carry every layer, head, vocabulary row and sample exactly once."""
        check_layers(self, model)
        check_fragments(self, model.layers)
        if self.late is not None and model.tied and self.last_rank != 0:
            raise HeddleError(
                f"update = '{self.update}' cannot be combined with a tied output layer.",
                "The first and the last stage would have to synchronize its weight after every step, and so wait.",
                "Use update = 'ouroboros', which keeps both on one device, or model.tied = false.",
            )
        if model.own:
            check_own(self, model)
        degrees = listing(model.tensor_degrees)
        for name, heads in () if model.own else (("heads", model.heads), ("kv_heads", model.kv_heads)):
            if heads % self.tensor:
                raise HeddleError(
                    f"{heads} {name} cannot be split over tensor = {self.tensor}.",
                    "Every tensor-parallel rank holds the same number of whole heads.",
                    f"{degrees} can split the whole model.",
                )
        widths = [width for shape in model.shapes for width in shape.split_widths(self.whole_experts)]
        uneven = [width for width in widths if width % self.tensor and not model.own]
        if uneven:
            name = "ffn" if uneven[0] in {shape.ffn for shape in model.shapes if not shape.experts} else "expert_ffn"
            raise HeddleError(
                f"{name} = {uneven[0]} cannot be split over tensor = {self.tensor}.",
                "Every tensor-parallel rank holds the same number of its columns.",
                f"{degrees} can split the whole model.",
            )
        check_experts_split(self, model)
        check_whole_experts(self, model, sequence)
        check_context(self, model, sequence)
        if self.sequence and sequence // self.context % self.tensor:
            ranks, product = "tensor", self.tensor * self.context
            if self.context > 1:
                ranks = f"context × {ranks}"
            raise HeddleError(
                f"A sequence of {sequence} tokens cannot be split over {ranks} = {product}.",
                "Sequence parallelism gives every tensor-parallel rank an equal slice of the sequence.",
                f"Use a sequence of {max(1, sequence // product) * product}, or sequence = false.",
            )
        check_shares(self, global_batch)
        if self.pipeline > 1:
            for replica in range(self.data if self.shares else 1):
                rule_of(self.schedule).check_microbatches(self.pipeline, self.microbatches(global_batch, replica))
        if self.schedule == SEARCHED:
            self.order_of_work(global_batch)


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a plan was predicted to do when it was chosen; training compares itself with it."""

    step_seconds: NonNegative
    tokens_per_second: NonNegative | None = None
    mfu: NonNegative | None = None
    bubble: NonNegative | None = None  # idle over ideal time of the pipeline
    worst_stage_gib: NonNegative | None = None  # memory of one device of the fullest stage
    budget_gib: Positive | None = None  # memory of a device that it was planned for
    rank: Count | None = None  # its place among the plans that fitted, 1 is the first choice
    feasible: Count | None = None  # how many those were

    def __post_init__(self) -> None:
        check_ranges(self, "predicted")


def rounded(predicted: Predicted) -> dict[str, float]:
    """A prediction as a table. Six digits are more than it is worth; counts and the budget stay as they are."""
    return {
        key: value if key == "budget_gib" or isinstance(value, int) else float(f"{value:.6g}")
        for key, value in to_table(predicted).items()
    }
