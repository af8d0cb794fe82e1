"""Seconds of compute on one device: matrix products by shape, attention, memory-bound kernels, the optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from heddle.cost import adapters, experts, latent, network
from heddle.cost.model_columns import model_columns
from heddle.cost.work import Work
from heddle.errors import HeddleError
from heddle.schedule.rule import Column
from heddle.spec.cluster import Cluster
from heddle.spec.model import ModelSpec

# Output tiles of cuBLAS and how fast each is for its size: a small tile reads its operands more often. NVIDIA,
# "Matrix Multiplication Background User's Guide", §§ "Tile Quantization" and "Wave Quantization".
TILES = np.array([(256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (256, 64, 0.9), (128, 64, 0.85), (64, 64, 0.65)])
# Tensor cores load 16 bytes at once (same guide, § "Performance"). For narrower rows cuBLAS has no kernels that copy
# ahead into shared memory, only those of the generations before: on A100 these reach what a V100 or T4 does, about a
# third, and less the narrower they load (arXiv 2401.14489 §§ V, VI: head sizes by the power of two that divides them).
ALIGNMENT = ((16, 1.0), (8, 0.3), (4, 0.2), (1, 0.12))
SLAB = 64  # bytes along the summed dim that a tile takes at once: the last slab is filled up

# Blocks on the diagonal are half wasted, and short rows fill few processors: at this length fused attention reaches
# half of what it does at a long one (FlashAttention-2, Figures 4 to 6).
SHORT, SHORT_HOST = 512, 256  # a CPU has fewer rows to fill; measured with PyTorch's kernel
BACKWARD = 2.5 * 230 / 196  # seconds of fused attention's backward, relative to its forward

# The speed of that backward where values are shorter than keys (192 and 128), beside equal ones: median of 16 to 128
# heads on a B200 (SimuMax, b200_bf16_ceperm)
SHORT_VALUES = 0.78

# RMSNorm written out as float, square, mean, scale, cast, weight moves 36 bytes per number instead of 4; rotary
# positions as float, complex product, cast 20 instead of 4. On a CPU, in fp32, fewer of these are passes of their own.
EAGER, EAGER_HOST = 7, 2.5

# Kernels that a layer starts, forward; backward starts twice as many. Counted in Megatron-LM's layer.
KERNELS, KERNELS_UNFUSED = 14, 20
# Bytes that move for a number's two moments in eight bits beside the update: looked up and scaled, their largest
# found, divided by it, searched for among 256 values (heddle.training.step.eight_bits).
EIGHT_BITS = 2 * (1 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 1)
PEER_US = 10.0  # that one more host delays a collective by; of 1, 2, 4 and 8 on one node (Megatron-DeepSpeed on A100)


class Pass(NamedTuple):
    """Seconds of one microbatch through one layer, and of those of its forward that are recomputed at times."""

    forward: Column
    backward: Column
    core: Column  # attention without its linear layers
    around: Column  # what lies between matrix products, attention apart
    half: Column  # every second matrix product and what lies between them
    last: Column  # the last matrix product
    weight: Column  # of the backward: what makes the linear layers' weight gradients, which nobody waits for
    first: Column  # the product that makes query, key and value


class LinearCost(NamedTuple):
    """Seconds of a linear layer."""

    forward: Column
    backward: Column
    weight: Column  # of the backward: what makes the weight's gradient


def peak_flops(cluster: Cluster, precision: str) -> float:
    """Peak FLOP/s of a device for matrix products, which the cluster must state."""
    flops = cluster.device.tflops.flops(precision)
    if flops is None:
        stated = {name: getattr(cluster.device.tflops, name) for name in ("fp32", "tf32", "bf16", "fp16", "fp8")}
        known = ", ".join(name for name, value in stated.items() if value is not None)
        raise HeddleError(
            f"Cluster '{cluster.name}' has no device.tflops.{precision} for {cluster.device.name}.",
            "Times are predicted from the peak of the device in the precision of the job.",
            f"Train in a precision that it states ({known})."
            if known
            else f"Measure it with `heddle profile -o {cluster.name}.toml`, or add device.tflops.{precision} to it.",
        )
    return flops


def memory_speed(cluster: Cluster) -> float:
    """Bytes per second that memory-bound kernels reach."""
    if cluster.device.memory_gbs is None:
        raise HeddleError(
            f"Cluster '{cluster.name}' does not state the memory bandwidth of {cluster.device.name}.",
            "Without it the time of memory-bound kernels cannot be predicted.",
            "Measure it there with `heddle profile`, or add device.memory_gbs to it.",
        )
    return cluster.device.memory_gbs * 1e9 * cluster.efficiency.memory


def alignment(size: Column, element: int) -> Column:
    """How fast operands load whose rows have `size` numbers, relative to aligned ones."""
    row = size * element
    speed = np.full(np.shape(size), ALIGNMENT[-1][1])
    for width, share in reversed(ALIGNMENT[:-1]):
        speed = np.where(row % width == 0, share, speed)
    return speed


def matmul(cluster: Cluster, precision: str, m: Column, k: Column, n: Column, batch: Column = 1) -> Column:
    """Seconds of `batch` products of (m, k) and (k, n): tiles in waves over the processors, or memory if slower."""
    element = {"fp8": 1, "fp32": 4}.get(precision, 2)
    speed = peak_flops(cluster, precision) * cluster.efficiency.matmul
    half = cluster.efficiency.half_dim
    if precision == "fp8":  # a tile's sums take half as long as in 16 bits, but not its beginning and its end
        speed, half = speed * cluster.efficiency.fp8, 2 * half
    processors = cluster.device.processors
    if processors is None:  # not a device of tiles and waves, or not known to be one
        seconds = 2.0 * batch * m * k * n / speed
    else:
        summed = np.ceil(k * element / SLAB) * (SLAB / element)
        rows, columns, share = TILES.T
        tiles = np.ceil(np.expand_dims(m, -1) / rows) * np.ceil(np.expand_dims(n, -1) / columns)
        waves = np.ceil(np.expand_dims(batch, -1) * tiles / processors)
        flops = 2.0 * waves * processors * rows * columns * np.expand_dims(summed, -1)
        seconds = np.min(flops / (speed * share), axis=-1)
    # A tile first fills its pipeline and at the end writes its output; narrow operands are read more often.
    least = np.minimum(np.minimum(m, n), k)
    seconds = seconds * (1 + half / least) / np.minimum(alignment(k, element), alignment(n, element))
    moved = batch * (element * (m * k + k * n) + max(element, 2) * m * n)
    return np.maximum(seconds, moved / memory_speed(cluster))


def linear(
    cluster: Cluster, work: Work, rows: Column, inputs: Column, outputs: Column, learns: Column | None = None
) -> LinearCost:
    """A linear layer: the gradients of its input and of its weight are two products more; a frozen one has no second.

    `learns`: whether its weight does; None: as layers' weights do.
    """
    learns = 1 - work.frozen if learns is None else learns

    def products(precision: str) -> LinearCost:
        forward = matmul(cluster, precision, rows, inputs, outputs)
        to_input = matmul(cluster, precision, rows, outputs, inputs)
        weight = matmul(cluster, precision, inputs, rows, outputs) * learns
        return LinearCost(forward, to_input + weight, weight)

    plain = products(work.precision)
    if not np.any(work.fp8):
        return plain
    # Operands are cast: read, written as they are and transposed for the products of the backward. The largest value is
    # found on the way, for the next step (delayed scaling, arXiv 2209.05433 §3; NVIDIA Transformer Engine), or by
    # reading all once more before (dynamic scaling, torchao). Some activations are written in 8 bits by the norm
    # before; weights may stay as they are for all microbatches of a step.
    byte = (work.cast_reads * work.element + 2) / memory_speed(cluster)
    weights = inputs * outputs / np.where(work.casts_per_step, work.microbatches, 1)
    casts = (rows * inputs * (1 - work.fused_casts) + weights) * byte, rows * outputs * byte, 0.0
    eight = products("fp8")
    return LinearCost(*(np.where(work.fp8, e + cast, p) for e, p, cast in zip(eight, plain, casts, strict=True)))


def added(products: Iterable[LinearCost]) -> LinearCost:
    """Several linear layers, one after the other."""
    return LinearCost(*(sum(seconds) for seconds in zip(*products, strict=True)))


def with_experts(cluster: Cluster, work: Work, up: LinearCost, down: LinearCost) -> tuple[LinearCost, LinearCost]:
    """A layer's first and last product where experts do some of it or all, each a small product of its own rows."""
    used, rows = experts.rows_of_an_expert(work)
    width = np.maximum(work.routed / work.top_k * work.expert_copies / work.tensor, 1)

    eight = work.fp8 * work.expert_fp8

    def products(inputs: Column, outputs: Column, arrive: Column) -> list[Column]:
        shapes = ((rows, inputs, outputs), (rows, outputs, inputs), (inputs, rows, outputs))
        plain = [matmul(cluster, work.precision, *shape, used) for shape in shapes]
        if not np.any(eight):
            return plain
        byte = used * (work.cast_reads * work.element + 2) / memory_speed(cluster)
        weights = inputs * outputs / np.where(work.casts_per_step, work.microbatches, 1)
        casts = (rows * inputs * (1 - arrive) + weights) * byte, rows * outputs * byte, 0.0
        short = (matmul(cluster, "fp8", *shape, used) + cast for shape, cast in zip(shapes, casts, strict=True))
        return [np.where(eight, *both) for both in zip(short, plain, strict=True)]

    def beside(dense: LinearCost, inputs: Column, outputs: Column, arrive: Column) -> LinearCost:
        forward, to_input, weight = products(inputs, outputs, arrive)
        if not cluster.device.host:
            forward, to_input = (seconds * experts.grouped(rows, *experts.GROUPED) for seconds in (forward, to_input))
            weight = weight * experts.grouped(rows, *experts.GROUPED_WEIGHT)
        on = work.experts > 0
        alone = LinearCost(*(np.where(work.deferrable > 0, seconds, 0.0) for seconds in dense))
        return LinearCost(  # experts make their weights' gradients at once: nobody can put them off
            alone.forward + np.where(on, forward, 0.0),
            alone.backward + np.where(on, to_input + weight, 0.0),
            alone.weight,
        )

    # what came in 8 bits needs no cast
    return beside(up, work.hidden, width, work.dispatch_fp8), beside(down, width, work.hidden, 0.0)


