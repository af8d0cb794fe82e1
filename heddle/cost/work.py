"""What is trained and how it is split, as columns: the one input of all cost functions.

Every field is a number or a NumPy array of numbers, and so is every cost: the same function prices one plan, a
hundred thousand plans of one model, or measured runs of many models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from math import prod
from operator import or_
from typing import Any

import numpy as np

from heddle.cost.imbalance import slowest_share
from heddle.cost.kernels import HEDDLE_GPU
from heddle.cost.model_columns import LayerShape, model_columns
from heddle.cost.plan_columns import learning_columns, plan_columns
from heddle.cost.software import attention_speed, kernels_of, software_columns
from heddle.schedule import NAMES, RULES, ChunkPlacement, Rule
from heddle.schedule.rule import Column, Mask
from heddle.spec.axes import AXES
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.software import HEDDLE

ELEMENT = {"fp32": 4, "bf16": 2, "fp16": 2}


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
    ffn: Column  # the width that a token is computed with
    gated: Column  # 1: an MLP whose first half is two matrices
    rotary: Column
    qk_norm: Column
    vocab: Column
    layer_parameters: Column  # of a layer without its experts
    replicated_parameters: Column  # of a layer, those that every tensor rank holds: norms, biases after a sum
    position_parameters: Column
    norm_parameters: Column
    tied: Column
    dropout: Column  # 1: masks are made and kept
    norms: Column = 2  # over the hidden size, of a layer
    norm_inputs: Column = 2  # activations of the hidden size that these read
    branch_inputs: Column = 2  # activations of the hidden size that the first products of attention and MLP read
    branch_outputs: Column = 1  # of what attention and MLP add to the residual stream, what a norm reads, or their sum
    scored: Column = 0  # 1: attention changes its scores, which no fused kernel does (`heddle.models.scored_attention`)
    capped: Column = 0  # 1: logits are capped
    heads_apart: Column = 0  # norms of queries and keys have weights for every head: 1 without, 2 with a mean
    relaid: Column = 0  # 1: turning lays queries and keys out head by head: a part of each head, or neighbors
    upcast: Column = 0  # 1: norms read and keep full precision, as those with weights around zero do
    rectified: Column = 0  # 1: the activation keeps what it made, not what it read
    head_bias: Column = 0
    # latent attention, explained in heddle.cost.latent
    kv_latent: Column = 0  # 0: keys and values come straight from the token
    q_latent: Column = 0
    turning: Column = 0  # numbers of a head that turn, where the others do not
    value_size: Column = 0  # of a head's values; 0: as head_size
    captured: Column = 0  # bytes that a token leaves in a layer in fp32, where that was looked at; 0: it follows
    # experts in place of MLPs
    experts: Column = 0
    routed: Column = 0  # of the ffn, what the experts make that a token chose: top_k times the width of one
    top_k: Column = 1
    expert_parameters: Column = 0  # of a layer's experts
    expert_share: Column = 0.0  # of the model's parameters, those of experts
    shared_gate: Column = 0
    spread: float = 0.2  # of the use of a layer's experts, relative to its mean; one for all columns
    z_loss: Column = 0  # 1: the router's scores are kept for a loss of their own
    router_groups: Column = 0  # of experts, of which a token uses some; 0: it may use any
    router_top_groups: Column = 0
    # the batch
    batch: Column  # samples per step, over all replicas
    sequence: Column  # tokens per sample
    window: Column  # tokens that one may look at
    document: Column = np.inf  # tokens of a document, of which a sample holds several that do not see each other
    shapes: tuple[LayerShape, ...] = ()  # of layers that differ; empty: all are alike
    shape_of: tuple[int, ...] = ()  # for each layer the place of its own among these
    # fine-tuning, explained in heddle.cost.adapters
    frozen: Column = 0  # 1: layers' own weights do not learn
    quantized: Column = 0  # 1: their matrices are kept in four bits
    rank: Column = 0  # of adapters
    fused_adapters: Column = 1  # 1: they add to what the product beside them made, in place (heddle.models.lora)
    adapters_qkv: Column = 0  # how many of a layer's adapters stand beside the product of queries, keys and values
    adapters_out: Column = 0
    adapters_up: Column = 0  # beside the first products of the MLP
    adapters_down: Column = 0
    adapters_split: Column = 0  # numbers of a layer's adapters that tensor ranks split
    adapters_whole: Column = 0  # those that each of them holds
    learns_embed: Column = 1
    learns_head: Column = 1
    learns_norm: Column = 1
    # how numbers are kept
    moment_bytes: Column = 8  # of what the optimizer remembers of a number: Adam's two moments
    muon: Column = 0  # 1: matrices are updated by Muon, which has one
    reference: Column = 0  # 1: every microbatch is seen forward by a reference first
    copied: Column = 0  # 1: which has weights of its own
    precision: str  # of weights and matrix products; one for all columns
    fp8: Column = 0  # 1: the layers' matrix products in 8 bits
    gradient_bytes: Column = 4  # of a gradient that is kept over microbatches
    pure: Column = 0  # 1: the optimizer works on weights as they are, without a copy in full precision
    summed_apart: Column = 0  # 1: under ZeRO-1 the sum goes into a shard of its own; our trainer sums in place
    reduce_bytes: Column = 4  # of a gradient that is sent
    feedback: Column = 0  # 1: gradients are sent in codes, and what these could not say is kept
    local_steps: Column = 0  # steps between two meetings of replicas; 0: they meet in every step
    code_bytes: Column = 0  # of a number that is sent between stages in codes; 0: as it is computed with
    # the kernels, explained in heddle.cost.kernels
    fused: Column = HEDDLE_GPU.fused
    attention_speed: Column = 1.0  # of fused attention, relative to FlashAttention-2
    eager: Column = HEDDLE_GPU.eager
    eager_heads: Column = 0  # the same for the norms of queries and keys
    fused_gate: Column = HEDDLE_GPU.fused_gate
    joint_qkv: Column = HEDDLE_GPU.joint_qkv
    keeps_gathered: Column = HEDDLE_GPU.keeps_gathered
    adds_in_place: Column = HEDDLE_GPU.adds_in_place
    gloo: Column = HEDDLE_GPU.gloo
    logits_at_once: Column = HEDDLE_GPU.logits_at_once
    kept_logit: Column = HEDDLE_GPU.kept_logit
    brief_logit: Column = HEDDLE_GPU.brief_logit
    brief_split_logit: Column = HEDDLE_GPU.brief_split_logit
    loss_forward: Column = HEDDLE_GPU.loss_forward
    loss_backward: Column = HEDDLE_GPU.loss_backward
    posted: Column = HEDDLE_GPU.posted
    window_block: Column = HEDDLE_GPU.window_block
    pads_values: Column = HEDDLE_GPU.pads_values
    fused_permute: Column = HEDDLE_GPU.fused_permute
    replayed: Column = HEDDLE_GPU.replayed
    sent: Column = HEDDLE_GPU.sent
    context_parts: Column = HEDDLE_GPU.context_parts
    # the plan
    tensor: Column = 1
    sequence_parallel: Column = 0
    tensor_chunks: Column = 1  # of the tokens, which a forward exchanges beside its products
    pipeline: Column = 1
    virtual: Column = 1
    data: Column = 1
    zero: Column = 0
    microbatch: Column = 1
    schedule: Column = 0  # its place in heddle.schedule.NAMES; 1F1B of several chunks is the interleaved one
    full: Column = 0.0  # share of the layers that recompute everything
    selective: Column = 0.0  # share of the layers that recompute the attention core
    elementwise: Column = 0.0  # share that recompute all but products and attention
    per_op: Column = 0.0  # share that recompute every second matrix product (torchtitan's "selective")
    # what others do otherwise than Heddle
    stops_early: Column = 1  # 1: recomputing ends before the last product, which no backward needs (PyTorch ≥ 2.1)
    keeps_qkv: Column = 0  # 1: layers that recompute everything keep query, key and value all the same (MaxText)
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
    own_sums: Column = 0  # 1: every product of a layer sums the gradient of its input over tensor ranks by itself
    whole_loss: Column = 0  # 1: tensor ranks gather all logits, and each makes the whole loss
    sums_once: Column = 0  # 1: sharded layers sum their gradients in the last microbatch only
    sharded_gradients: Column = 0  # 1: replicas keep their share of gradients only, as from ZeRO-2 on
    shard_ranks: Column = np.inf  # replicas that share the optimizer, or all states, at most; groups are alike
    groups_once: Column = 0  # 1: such groups sum their shares once per step, not in every microbatch
    large_gathers: Column = 0  # 1: ZeRO's gathers are of so much at once that they are as fast as links are
    sums_whole: Column = 0  # 1: ZeRO-1 sums gradients for all replicas, though each needs its share only
    broadcasts: Column = 0  # 1: ZeRO-1 gives each replica whole tensors, and it sends them to all others by itself
    expert_overlap: Column = 0.0  # share of the exchange with experts that runs beside another microbatch
    expert_by_node: Column = 0  # 1: a token goes to each node once, however many of its experts are there
    expert_fp8: Column = 0  # 1: where products are in 8 bits, those of experts are, too
    dispatch_fp8: Column = 0  # 1: and so are the rows that go to them, and the gradients of what they made
    cast_reads: Column = 2  # passes over what becomes 8 bits: 2 where its largest value must be known before
    fused_casts: Column = 0.0  # share of activations that are made in 8 bits at once
    context: Column = 1  # ranks that share the tokens of each sample
    expert: Column = 1  # ranks of data × context that share the experts of each layer
    whole_experts: Column = 0  # 1: tensor ranks share them as well, and split none
    context_exchange: Column = 0  # how keys and values reach them: its place in heddle.spec.software.CONTEXT_EXCHANGES
    context_inner: Column = 1  # of a 2d exchange: ranks of each group that exchange by all-to-all

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
    def values(self) -> Column:
        """Numbers of a head's values."""
        return np.where(self.value_size, self.value_size, self.head_size)

    @cached_property
    def all_experts(self) -> Column:
        """The width of all experts together."""
        return self.experts * self.routed / self.top_k

    @cached_property
    def deferrable(self) -> Column:
        """Of the ffn, what may put its weight gradients off: experts make theirs at once."""
        return self.ffn - self.routed

    @cached_property
    def microbatches(self) -> Column:
        """Microbatches of a step on each rank."""
        return self.batch / (self.data * self.microbatch)

    @cached_property
    def schedules(self) -> tuple[int, ...]:
        """The schedules that occur."""
        numbers = np.asarray(self.schedule, dtype=np.int64).ravel()
        return tuple(np.flatnonzero(np.bincount(numbers)).tolist())

    @cached_property
    def gpipe(self) -> Mask:
        """Whether all forwards come before all backwards."""
        return self.has(lambda rule: rule.forwards_first)

    def has(self, what: Callable[[Rule], bool]) -> Mask:
        """Whether the schedules of the plans have some property."""
        return reduce(or_, (self.schedule == number for number, name in enumerate(NAMES) if what(RULES[name])))

    @cached_property
    def splits(self) -> Mask:
        """Whether backwards are taken in two."""
        return np.isin(self.schedule, [number for number, rule in enumerate(RULES.values()) if rule.splits])

    @cached_property
    def folded(self) -> Mask:
        """Whether chunks lie in a V, so that the first rank has both ends of the model."""
        folds = [number for number, rule in enumerate(RULES.values()) if rule.placement is ChunkPlacement.V]
        return np.isin(self.schedule, folds)

    @cached_property
    def world(self) -> Column:
        """Devices of the plan."""
        world: Column = prod(getattr(self, axis) for axis in AXES)
        return world

    @cached_property
    def replicas(self) -> Column:
        """Ranks that hold the same parameters and sum their gradients: replicas, and those that share samples."""
        return self.data * self.context

    @cached_property
    def sharing(self) -> Column:
        """Replicas that share the optimizer's states from ZeRO-1 on, weights and gradients from ZeRO-2 on."""
        return np.minimum(self.replicas, self.shard_ranks)

    @cached_property
    def held_parameters(self) -> Column:
        """Parameters of a layer, before tensor parallelism splits them: of its experts those of one rank."""
        return self.layer_parameters + self.expert_parameters / self.expert * self.expert_copies

    @cached_property
    def expert_copies(self) -> Column:
        """Ranks along the tensor axis that experts are not split over: all, or none."""
        return np.where(self.whole_experts, self.tensor, 1) if np.any(self.whole_experts) else 1

    @cached_property
    def routed_tokens(self) -> Column:
        """Tokens of a microbatch that a rank sends to experts."""
        return self.tokens / self.expert_copies

    @cached_property
    def expert_replicas(self) -> Column:
        """Ranks that hold the same experts."""
        return self.sharing * self.expert_copies / self.expert

    @cached_property
    def expert_stride(self) -> Column:
        """How far apart these sit."""
        return self.tensor / self.expert_copies * self.expert

    @cached_property
    def expert_held(self) -> Column:
        """Of the parameters that a rank holds, those of experts, as a mean over ranks."""
        experts = self.expert_share / self.expert * self.expert_copies
        return experts / (1 - self.expert_share + experts)

    @cached_property
    def sharers(self) -> Column:
        """Ranks that share the optimizer's state of what each of them holds, as a mean: fewer hold the same experts."""
        return self.sharing * (1 - self.expert_share * (1 - self.expert_copies / self.expert))

    @cached_property
    def imbalance(self) -> Column:
        """How many rows the fullest of the ranks has that share experts, relative to their mean."""
        return slowest_share(self.experts, self.expert, self.spread)

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
        return self._all({name: which(getattr(shape, name) for shape in self.shapes) for name in LayerShape._fields})

    def _all(self, shape: dict[str, Any]) -> Work:
        return replace(self, **shape | {"layers": self.layers, "shapes": (), "shape_of": ()})

    def __len__(self) -> int:
        """How many plans there are; 0 where every field is one number."""
        return max((len(getattr(self, name)) for name in self.arrays), default=0)

    def as_floats(self) -> Work:
        """The same with arrays of floats, which NumPy divides several times as fast as whole numbers."""
        return replace(self, **{name: getattr(self, name).astype(np.float64) for name in self.arrays})


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
    if job.model.own:  # whose loss keeps its logits, all of them, and which makes queries, keys and values as it likes
        kernels = kernels._replace(logits_at_once=0, kept_logit=4, brief_logit=8, brief_split_logit=8, joint_qkv=0)
        columns["whole_loss"] = 1
    return Work(
        **model_columns(job.model, job.sequence, job.tune),
        **learning_columns(job),
        **columns,
        batch=job.train.global_batch,
        precision=job.storage,
        fp8=int(job.precision == "fp8"),
        spread=cluster.efficiency.expert_spread,
        **{**kernels.columns(), "eager": kernels.eager * int(job.model.norm == "rmsnorm")},
        eager_heads=kernels.eager * int(job.model.norm == "rmsnorm"),
        attention_speed=attention_speed(software.facts, cluster.device),
    )
