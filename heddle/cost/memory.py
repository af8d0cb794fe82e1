"""Bytes on one device: weights, gradients, optimizer, activations in flight, and what lives for a moment.

Every function is of one layer, one end of the model or one rank, so that layers may differ. Each term is a tensor that
the trainer holds, and the dry run counts the same ones in the trainer itself; what depends on kernels is stated in
`heddle.cost.kernels`. A rank that holds several chunks holds the sum of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost import adapters, elementwise_memory, experts, latent
from heddle.cost.attention_memory import (
    Queries,
    block_of_scores,
    context_backward,
    context_core,
    context_swaps,
    score_sums,
    window_backward,
    window_core,
)
from heddle.cost.work import Work
from heddle.schedule.rule import Column, Mask
from heddle.spec.cluster import Cluster
from heddle.spec.layer_memory import Recompute

MASTER, MOMENTS = 4, 8  # bytes per parameter: full-precision copy of 16-bit weights, Adam's two moments
GRADIENT = 4  # bytes per parameter of a gradient that replicas share: always in full precision
NORM_ROW = 8  # bytes per token that a norm keeps beside its input: mean and spread


class MemoryBreakdown(NamedTuple):
    """Bytes that one rank holds at its peak."""

    weights: float
    gradients: float
    optimizer: float  # moments, and full-precision masters where weights have less
    fetched: float  # weights of sharded or offloaded layers while they are used, gathered or brought back
    activations: float
    buffers: float  # that live for one operation or one message: gradients of logits, what is recomputed
    slack: float  # what the allocator cannot use

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self)


def layer_parameters(work: Work) -> Column:
    """Parameters of one layer on one tensor rank that learn."""
    every = (work.held_parameters - work.replicated_parameters) / work.tensor + work.replicated_parameters
    return adapters.learned(work, every)


def end_parameters(work: Work, first: Mask, last: Mask) -> Column:
    """Parameters that learn which the first and the last stage hold beside their layers.

    A tied embedding lives on both; where one stage is first and last, once.
    """
    table = work.padded_vocab * work.hidden
    begins = np.where(first, (table + work.position_parameters) * work.learns_embed, 0.0)
    own = np.where(first, (1 - work.tied) * table, table) if np.any(work.tied) else table
    own = (own + work.head_bias * work.padded_vocab) * work.learns_head
    return begins + np.where(last, own + work.norm_parameters * work.learns_norm, 0.0)


class StateBytes(NamedTuple):
    """What `states` come to: bytes for each parameter of a rank, and for each of its largest layer."""

    kept: Column  # weights and optimizer
    gradients: Column
    gathered: Column
    of_largest: Column  # gathered, too


def state_bytes(work: Work) -> StateBytes:
    """Of every parameter alike: `states` are linear in both."""
    weights, gradients, optimizer, gathered = states(work, 1.0, 0.0)
    return StateBytes(weights + optimizer, gradients, gathered, states(work, 0.0, 1.0)[3])


def states(work: Work, parameters: Column, largest: Column) -> tuple[Column, Column, Column, Column]:
    """Weights, gradients, optimizer and gathered parameters, for the parameters of one rank.

    Mixed precision keeps 2 + 4 + 4 + 8 = 18 bytes per parameter, fp32 4 + 4 + 8 = 16 (arXiv 1910.02054 §3.1, with
    gradients in fp32). Replicas share the optimizer's part from ZeRO-1 on; from ZeRO-2 on they share all three, and a
    shard of weights is its own fp32 master. What is used is gathered: by ZeRO-3 one layer and the next, by ZeRO-2 all.
    Gradients that travel in codes keep what these could not say: of their own, and without ZeRO of the sums they own.
    `largest`: parameters of the largest layer.
    """
    shard = parameters / work.sharers
    weights = parameters * work.element
    moments: Column = work.moment_bytes
    master: Column = MASTER if work.element < 4 else 0
    if np.any(work.pure):
        moments, master = np.where(work.pure, 2 * work.element, moments), np.where(work.pure, 0, master)
    gradients = (parameters + np.where(work.zero == 1, work.summed_apart * shard, 0.0)) * work.gradient_bytes
    if np.any(work.sharded_gradients):
        gradients = np.where(work.sharded_gradients, shard * work.gradient_bytes, gradients)
    optimizer = np.where(work.zero >= 1, shard, parameters) * (moments + master)
    if np.any(work.local_steps):  # the weights that replicas left from, their momentum, and how far they have come
        gradients = gradients + np.where(work.local_steps > 0, 12 * parameters, 0.0)
    codes: Column = 0.0
    if np.any(work.feedback):  # on one replica nothing is sent
        coded = work.feedback * (work.replicas > 1)
        gradients = gradients + coded * 4 * (parameters + np.where(work.zero == 0, shard, 0.0))
        codes = coded * 2 * parameters * work.reduce_bytes  # what is sent and what is received
    copy = work.copied * parameters * work.element / np.where(work.zero == 3, work.replicas, 1)  # of a reference
    if not np.any(work.zero >= 2):
        return weights + copy, gradients, optimizer, codes
    sharded = np.greater_equal(work.zero, 2) & np.greater(work.replicas, 1)  # one replica shares nothing with itself
    in_use = np.where(work.zero == 3, 2 * largest, parameters) * work.element + largest * work.reduce_bytes
    kept = np.where(work.pure, work.element, work.reduce_bytes)
    whole = work.sums_once * np.greater(work.microbatches, 1) * parameters * kept  # until they are summed
    return (
        np.where(sharded, shard * np.where(work.pure, work.element, MASTER), weights) + copy,
        np.where(sharded, shard * work.gradient_bytes + whole, gradients),
        np.where(sharded, shard * moments, optimizer),
        np.where(sharded, in_use, codes),
    )


class Saved(NamedTuple):
    """Bytes that one microbatch leaves in one layer for its backward, by what is recomputed."""

    none: Column
    selective: Column
    elementwise: Column
    per_op: Column
    full: Column
    backward: Column  # that a layer holds for a moment on its way back, beside all that was saved
    again: Column = 0.0  # for a moment while it is computed once more, beyond what that leaves: the masks of dropout
    core: Column = 0.0  # what the attention core takes when it alone comes back, beyond what the MLP has let go
    remade: Column = 0.0  # what comes back of a layer that recomputes all but its products, beyond what it kept
    late: Column = 0.0  # what attention with a window takes on its way back, beyond what the MLP has let go

    def mean(self, work: Work) -> Column:
        """Over all layers of a work."""
        return self.kept(work) - work.full * (self.none - self.full)

    @property
    def by_word(self) -> dict[Recompute, Column]:
        """By what a plan calls it."""
        return {"none": self.none, "selective": self.selective, "elementwise": self.elementwise, "full": self.full}

    def kept(self, work: Work) -> Column:
        """Over all layers of a work but those that recompute everything."""
        kept = self.none
        for share, less in (
            (work.selective, self.selective),
            (work.elementwise, self.elementwise),
            (work.per_op, self.per_op),
        ):
            if np.any(share):
                kept = kept - share * (self.none - less)
        return kept

    def moment(self, work: Work, full: Mask | None = None) -> Column:
        """What the layer that is on its way back holds beside what all left behind.

        A layer that recomputes all, or all but its products, has it all again before its first gradient. The attention
        core comes back when the MLP has already let go of its own. `full`: whether it recomputes all; None: it does
        where any layer does.
        """
        sure = full
        full = work.full > 0 if sure is None else sure
        less = np.where(work.per_op > 0, self.none - self.per_op, 0.0) if np.any(work.per_op) else 0.0
        once_more = full
        if np.any(work.elementwise):
            most = work.elementwise > 0 if sure is None else work.elementwise >= 1
            less = np.where(most, self.remade, less)
            once_more = full | most
        again = np.where(once_more, np.maximum(self.backward, self.again), self.backward)
        whole = np.where(full, self.none - self.full, less) + again
        if not np.any(work.selective):
            return whole
        fullest: Column = np.maximum(whole, np.where(work.selective > 0, self.core, 0.0))
        return fullest


def layer_activations(work: Work) -> Saved:
    """What one microbatch leaves in one layer for its backward.

    The tensors that autograd keeps, each once however many views there are of it. With fused kernels and dropout these
    are the items of arXiv 2205.05198 §4.1: for GPT s·b·h·(10 + 24/t + 5·a·s/(h·t)), and under sequence parallelism all
    of it over t (its Table 2).
    """
    e, tokens, t = work.element, work.tokens, work.tensor
    outside = np.where(work.sequence_parallel, t, 1)
    query, key = work.heads * work.head_size, work.kv_heads * work.head_size
    # The input of each norm, and what it makes of it, which the products read. Norm by norm in single kernels: the
    # input in fp32, and the input over its size before the weight multiplies it.
    normed = norm_bytes(work)
    inside = np.where(work.keeps_gathered, 1, outside)
    masks = 2 * work.dropout
    split_by_sequence = tokens * (work.hidden * (work.norm_inputs * normed + masks) + work.norms * NORM_ROW) / outside
    split_by_sequence = split_by_sequence + tokens * work.hidden * work.branch_inputs * e / inside
    # Query, key and value as one product made them: the values are a view into it and keep it all alive. The queries of
    # several groups are copied together; rotary positions and norms make queries and keys anew. Norms also lay queries
    # out head by head, and attention its output, which is then copied for its product.
    copied = np.where((work.kv_heads < work.heads) & (work.kv_heads > t), query, 0.0)
    norm_reads = np.where(((work.eager_heads + work.heads_apart > 0) & (e < 4)) | (work.heads_apart == 2), 0.0, copied)
    output = np.where(work.heads > t, query, 0.0)
    laid_out = np.maximum(work.qk_norm * (work.heads_apart == 0), work.rotary * work.relaid) * output
    own = np.where(work.qk_norm, norm_reads, 0.0) + laid_out
    anew = np.where((work.rotary + work.qk_norm) > 0, query + key + own, copied) * work.joint_qkv
    scaled = np.where(work.eager_heads, 4 if e == 4 else 8, 0)  # as for the other norms, over what is counted already
    scaled = np.where(work.heads_apart > 0, 4 * work.heads_apart if e == 4 else 4 + e, scaled)
    heads = work.qk_norm * ((query + key) * scaled + 4 * (work.heads + work.kv_heads))
    # attention's output, which the output product reads; what the activation reads, and what it makes for the last
    ffn = (work.ffn + work.routed * (work.imbalance - 1)) * wide_kept(work)
    split_by_tensor = tokens / t * ((2 * query + 2 * key + anew + ffn) * e + heads)
    if np.any(work.kv_latent):
        laid_out = np.where(work.kv_latent, np.where(work.value_size, query, 0.0), laid_out)
        through = tokens / t * ffn * e + latent.kept(work)
        split_by_tensor = np.where(work.kv_latent, through, split_by_tensor)
    # softmax, its dropout's mask and output; fused attention keeps one number per row instead
    pairs = tokens * work.heads / t * work.sequence
    core = np.where(work.fused, tokens * work.heads / t * 4, pairs * (e + work.dropout * (e + 1)))
    none = split_by_sequence + split_by_tensor + core + experts.kept(work) + adapters.kept(work)
    selective = none - core - tokens / t * e * laid_out * work.joint_qkv  # which the core copies
    late: Column = 0.0
    again, backward = none - selective, layer_backward(work)
    through_latents = none  # whoever shares tokens keeps as much, in other copies
    if np.any(work.scored):
        # the core goes back when the MLP has let go of its own
        let_go = tokens * (work.hidden * (normed + e) / outside + ffn * e / t)
        repeated = np.where(work.kv_heads < work.heads, 4 * query - (2 * query + 2 * key + anew), 0.0)
        none = selective + tokens / t * e * (repeated + laid_out * work.joint_qkv) + score_sums(work)
        late = block_of_scores(work) + tokens * work.hidden * e / outside - let_go
        again = none - selective + block_of_scores(work)
        backward = np.maximum(backward, late)
    elif np.any(windowed := (work.window_block > 0) & (work.window < work.sequence)):
        views = (work.rotary + work.qk_norm == 0) & (copied == 0)
        joint = np.where(work.eager_heads * (e < 4), 0.0, query + 2 * key)
        given = Queries(query, key, views, work.qk_norm * (joint + norm_reads), laid_out)
        kept = none - core - tokens / t * e * (2 * key + query + anew) + window_core(work, given)
        none = np.where(windowed, kept, none)
        # the core goes back when the MLP has let go of its own
        let_go = tokens * (work.hidden * (normed + e) / outside + ffn * e / t)
        late = window_backward(work, query) + tokens * work.hidden * e / outside - let_go
        again = np.where(windowed, window_core(work, given, alone=True) + late, again)
        late = np.where(windowed, late, 0.0)
        backward = np.maximum(backward, late)
    if np.any(shared := (work.context > 1) & (work.context_parts > 0)):
        joint = np.where(work.eager_heads * (e < 4), 0.0, query + 2 * key)
        views = np.where((work.rotary == 0) & (copied == 0), query + 2 * key, copied)
        queries = np.where(work.rotary + work.qk_norm, query, views)  # an all-to-all copies them
        given_all = work.qk_norm * (joint + norm_reads) + np.where(context_swaps(work), 0.0, queries)
        held = context_core(work, query, key)
        plain = selective - tokens / t * e * (query + 2 * key + np.where(work.qk_norm, anew - output, anew))
        none = np.where(shared, plain + held + tokens / t * e * given_all, none)
        let_go = tokens * (work.hidden * (normed + e) / outside + ffn * e / t)
        back = context_backward(work, query, key) + tokens * work.hidden * e / outside - let_go
        late = np.where(shared, back, late)
        again = np.where(shared, held + np.maximum(back, 0.0), again)
        backward = np.where(shared, np.maximum(layer_backward(work), back), backward)
    none = np.where(work.kv_latent, through_latents, none) if np.any(work.kv_latent) else none
    if np.any(work.captured):
        # what was looked at; tensor ranks share all but the inputs of norms and products, and what these give
        held = tokens * work.captured * e / 4
        whole = np.minimum(held, 4 * tokens * work.hidden * e)
        none = selective = np.where(work.captured > 0, whole + (held - whole) / t, none)
        again = np.zeros_like(none)
    # torchtitan keeps the input, attention's output and every second product: query, value, gate, down
    per_op = tokens * e * (work.hidden * 2 / outside + (2 * query + key + work.ffn) / t)
    elementwise = elementwise_memory.kept(work)
    return Saved(
        none=none,
        selective=selective,
        elementwise=elementwise,
        per_op=per_op,
        full=tokens * work.hidden * e / outside + work.keeps_qkv * tokens * (query + 2 * key) / t * e,
        backward=backward,
        again=dropping(work) + tokens * work.hidden * e / outside,  # beside the gradient that waits
        core=again,
        remade=none - elementwise,
        late=late,
    )


def norm_bytes(work: Work) -> Column:
    """Bytes per number that a norm keeps of its input."""
    return np.where(work.eager, 4 + 4 * work.learns_norm, np.where(work.upcast, 4, work.element))


def wide_kept(work: Work) -> Column:
    """Activations as wide as the MLP that it keeps: what its activation reads, and what its last product does."""
    return 2 + work.gated * np.where(work.fused_gate, 1, 2) - work.rectified


HASHES = 12  # bytes per number while its fate is drawn: the hash and two on the way to it, 32 bits each


def dropping(work: Work) -> Column:
    """Bytes that a layer's last dropout takes for a moment beyond what it leaves: its input, and no mask yet."""
    return (
        work.dropout
        * work.tokens
        * work.hidden
        / np.where(work.sequence_parallel, work.tensor, 1)
        * (HASHES + work.element - 1)
    )