class Routing(NamedTuple):
    """Seconds of a router, and of what it makes layers copy."""

    cost: LinearCost
    moving: Column  # of the forward, all but products


def router(cluster: Cluster, work: Work) -> Routing:
    """Scores of all experts in full precision, as fast as the cluster says of that, else as the others."""
    precision = "fp32" if cluster.device.tflops.flops("fp32") is not None else work.precision
    sizes = work.routed_tokens, work.hidden, np.maximum(work.experts, 1)
    forward = np.where(work.experts > 0, matmul(cluster, precision, *sizes), 0.0)
    begins = np.where(work.experts > 0, experts.PASSES * cluster.efficiency.kernel_us * 1e-6, 0.0)
    speed = memory_speed(cluster) * (1.0 if cluster.device.host else experts.PERMUTED)
    moved = [np.asarray(each) / speed + begins for each in experts.moved(work)]
    return Routing(LinearCost(forward + moved[0], 2 * forward + moved[1], 0.0), moved[0])


def attention(cluster: Cluster, work: Work) -> tuple[Column, Column]:
    """The attention core of one layer, from query, key and value to its output: forward and backward."""
    heads = work.microbatch * work.heads / work.tensor
    s, size, e = work.sequence, work.head_size, work.element
    rows = s / work.context  # of each sample's queries, the share of a rank, chosen so that all have as much to do
    # Fused: one kernel that skips what the causal mask hides. Its backward has 5 products to the forward's 2, at a
    # somewhat lower rate (FlashAttention-2, arXiv 2307.08691 §3.1.2, §4.1: 230 TFLOP/s forward, 196 backward).
    speed = peak_flops(cluster, work.precision) * cluster.efficiency.attention * work.attention_speed
    padded = size if cluster.device.host else np.ceil(size / 32) * 32  # its kernels are made for multiples of 32
    speed = speed * size / padded
    short = SHORT_HOST if cluster.device.host else SHORT
    # of documents packed into a sample only the blocks on the diagonal are computed, each as if it were a sample
    longest = np.minimum(work.document, s)
    reach = np.minimum(work.window, longest)
    pairs = rows * reach * np.where(work.window < longest, 1.0, 0.5)
    summed = np.where(work.pads_values, size, work.values)
    fused = 2.0 * heads * pairs * (size + summed) / speed * (1 + short / reach)
    if np.any(work.scored):
        return _scored(cluster, work, heads, rows, pairs)
    backwards = BACKWARD / np.where(np.equal(summed, size), 1.0, SHORT_VALUES)
    if np.all(work.fused):
        return fused, backwards * fused
    # Unfused: two products over the whole square, and kernels that read and write the scores: the masked softmax
    # (read, write), dropout (read, write, a byte of mask); on the way back dropout and softmax again, the latter
    # with one more operand (arXiv 2205.05198 Figure 3).
    scores = heads * rows * s
    products = matmul(cluster, work.precision, rows, size, s, heads) + matmul(
        cluster, work.precision, rows, s, size, heads
    )
    masks = work.dropout * (2 * e + 1)
    forward = products + scores * (2 * e + masks) / memory_speed(cluster)
    backward = 2 * products + scores * (3 * e + masks) / memory_speed(cluster)
    return np.where(work.fused, fused, forward), np.where(work.fused, backwards * fused, backward)


