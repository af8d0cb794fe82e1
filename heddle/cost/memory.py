"""Bytes on one device: weights, gradients, optimizer, activations in flight, and what lives for a moment.

Every function is of one layer, one end of the model or one rank, so that layers may differ. Each term is a tensor that
the trainer holds, and the dry run counts the same ones in the trainer itself; what depends on kernels is stated in
`heddle.cost.kernels`. A rank that holds several chunks holds the sum of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost.work import Column, Work
from heddle.spec.cluster import Cluster

MASTER, MOMENTS = 4, 8  # bytes per parameter: full-precision copy of 16-bit weights, Adam's two moments
NORM_ROW = 8  # bytes per token that a norm keeps beside its input: mean and spread


class MemoryBreakdown(NamedTuple):
    """Bytes that one rank holds at its peak."""

    weights: Column
    gradients: Column
    optimizer: Column  # moments, and full-precision masters where weights have less
    activations: Column
    buffers: Column  # that live for one operation or one message: gradients of logits, what is recomputed or gathered
    slack: Column  # what the allocator cannot use

    @property
    def total(self) -> Column:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers + self.slack


def layer_parameters(work: Work) -> Column:
    """Parameters of one layer on one tensor rank."""
    return (work.layer_parameters - work.replicated_parameters) / work.tensor + work.replicated_parameters


def end_parameters(work: Work, first: Column, last: Column) -> Column:
    """Parameters that the first and the last stage hold beside their layers.

    A tied embedding lives on both; where one stage is first and last, once.
    """
    table = work.padded_vocab * work.hidden
    begins = np.where(first, table + work.position_parameters, 0.0)
    own = np.where(first, (1 - work.tied) * table, table) if np.any(work.tied) else table
    return begins + np.where(last, own + work.norm_parameters, 0.0)


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
    shard = parameters / work.replicas
    weights = parameters * work.element
    gradients = (parameters + np.where(work.zero == 1, work.summed_apart * shard, 0.0)) * work.gradient_bytes
    if np.any(work.sharded_gradients):
        gradients = np.where(work.sharded_gradients, shard * work.gradient_bytes, gradients)
    optimizer = np.where(work.zero >= 1, shard, parameters) * (MOMENTS + (MASTER if work.element < 4 else 0))
    if np.any(work.local_steps):  # the weights that replicas left from, their momentum, and how far they have come
        gradients = gradients + np.where(work.local_steps > 0, 12 * parameters, 0.0)
    codes: Column = 0.0
    if np.any(work.feedback):  # on one replica nothing is sent
        coded = work.feedback * (work.data > 1)
        gradients = gradients + coded * 4 * (parameters + np.where(work.zero == 0, shard, 0.0))
        codes = coded * 2 * parameters * work.reduce_bytes  # what is sent and what is received
    if not np.any(work.zero >= 2):
        return weights, gradients, optimizer, codes
    sharded = work.zero >= 2
    in_use = np.where(work.zero == 3, 2 * largest, parameters) * work.element + largest * work.reduce_bytes
    return (
        np.where(sharded, shard * MASTER, weights),
        np.where(sharded, shard * work.gradient_bytes, gradients),
        np.where(sharded, shard * MOMENTS, optimizer),
        np.where(sharded, in_use, codes),
    )


class Saved(NamedTuple):
    """Bytes that one microbatch leaves in one layer for its backward, by what is recomputed."""

    none: Column
    selective: Column
    per_op: Column
    full: Column
    backward: Column  # that a layer holds for a moment on its way back, beside all that was saved

    def mean(self, work: Work) -> Column:
        """Over all layers of a work."""
        rest = 1 - work.full - work.selective - work.per_op
        mixed = work.full * self.full + work.selective * self.selective + work.per_op * self.per_op
        return rest * self.none + mixed

    def kept(self, work: Work) -> Column:
        """Over all layers of a work but those that recompute everything."""
        kept = self.none
        for share, less in ((work.selective, self.selective), (work.per_op, self.per_op)):
            if np.any(share):
                kept = kept - share * (self.none - less)
        return kept

    def moment(self, work: Work, full: Column | None = None) -> Column:
        """What the layer that is on its way back holds beside what all left behind.

        A layer that recomputes all has it all again before its first gradient. The attention core comes back when the
        MLP has already let go of its own. `full`: whether it recomputes all; None: it does where any layer does.
        """
        full = work.full > 0 if full is None else full
        less = np.where(work.per_op > 0, self.none - self.per_op, 0.0) if np.any(work.per_op) else 0.0
        whole = np.where(full, self.none - self.full, less) + self.backward
        if not np.any(work.selective):
            return whole
        return np.maximum(whole, np.where(work.selective > 0, self.none - self.selective, 0.0))


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
    normed = np.where(work.eager, 8, e)
    inside = np.where(work.keeps_gathered, 1, outside)
    masks = 2 * work.dropout
    split_by_sequence = tokens * (work.hidden * (2 * normed + masks) + 2 * NORM_ROW) / outside
    split_by_sequence = split_by_sequence + tokens * work.hidden * 2 * e / inside
    # Query, key and value as one product made them: the values are a view into it and keep it all alive. The queries of
    # several groups are copied together; rotary positions and norms make queries and keys anew. Norms also lay queries
    # out head by head, and attention its output, which is then copied for its product.
    copied = np.where((work.kv_heads < work.heads) & (work.kv_heads > t), query, 0.0)
    norm_reads = np.where(work.eager_heads * (e < 4), 0.0, copied)
    own = np.where(work.qk_norm, norm_reads + query, 0.0)
    anew = np.where((work.rotary + work.qk_norm) > 0, query + key + own, copied) * work.joint_qkv
    scaled = np.where(work.eager_heads, 4 if e == 4 else 8, 0)  # as for the other norms, over what is counted already
    heads = work.qk_norm * ((query + key) * scaled + 4 * (work.heads + work.kv_heads))
    # attention's output, which the output product reads; what the activation reads, and what it makes for the last
    ffn = work.ffn * (2 + work.gated * np.where(work.fused_gate, 1, 2))
    split_by_tensor = tokens / t * ((2 * query + 2 * key + anew + ffn) * e + heads)
    # softmax, its dropout's mask and output; fused attention keeps one number per row instead
    pairs = tokens * work.heads / t * work.sequence
    core = np.where(work.fused, tokens * work.heads / t * 4, pairs * (e + work.dropout * (e + 1)))
    none = split_by_sequence + split_by_tensor + core
    # torchtitan keeps the input, attention's output and every second product: query, value, gate, down
    per_op = tokens * e * (work.hidden * 2 / outside + (2 * query + key + work.ffn) / t)
    return Saved(none, none - core, per_op, tokens * work.hidden * e / outside, layer_backward(work))


def owed_products(work: Work) -> Column:
    """Bytes that a layer's linear layers hold where their weight gradients are put off: both factors of each product.

    An input that sequence parallelism slices is gathered again when it is multiplied; the gradient of a row-parallel
    layer's output was gathered for its input's and stays.
    """
    t, h = work.tensor, work.hidden
    query, pair = work.heads * work.head_size, 2 * work.kv_heads * work.head_size
    inputs = 2 * h / np.where(work.sequence_parallel, t, 1) + (query + work.ffn) / t
    gradients = (query + pair + (1 + work.gated) * work.ffn) / t + 2 * h
    return work.tokens * work.element * (inputs + gradients)


def layer_backward(work: Work) -> Column:
    """Bytes that a layer's backward holds for a moment: gradients of activations, and of one weight before it is added.

    They are most at its beginning, in the MLP, when hardly anything that was saved has been let go: at its last
    product, at a gate's, or under sequence parallelism at its first product, which gathers its input and scatters the
    gradient.
    """
    e, tokens, t, h = work.element, work.tokens, work.tensor, work.hidden
    outside, ffn = np.where(work.sequence_parallel, t, 1), tokens * work.ffn / t
    weight = (1 - work.adds_in_place) * h * work.ffn / t
    gathered = np.where(work.sequence_parallel, tokens * h, 0.0)
    arriving = tokens * h / outside
    last = arriving + gathered + ffn + weight
    gate = work.gated * (arriving + np.where(work.fused_gate, 1, 2) * ffn)
    # gathered input and gradient to scatter, which gloo adds up apart; the activation's tensors are gone, and of a
    # gated MLP the gradient of its other half still waits
    let_go = (2 + work.gated * np.where(work.fused_gate, 1, 2)) * ffn
    first = arriving * 2 + (2 + work.gloo) * gathered + (1 + work.gated) * ffn + weight - let_go
    products = np.maximum(np.maximum(last, gate), np.where(work.sequence_parallel, first, 0.0))
    # a norm of many kernels goes back in fp32, when all of the MLP's is gone: four such tensors, and two gradients
    norm = arriving * (2 * e + 16) - (let_go + arriving) * e
    return np.maximum(e * products, np.where(work.eager, norm, 0.0))


class Ends(NamedTuple):
    """Bytes of one microbatch in the output layer and the loss."""

    left: Column  # for the backward: the input of the final norm, and what the output layer and the loss keep
    briefly: Column  # for a moment beside all that was left
    table: Column  # the gradient of the output layer's weight, before it is added


def end_activations(work: Work) -> Ends:
    """The output layer and the loss.

    Apart, the loss keeps fp32 for each logit (arXiv 2205.05198 §4.3). Its fullest moment is its own, or the output
    layer's backward, whose weight may be the largest of all: then the gradient of the logits is there, and what was
    kept gone.
    """
    e, t = work.element, work.tensor
    outside = np.where(work.sequence_parallel, t, 1)
    normed = np.where(work.eager, 8, e)
    norm = work.tokens * (work.hidden * normed + NORM_ROW) / outside
    table = (1 - work.adds_in_place) * work.padded_vocab * work.hidden * e
    together, apart = _head_with_loss(work, norm, table), _head_and_loss(work, norm, table)
    return Ends(*(np.where(work.logits_at_once, one, other) for one, other in zip(together, apart, strict=True)))


def _head_and_loss(work: Work, norm: Column, table: Column) -> Ends:
    e, t = work.element, work.tensor
    apart = np.where(work.sequence_parallel, np.where(work.keeps_gathered, 1, t), 1)
    logits, tokens = work.tokens * work.padded_vocab, work.tokens * work.hidden
    kept = work.kept_logit * logits
    short = e if e < 4 else 0  # logits as they were multiplied, where the loss has them once more in fp32
    loss = np.where(t > 1, short + work.brief_split_logit, work.brief_logit) * logits
    product = table + e * (logits + tokens * np.where(work.sequence_parallel, 2 + work.gloo, 1))
    return Ends(norm + tokens * e / apart + kept, np.maximum(loss, product - kept), table)


def _head_with_loss(work: Work, norm: Column, table: Column) -> Ends:
    """Both as one (`heddle.models.loss`): so many logits at a time, of which their forward makes all gradients.

    It keeps the gradients of its input and of its weight. While it works there are beside these its input, gathered
    under sequence parallelism, whose gradient is then summed; and logits: as they were multiplied, in fp32, where the
    vocabulary is whole once more as logarithms, and their gradient as it is multiplied. From the second turn on those
    in fp32 and the gradient of the turn before are still there. In fp32 some of these are the same memory.
    """
    e, rows, sliced = work.element, work.padded_vocab, work.sequence_parallel
    short, whole = int(e < 4), np.where(work.tensor > 1, 0, 1)
    at_once = np.minimum(work.tokens, np.maximum(1, np.floor(work.logits_at_once / rows)))
    logits, several = at_once * rows, at_once < work.tokens
    loss = (e + 4 * short + 4 * whole) * logits + np.where(several, (4 + e * short) * logits + table, 0.0)
    multiplies = (e + 4 * np.maximum(short, whole) + e * short) * logits + table
    inputs = work.tokens * work.hidden * e
    part = inputs / np.where(sliced, work.tensor, 1)
    sums = np.where(sliced, part + work.gloo * inputs, 0.0)
    fullest = part + np.where(sliced, inputs, 0.0) + inputs + np.maximum(loss, multiplies + sums)
    return Ends(norm + part + table, fullest - part - table, table)


def last_moment(work: Work, ends: Ends, moment: Column) -> Column:
    """What the last chunk holds for a moment beside all layers' activations: at the loss, or in a layer after it.

    Where one stage has both ends of a tied embedding, the gradient of one waits for that of the other.
    """
    return np.maximum(ends.left + ends.briefly, moment + waiting_table(work, ends))


def waiting_table(work: Work, ends: Ends) -> Column:
    """Bytes of the gradient of a tied embedding's one end that waits for the other on the same stage."""
    return np.where(work.pipeline == 1, work.tied, 0) * ends.table if np.any(work.tied) else 0.0