def stream(work: Work) -> Column:
    """Bytes of a microbatch between two layers."""
    return work.tokens * work.hidden * work.element / np.where(work.sequence_parallel, work.tensor, 1)


def layer_backward(work: Work, shared: bool = False) -> Column:
    """Bytes that a layer's backward holds for a moment: gradients of activations, and of one weight before it is added.

    They are most at its beginning, in the MLP, when hardly anything that was saved has been let go: at its last
    product, at a gate's, or under sequence parallelism at its first product, which gathers its input and scatters the
    gradient.
    """
    e, tokens, t, h = work.element, work.tokens, work.tensor, work.hidden
    outside, ffn = np.where(work.sequence_parallel, t, 1), tokens * work.ffn / t
    weight = (1 - work.adds_in_place) * (1 - work.frozen) * h * work.ffn / t
    gathered = np.where(work.sequence_parallel, tokens * h, 0.0)
    arriving = tokens * h / outside
    # where replicas share the layer, memory for all of its gradients is taken then, and that of the last is copied away
    last = arriving + gathered + ffn + (0.0 if shared else weight) + experts.moment(work) + adapters.moment(work) / e
    gate = work.gated * (arriving + np.where(work.fused_gate, 1, 2) * ffn)
    # gathered input and gradient to scatter, which gloo adds up apart; the activation's tensors are gone, and of a
    # gated MLP the gradient of its other half still waits
    let_go = wide_kept(work) * ffn
    first = arriving * 2 + (2 + work.gloo) * gathered + (1 + work.gated) * ffn + weight - let_go
    products = np.maximum(np.maximum(last, gate), np.where(work.sequence_parallel, first, 0.0))
    # a norm of many kernels goes back in fp32, when all of the MLP's is gone: four such tensors, and two gradients
    norm = arriving * (2 * e + 16) - (let_go + arriving) * e
    fullest: Column = np.maximum(e * products, np.where(work.eager, norm, 0.0))
    return fullest