def _scored(cluster: Cluster, work: Work, heads: Column, rows: Column, pairs: Column) -> tuple[Column, Column]:
    """Attention whose scores are changed: block by block, keys that no query of a block sees left out.

    Scores are scaled, capped, masked and normalized, each a pass; backwards all is made again, and two products more
    for each, with as many passes.
    """
    s, size, e = work.sequence, work.head_size, work.element
    share = pairs / (rows * s)
    products = matmul(cluster, work.precision, rows, size, s, heads) + matmul(
        cluster, work.precision, rows, s, size, heads
    )
    passes = heads * rows * s * 5 * 2 * e / memory_speed(cluster)
    forward = share * (products + passes)
    return forward, forward + share * (2 * products + passes)


def attention_work(precision: str, heads: int, sequence: int, size: int) -> Work:
    """The attention core of one layer by itself: so many heads of one sample."""
    model = ModelSpec(layers=1, hidden=heads * size, heads=heads, vocab=1, sequence=sequence)
    return Work(**model_columns(model), batch=1, precision=precision)


def elementwise(cluster: Cluster, work: Work) -> tuple[Column, Column]:
    """Norms, residual sums, dropout, activation and rotary positions of one layer: bytes over bandwidth.

    What lies between the tensor-parallel regions is done by every tensor rank for all tokens, unless the sequence is
    split there (arXiv 2205.05198 §4.2.2).
    """
    e, tokens = work.element, work.tokens
    outside = tokens * work.hidden / np.where(work.sequence_parallel, work.tensor, 1)
    masks = work.dropout * 2
    # norm: read, write; residual: read twice, write once. Back: a norm reads two and writes one, as does the sum of
    # the two branches' gradients; dropout reads and writes.
    norm = np.where(work.eager, EAGER_HOST if cluster.device.host else EAGER, 1)
    forward = outside * ((2 * work.norms * norm + 6) * e + masks)
    backward = outside * ((3 * work.norms * norm + 6) * e + work.dropout * 4 * e + masks)
    width = tokens * work.ffn / work.tensor
    speed = memory_speed(cluster)
    arithmetic = width * (1 - work.gated) * cluster.efficiency.gelu_ns * 1e-9 * speed  # in bytes of the same time
    forward = forward + np.maximum(width * (2 + work.gated) * e, arithmetic)
    backward = backward + np.maximum(width * (3 + 2 * work.gated) * e, arithmetic)
    if cluster.device.host:
        # PyTorch, kernel by kernel: attention's output is copied together, and on the way back its gradient, those of
        # query, key and value are, and each bias sums the gradient of its layer's output
        query, pair = work.heads * work.head_size, 2 * work.kv_heads * work.head_size
        copies = 2 * tokens * query / work.tensor * e
        biases = (1 - work.gated) * (query + pair + work.ffn) / work.tensor + (1 - work.gated) * 2 * work.hidden
        forward = forward + copies
        backward = backward + copies + tokens * e * (2 * (query + pair) / work.tensor + biases)
    begins = cluster.efficiency.kernel_us * 1e-6 * speed  # in bytes, too
    if begins:  # a norm has one kernel forward and two backward; rotary positions one for queries and one for keys
        forward = forward + begins * (work.norms + 3 + 2 * work.rotary)
        backward = backward + begins * (2 * work.norms + 3 + 2 * work.rotary)
    turned = work.rotary * tokens * (work.heads + work.kv_heads) * work.head_size / work.tensor * 2 * e * norm
    if np.any(work.kv_latent):  # a copy of each of these, and of values
        turned = np.where(work.kv_latent, latent.copied(work) * e + begins * latent.PASSES, turned)
    return (forward + turned) / speed, (backward + turned) / speed


