"""What is trained and how it is split, as columns: the one input of all cost functions.

Every field is a number or a NumPy array of numbers, and so is every cost: the same function prices one plan, a
hundred thousand plans of one model, or measured runs of many models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from heddle.cost.kernels import HEDDLE_GPU
from heddle.cost.software import attention_speed, kernels_of, software_columns
from heddle.schedule import NAMES, RULES, Placement
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.model import ModelSpec
from heddle.spec.network.compression import bytes_per_number
from heddle.spec.network.link_codes import codes_used
from heddle.spec.plan import AXES, Plan
from heddle.spec.software import HEDDLE

Column: TypeAlias = Any  # a number, or a NumPy array of numbers: one for each plan
ELEMENT = {"fp32": 4, "bf16": 2, "fp16": 2}


class Shape(NamedTuple):
    """What sets the layers of a model apart, named as in a Work; and how many there are."""

    layers: int
    ffn: int
    window: int
    layer_parameters: int


@dataclass(frozen=True, kw_only=True)
class Work:
    """One training step: the model, the batch, the numbers' types, the plan.

    Where layers differ, what is said of one here is the mean: costs of layers are asked for `each_shape`.
    """

    # the model
    layers: Column
    hidden: Column
    heads: Column
    kv_heads: Column
    head_size: Column
    ffn: Column
    gated: Column  # 1: SwiGLU, whose first half is two matrices
    rotary: Column
    qk_norm: Column
    vocab: Column
    layer_parameters: Column
    replicated_parameters: Column  # of a layer, those that every tensor rank holds: norms, biases after a sum
    position_parameters: Column
    norm_parameters: Column
    tied: Column
    dropout: Column  # 1: masks are made and kept
    # the batch
    batch: Column  # samples per step, over all replicas
    sequence: Column  # tokens per sample
    window: Column  # tokens that one may look at
    shapes: tuple[Shape, ...] = ()  # of layers that differ; empty: all are alike
    shape_of: tuple[int, ...] = ()  # for each layer the place of its own among these
    # how numbers are kept
    precision: str  # of weights and matrix products; one for all columns
    fp8: Column = 0  # 1: the layers' matrix products in 8 bits
    gradient_bytes: Column = 4  # of a gradient that is kept over microbatches
    summed_apart: Column = 0  # 1: under ZeRO-1 the sum goes into a shard of its own; our trainer sums in place
    reduce_bytes: Column = 4  # of a gradient that is sent
    feedback: Column = 0  # 1: gradients are sent in codes, and what these could not say is kept
    local_steps: Column = 0  # steps between two meetings of replicas; 0: they meet in every step
    code_bytes: Column = 0  # of a number that is sent between stages in codes; 0: as it is computed with
    # the kernels, explained in heddle.cost.kernels
    fused: Column = HEDDLE_GPU.fused
    attention_speed: Column = 1.0  # of fused attention, relative to FlashAttention-2
    eager: Column = HEDDLE_GPU.eager
    eager_heads: Column = 0  # the same for the norms of queries and keys, which are RMSNorms in every model
    fused_gate: Column = HEDDLE_GPU.fused_gate
    joint_qkv: Column = HEDDLE_GPU.joint_qkv
    keeps_gathered: Column = HEDDLE_GPU.keeps_gathered
    adds_in_place: Column = HEDDLE_GPU.adds_in_place
    gloo: Column = HEDDLE_GPU.gloo
    logits_at_once: Column = HEDDLE_GPU.logits_at_once
    kept_logit: Column = HEDDLE_GPU.kept_logit
    brief_logit: Column = HEDDLE_GPU.brief_logit
    brief_split_logit: Column = HEDDLE_GPU.brief_split_logit
    posted: Column = HEDDLE_GPU.posted
    sent: Column = HEDDLE_GPU.sent
    # the plan
    tensor: Column = 1
    sequence_parallel: Column = 0
    pipeline: Column = 1
    virtual: Column = 1
    data: Column = 1
    zero: Column = 0
    microbatch: Column = 1
    schedule: Column = 0  # its place in heddle.schedule.NAMES; 1F1B of several chunks is the interleaved one
    full: Column = 0.0  # share of the layers that recompute everything
    selective: Column = 0.0  # share of the layers that recompute the attention core
    per_op: Column = 0.0  # share that recompute every second matrix product (torchtitan's "selective")
    # what others do otherwise than Heddle
    stops_early: Column = 1  # 1: recomputing ends before the last product, which no backward needs (PyTorch ≥ 2.1)
    waits_backward: Column = 0  # 1: no product runs beside the sum of input gradients (Megatron-LM before 2022)
    scatter: Column = 1  # 0: every tensor rank sends the whole message to the next stage
    both_ways: Column = 1  # 0: of two stages one sends at a time (DeepSpeed)
    casts_gradients: Column = 0  # 1: gradients are cast in memory before they are added up (DeepSpeed)
    regather: Column = 0  # 1: ZeRO-3 gathers parameters a third time, for the recomputed forward (DeepSpeed)
    tensor_overlap: Column = 0  # 1: tensor-parallel collectives run beside their matrix products (async TP)
    data_overlap: Column = 1  # 1: gradients are summed while the last backward still runs
    gather_overlap: Column = 1  # 1: ZeRO-1's parameters are gathered while the next forward already runs
    pipeline_overlap: Column = 0  # 1: messages between several chunks per rank hide behind compute
    bucket_bytes: Column = 33.6e6  # of gradients that travel together; 0: every parameter by itself
    piece_bytes: Column = 4e6  # of a bucket, what each replica has at least
    casts_per_step: Column = 0  # 1: weights become 8 bits once per step, not for every microbatch
    sharded_gradients: Column = 0  # 1: replicas keep their share of gradients only, as from ZeRO-2 on
    cast_reads: Column = 1  # passes over what becomes 8 bits: 2 where its largest value must be known before
    fused_casts: Column = 0.0  # share of activations that are made in 8 bits at once
    context: Column = 1  # ranks that share the tokens of each sample
    context_exchange: Column = 0  # how keys and values reach them: its place in heddle.spec.software.CONTEXT_EXCHANGES

    @property
    def element(self) -> int:
        """Bytes of a number that is computed with."""
        return ELEMENT[self.precision]

    @cached_property
    def message_bytes(self) -> Column:
        """Bytes of a number between stages."""
        return np.where(self.code_bytes, self.code_bytes, self.element)

    @cached_property
    def tokens(self) -> Column:
        """Tokens of a microbatch on one rank, before tensor parallelism splits anything."""
        return self.microbatch * self.sequence / self.context

    @cached_property
    def microbatches(self) -> Column:
        """Microbatches of a step on each rank."""
        return self.batch / (self.data * self.microbatch)

    @cached_property
    def schedules(self) -> tuple[int, ...]:
        """The schedules that occur."""
        return tuple(np.unique(self.schedule).astype(int).tolist())

    @cached_property
    def gpipe(self) -> Column:
        """Whether all forwards come before all backwards."""
        return self.schedule == NAMES.index("gpipe")

    @cached_property
    def splits(self) -> Column:
        """Whether backwards are taken in two."""
        return np.isin(self.schedule, [number for number, rule in enumerate(RULES.values()) if rule.splits])

    @cached_property
    def folded(self) -> Column:
        """Whether chunks lie in a V, so that the first rank has both ends of the model."""
        folds = [number for number, rule in enumerate(RULES.values()) if rule.placement is Placement.V]
        return np.isin(self.schedule, folds)

    @cached_property
    def world(self) -> Column:
        """Devices of the plan."""
        return prod(getattr(self, axis) for axis in AXES) * self.context

    @cached_property
    def replicas(self) -> Column:
        """Ranks that hold the same parameters and sum their gradients: replicas, and those that share samples."""
        return self.data * self.context

    @cached_property
    def padded_vocab(self) -> Column:
        """Rows of the vocabulary that one tensor rank holds."""
        return np.ceil(self.vocab / self.tensor)

    def take(self, index: Any) -> Work:
        """Some of the plans; fields that are one number for all stay so."""
        return replace(self, **{name: getattr(self, name)[index] for name in self.arrays})

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The fields that differ between plans."""
        names = (field.name for field in fields(self) if field.name not in ("shapes", "shape_of"))
        return tuple(name for name in names if np.ndim(getattr(self, name)))

    @cached_property
    def each_shape(self) -> tuple[tuple[Column, Work], ...]:
        """How many layers there are of each shape, and the work as if all layers were of it."""
        if not self.shapes:
            return ((self.layers, self),)
        return tuple((shape.layers, self._all(shape._asdict())) for shape in self.shapes)

    @property
    def smallest(self) -> Work:
        """As if every layer had as few parameters as the smallest."""
        return self._extreme(min)

    @property
    def largest(self) -> Work:
        """As if every layer had as many parameters as the largest."""
        return self._extreme(max)

    def _extreme(self, which: Callable[..., int]) -> Work:
        if not self.shapes:
            return self
        return self._all({name: which(getattr(shape, name) for shape in self.shapes) for name in Shape._fields})

    def _all(self, shape: dict[str, Any]) -> Work:
        return replace(self, **shape | {"layers": self.layers, "shapes": (), "shape_of": ()})

    def __len__(self) -> int:
        """How many plans there are; 0 where every field is one number."""
        return max((len(getattr(self, name)) for name in self.arrays), default=0)

    def as_floats(self) -> Work:
        """The same with arrays of floats, which NumPy divides several times as fast as whole numbers."""
        return replace(self, **{name: getattr(self, name).astype(np.float64) for name in self.arrays})