def made_gradients(work: Work, layers: Column, first: Column, last: Column) -> Column:
    """Bytes of gradients that the step's first backward makes where one replica trains in fp32; `layers`: parameters.

    Gradients that are summed with others' lie in buffers that are always there: so does that of a tied embedding whose
    two ends are on two stages.
    """
    shared = np.where((work.pipeline > 1) & (np.asarray(first) | np.asarray(last)), work.tied, 0)
    own = layers + end_parameters(work, first, last) - shared * work.padded_vocab * work.hidden
    return own * work.gradient_bytes


def last_layer(work: Work, layer: Column, parameters: Column, first: Column) -> Column:
    """Bytes on top of what a first backward made and others left, in its last layer or at the embedding behind it.

    `layer`: what that layer, of so many parameters, holds meanwhile; its gradients, and the embedding's, are not there
    yet.
    """
    table = work.padded_vocab * work.hidden
    waits = np.where(work.pipeline == 1, work.tied, 0) * table
    apart = np.where(work.pipeline > 1, work.tied, 0) * table
    begins = np.where(first, table + work.position_parameters - apart, 0.0)
    here = layer + np.where(first, waits, 0.0) * work.element
    here = here - (parameters + begins) * work.gradient_bytes
    embedding = np.where(first, embedding_backward(work, 0.0) - (table - apart) * work.gradient_bytes, 0.0)
    return np.maximum(np.maximum(here, embedding), 0.0)


def embedding_backward(work: Work, one: Column) -> Column:
    """Bytes that the gradient of the embedding takes beyond what a microbatch left, which is gone by then."""
    table = work.padded_vocab * work.hidden * work.element
    return table * (1 + np.where(work.pipeline == 1, work.tied, 0)) + work.tokens * work.hidden * work.element - one


def slack(cluster: Cluster, held: Column) -> Column:
    """What the allocator cannot use of what it holds, a stated constant of the cluster."""
    return cluster.efficiency.slack * held