def layer(cluster: Cluster, work: Work) -> Pass:
    """One microbatch through one layer on one rank, communication aside."""
    tokens, h, t = work.tokens, work.hidden, work.tensor
    query, pair = work.heads * work.head_size / t, 2 * work.kv_heads * work.head_size / t
    ffn = np.maximum(work.deferrable / t, 1)
    times = 1 + work.gated
    up, down = (linear(cluster, work, tokens, *sizes) for sizes in ((h, ffn), (ffn, h)))
    if chosen := bool(np.any(work.experts)):
        up, down = with_experts(cluster, work, up, down)
    first = linear(cluster, work, tokens, h, query + pair)
    if np.any(work.kv_latent):
        through = added(linear(cluster, work, *sizes) for sizes in latent.products(work))
        first = LinearCost(*(np.where(work.kv_latent, a, b) for a, b in zip(through, first, strict=True)))
    routing = router(cluster, work) if chosen else None
    products = [
        first,
        linear(cluster, work, tokens, work.heads * work.values / t, h),
        LinearCost(*(times * seconds for seconds in up)),
        down,
        *([routing.cost] if routing is not None else []),
    ]
    around = elementwise(cluster, work)
    core_forward, core_backward = attention(cluster, work)
    # each microbatch adds its gradients to those of the ones before; a cast before that is written, and read again
    casts = work.casts_gradients * (work.gradient_bytes > work.element)
    adding = (1 - work.adds_in_place) * (work.element + (2 + 2 * casts) * work.gradient_bytes)
    learned = adapters.learned(work, work.held_parameters / t)
    accumulate = np.where(work.microbatches > 1, adding, 0) * learned / memory_speed(cluster)
    beside = adapters.seconds(work, memory_speed(cluster))
    multiplying = sum(product.forward for product in products) + beside[0]
    forward = multiplying + around[0] + core_forward
    backward = sum(product.backward for product in products) + around[1] + core_backward + accumulate + beside[1]
    half = multiplying / 2 + around[0]
    weight = sum(product.weight for product in products) + accumulate
    between = around[0] if routing is None else around[0] + routing.moving
    return Pass(forward, backward, core_forward, between, half, down.forward, weight, products[0].forward)