def model_columns(model: ModelSpec, sequence: int | None = None) -> dict[str, Any]:
    """The columns that follow from a model."""
    s = sequence or model.sequence
    biases = 2 * model.hidden if model.bias == "all" else 0
    replicated = 2 * model.norm_parameters + biases + (2 * model.head_size if model.qk_norm else 0)
    shapes = tuple(
        Shape(model.shape_of.count(place), one.ffn, min(s, one.window or s), one.layer_parameters)
        for place, one in enumerate(model.shapes)
    )
    means = {name: sum(each.layers * getattr(each, name) for each in shapes) / model.layers for name in Shape._fields}
    of_a_layer = means if len(shapes) > 1 else shapes[0]._asdict()
    return {
        **of_a_layer,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_size": model.head_size,
        "gated": int(model.activation == "swiglu"),
        "rotary": int(model.positions == "rotary"),
        "qk_norm": int(model.qk_norm),
        "vocab": model.vocab,
        "replicated_parameters": replicated,
        "position_parameters": model.embedding_parameters - model.hidden * model.vocab,
        "norm_parameters": model.norm_parameters,
        "tied": int(model.tied),
        "dropout": int(model.dropout > 0),
        "sequence": s,
        "shapes": shapes if len(shapes) > 1 else (),
        "shape_of": model.shape_of if len(shapes) > 1 else (),
    }