def owed_products(work: Work) -> Column:
    """Bytes that a layer's linear layers hold where their weight gradients are put off: both factors of each product.

    An input that sequence parallelism slices is gathered again when it is multiplied; the gradient of a row-parallel
    layer's output was gathered for its input's and stays.
    """
    t, h = work.tensor, work.hidden
    query, pair = work.heads * work.head_size, 2 * work.kv_heads * work.head_size
    inputs = 2 * h / np.where(work.sequence_parallel, t, 1) + (query + work.deferrable) / t
    gradients = (query + pair + (1 + work.gated) * work.deferrable) / t + 2 * h
    return work.tokens * work.element * (inputs + gradients)


def split_backward(work: Work) -> Column:
    """The same where weight gradients are put off, at the activation: its input and output stay, and both gradients.

    An input's gradient waits, and under sequence parallelism the output's is gathered.
    """
    tokens, t, h = work.tokens, work.tensor, work.hidden
    outside, gathered = np.where(work.sequence_parallel, t, 1), np.where(work.sequence_parallel, tokens * h, 0.0)
    return work.element * (tokens * h / outside + gathered + (2 + work.gated) * tokens * work.ffn / t)


def owed_by_the_mlp(work: Work) -> Column:
    """Bytes that the MLP holds on to there: inputs of its products, and gradients of their outputs."""
    t, outside = work.tensor, np.where(work.sequence_parallel, work.tensor, 1)
    return work.tokens * work.element * (work.hidden / outside + work.hidden + (2 + work.gated) * work.deferrable / t)


def weight_products(work: Work) -> Column:
    """Bytes for a moment where weight gradients that were put off are made: of one weight, once more as it is added."""
    gathered = np.where(work.sequence_parallel, work.tokens * work.hidden, 0.0)
    return work.element * (2 * work.hidden * work.ffn / work.tensor + gathered)


def slack(cluster: Cluster, held: Column) -> Column:
    """What the allocator cannot use of what it holds, a stated constant of the cluster."""
    return cluster.efficiency.slack * held