def launches(cluster: Cluster, work: Work) -> Column:
    """Seconds that the host needs to start one layer's forward; a device that is faster than that waits for it.

    Devices that run dry begin a collective when the host of the last of them has started it: two in every pass along
    the tensor axis, later the more hosts take part.
    """
    kernels = np.where(work.fused, KERNELS, KERNELS_UNFUSED) + (work.experts > 0) * experts.KERNELS
    kernels = kernels + adapters.kernels(work)
    kernels = kernels * cluster.efficiency.launch_us
    return (kernels + (0 if cluster.device.host else 2 * PEER_US) * (work.tensor - 1)) * 1e-6


def embedding(cluster: Cluster, work: Work) -> tuple[Column, Column]:
    """Looking up the first chunk's tokens, and adding their gradients up: memory traffic."""
    moved = work.tokens * work.hidden * work.element
    ahead = 1 + work.reference
    return ahead * 2 * moved / memory_speed(cluster), 3 * moved * work.learns_embed / memory_speed(cluster)


def head(cluster: Cluster, work: Work) -> tuple[Column, Column]:
    """The last chunk's output layer and loss.

    Most losses work in fp32: logits are cast, their largest found, exponentiated and summed; the gradient is made from
    the probabilities and cast back (Megatron-LM's vocabulary-parallel cross entropy, PTD-P §2.3). Some are one kernel.
    """
    plain = replace(work, fp8=0)  # output layers keep their precision
    learns = np.where(work.tied, work.learns_embed, work.learns_head)
    forward, backward, _ = linear(cluster, plain, work.tokens, work.hidden, work.padded_vocab, learns)
    e = work.element
    count = work.tokens * work.padded_vocab
    if np.any(work.whole_loss):
        count = count * np.where(work.whole_loss, work.tensor, 1)
        forward = forward + np.where(work.whole_loss, network.all_gather(cluster, count * e, work.tensor), 0.0)
    logits = count / memory_speed(cluster) / cluster.efficiency.loss
    caps = work.capped * 6 * 4  # its tanh and its slope: three passes
    times = 1 + 2 * work.reference  # a reference's, and the model's again: losses of pairs come before gradients
    onward = times * (forward + logits * (e + work.loss_forward + caps))
    return onward, backward + logits * (e + work.loss_backward)


def optimizer(cluster: Cluster, work: Work, parameters: Column) -> Column:
    """AdamW over the parameters that a rank updates.

    Gradients are read for their norm and again for the update, master and both moments read and written, weights
    written, gradients zeroed; with fp32 weights there is no master beside them. Some trainers have all of it as short
    as weights. Moments in eight bits are made anew in full precision and kept in codes again.
    """
    element = work.element
    moved = 4 + 4 + 4 * 2 * 3 + (element if element < 4 else 0) + 4 + np.where(work.moment_bytes < 4, EIGHT_BITS, 0)
    return parameters * np.where(work.pure, 9 * element, moved) / memory_speed(cluster)