def plan_columns(plan: Plan, layers: int) -> dict[str, Any]:
    """The columns that follow from a plan."""
    words = plan.recompute_words(layers)
    return {
        "tensor": plan.tensor,
        "sequence_parallel": int(plan.sequence),
        "pipeline": plan.pipeline,
        "virtual": plan.virtual,
        "data": plan.data,
        "zero": plan.zero,
        "microbatch": plan.microbatch,
        "schedule": NAMES.index(plan.named.schedule),
        "full": words.count("full") / layers,
        "selective": words.count("selective") / layers,
        **exchange_columns(plan.compress_gradients, plan.compress_activations, plan.local_steps),
        **_by_link(plan),
    }


def exchange_columns(gradients: str, activations: str, local_steps: int) -> dict[str, Any]:
    """The columns that follow from how a plan sends less: in codes, and seldom."""
    return {
        "local_steps": local_steps,
        "reduce_bytes": bytes_per_number(gradients, 4),
        "feedback": int(gradients != "none"),
        "code_bytes": bytes_per_number(activations, 0),
        **({"data_overlap": 0} if local_steps else {}),  # nothing runs beside a meeting
    }


def _by_link(plan: Plan) -> dict[str, Any]:
    """What else follows from codes of some links, and from meetings that go on beside compute."""
    columns: dict[str, Any] = {"feedback": 1} if codes_used(plan, "gradients") else {}
    if plan.overlap_steps:
        columns["data_overlap"] = plan.overlap_steps * plan.fragments / plan.local_steps
    return columns


def work_of(job: Job, cluster: Cluster, plans: dict[str, Any] | None = None) -> Work:
    """A job as Heddle's own trainer does it: fused attention, fp32 gradients.

    One number in every column, from the job's plan; or the columns of many `plans`.
    """
    if plans is None:
        plan = job.planned.plan
        plans = plan_columns(plan, job.model.layers)
    software = cluster.software or HEDDLE
    kernels = kernels_of(software.facts, cluster.device.host)
    columns = software_columns(software.facts) | plans  # a plan's own say counts: who meets seldom overlaps nothing
    return Work(
        **model_columns(job.model, job.sequence),
        **columns,
        batch=job.train.global_batch,
        precision=job.precision,
        **{**kernels.columns(), "eager": kernels.eager * int(job.model.norm == "rmsnorm")},
        eager_heads=kernels.eager,
        attention_speed=attention_speed(software.facts, cluster.device),
    )
