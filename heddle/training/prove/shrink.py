"""The smallest job that a plan treats in all the ways in which it treats the real one.

What matters to a plan is not how large a number is but how it relates to others: whether ranks divide it, whether
stages are equal, whether microbatches fill the pipeline. Sizes shrink, relations stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm
from typing import Any

from heddle.cost.layers import LayerKind, chunk_layers
from heddle.errors import divisors
from heddle.spec.job import Job, PlannedJob, Train
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.model import LayerSpec, ModelSpec
from heddle.spec.own import OwnModel
from heddle.spec.plan import Plan
from heddle.spec.rules.context import inner_degrees
from heddle.spec.tune import Tune
from heddle.training.prove.conserved import coded_plan
from heddle.training.prove.own import TOKENS, shrunk_model, shrunk_plan

PROCESSES = 16  # more than this do not fit one machine that somebody also works on
CHUNKS = 4  # per rank
GROUP = 8  # query heads that share a key/value head
RANK = 3  # of adapters
LATENT = 6  # numbers of a latent
EXPERTS, TOP_K, EXPERT_FFN = 4, 2, 8  # experts for each that a token goes to, those that it does, and their width
SEQUENCE, VOCAB, WIDTH = 8, 32, 16  # the least that leaves room for something to go wrong
RATE = 1e-2  # a real job's first steps hardly move; differences should get the chance to grow
OWN_RATE = 3e-3  # of modules that begin as their authors chose: there 1e-2 makes 1e-5 of rounding within 20 steps

CALM = "dropout: off; nn.ReLU and other activations with a kink: computed as GELU, since rounding decides at a kink."


@dataclass(frozen=True)
class Shrunk:
    """A small job, and what of the plan it does not show because a degree had to shrink as well."""

    job: PlannedJob
    notes: tuple[str, ...]
    coded: PlannedJob | None = None  # the same with gradients in codes, where they travel so
    left_out: tuple[str, ...] = ()  # what the job does that is not meant to be equal to one device, or is not tried


def shrink(job: Job, steps: int = 20, processes: int = PROCESSES) -> Shrunk:
    """Shrink a job with a plan; its degrees too, if they need more than so many processes."""
    planned = job.planned
    model, plan, train = planned.model, planned.plan, planned.train
    degrees, notes = _fewer_processes(replace(plan, shares=(), devices=()), processes)
    degrees, inexact = _exact(degrees)
    notes += inexact
    left_out = _left_out(planned)
    if isinstance(model, OwnModel):
        return _shrunk_own(planned, model, degrees, notes, left_out, steps)
    layers, stages = _layers(model, plan, degrees)
    every = {plan.memory_of(layer) for layer in range(model.layers)} - {kind.memory for kind in layers}
    notes += [f"No chunk that was tried has a layer with {_in_words(lost)}." for lost in sorted(every)]
    shapes = tuple(kind.shape for kind in layers)
    if untried := {*range(len(model.shapes))} - {*shapes}:
        notes.append(f"layers: {len(untried)} of the model's {len(model.shapes)} shapes were not tried.")
    microbatch, sequence = _tokens(plan, degrees, planned.sequence)
    small_model = _model(model, plan, degrees, shapes, sequence, planned.sequence)
    memories = [kind.memory for kind in layers]
    microbatches = plan.microbatches(train.global_batch)
    if not degrees.order:  # one that is written out is for that many
        microbatches = _microbatches(microbatches, plan.pipeline, degrees.pipeline)
    equal = degrees.data * (microbatches * microbatch,)
    # where shares differ, the first replica takes more: as many as any schedule can
    shares = (equal[0] + degrees.pipeline * microbatch, *equal[1:]) if plan.shares and degrees.data > 1 else ()
    small_plan = replace(degrees, microbatch=microbatch, stages=stages, shares=shares).with_memory(memories)
    if plan.shards < plan.replicas:
        small_plan = replace(small_plan, zero_within=_within(plan, small_plan))
        if small_plan.zero_within != plan.zero_within:
            notes.append(f"zero_within {plan.zero_within} → {small_plan.zero_within}: groups are alike, if smaller.")
    small_train = _train(planned, steps, sum(shares or equal), sequence)
    small = PlannedJob(
        model=small_model,
        data=job.data,
        train=small_train,
        plan=small_plan,
        tune=_tune(job.tune),
        preference=job.preference,
    )
    coded = coded_plan(job, plan, small_plan)
    coded_job = None if coded is None else replace(small, plan=coded, network=job.network)
    return Shrunk(small, tuple(notes), coded_job, left_out)


def _shrunk_own(
    job: PlannedJob, model: OwnModel, degrees: Plan, notes: list[str], left_out: tuple[str, ...], steps: int
) -> Shrunk:
    """The same of the user's own module: how small it can be, only its file knows."""
    plan = job.plan
    small, more = shrunk_model(model)
    microbatch, sequence = min(plan.microbatch, 2), min(job.sequence, TOKENS)
    microbatches = _microbatches(plan.microbatches(job.train.global_batch), plan.pipeline, degrees.pipeline)
    small_plan = replace(shrunk_plan(model, small, plan, degrees), microbatch=microbatch)
    train = _train(job, steps, degrees.data * microbatches * microbatch, sequence)
    made = PlannedJob(model=small, data=None, train=train, plan=small_plan)
    return Shrunk(made, (*notes, *more, CALM), None, left_out)


def _train(job: PlannedJob, steps: int, batch: int, sequence: int) -> Train:
    """Few steps that move far."""
    train, plan = job.train, job.plan
    return Train(
        name=train.name,
        steps=steps,
        global_batch=batch,
        sequence=sequence,
        seed=train.seed,
        precision=job.precision,
        compile=False,
        learning_rate=OWN_RATE if job.model.own else RATE,
        schedule=train.schedule,
        final_learning_rate=train.final_learning_rate,
        decay=train.decay,
        warmup=min(train.warmup, 2 if plan.late is None else 0),
        beta1=train.beta1,
        beta2=train.beta2,
        epsilon=train.epsilon,
        weight_decay=train.weight_decay,
        clip=min(train.clip, 0.1),  # small enough to clip, where the job clips at all
        delay_correction=train.delay_correction,
        optimizer="adamw" if train.optimizer == "adamw8bit" else train.optimizer,
        momentum=train.momentum,
    )


def _tune(tune: Tune | None) -> Tune | None:
    """The same adapters, of a small rank: a rank is never split."""
    if tune is None:
        return None
    lora = replace(tune.adapters, rank=min(tune.adapters.rank, RANK), alpha=float(RANK))
    return replace(tune, lora=lora, adapter=None)


def _fewer_processes(plan: Plan, limit: int) -> tuple[Plan, list[str]]:
    """The plan with degrees that fit: replicas go first, they are all alike; then the largest of the others."""
    tensor, context, pipeline, data = plan.tensor, plan.context, plan.pipeline, plan.data
    hybrid = plan.shards < plan.replicas
    if plan.world > limit:
        several = hybrid or (plan.expert > 1 and plan.expert_replicas > 1)
        data = min(data, 4 if several else 2)
    while tensor * context * pipeline * data > limit:
        if pipeline >= max(tensor, context):
            pipeline = -(-pipeline // 2)
        elif context >= tensor:
            context = -(-context // 2)
        else:
            tensor = -(-tensor // 2)
    sharing = data * context * (tensor if plan.whole_experts else 1)
    virtual, expert = min(plan.virtual, CHUNKS), _expert_degree(plan, sharing)
    notes = [
        f"{name} {before} → {after}: {lost}"
        for name, before, after, lost in (
            ("data", plan.data, data, "replicas are alike, so two are enough."),
            ("tensor", plan.tensor, tensor, f"the sums over {plan.tensor} ranks were not tried."),
            ("context", plan.context, context, f"the exchange between {plan.context} ranks was not tried."),
            ("expert", plan.expert, expert, f"the exchange between {plan.expert} ranks was not tried."),
            ("pipeline", plan.pipeline, pipeline, f"the order of work of {plan.pipeline} stages was not tried."),
            ("virtual", plan.virtual, virtual, f"the order of work of {plan.virtual} chunks per rank was not tried."),
        )
        if before != after
    ]
    # stages and what layers do are those of the old degrees until the caller has found the new ones
    plain: dict[str, Any] = {"stages": (), "recompute": "none", "layers": (), "expert": 1, "zero_within": 0}
    changed = replace(plan, offload=plan.ends_offload, expert_tensor=0, **plain)
    if pipeline < plan.pipeline or virtual < plan.virtual:
        changed = changed.named
    check = plan.check_step if pipeline > 1 else "before"
    if plan.context_exchange == "2d":
        inner = next((degree for degree in (plan.context_inner, 2) if degree in inner_degrees(context, context)), 1)
        changed = replace(changed, context_exchange="2d" if inner > 1 else "ring", context_inner=inner, context=context)
        if inner == 1 and context > 1:
            notes.append("context_exchange 2d → ring: so few ranks make no groups.")
    changed = replace(changed, tensor=tensor, expert_tensor=int(plan.whole_experts and tensor > 1))
    changed = replace(changed, context=context, pipeline=pipeline, data=data, expert=expert)
    return replace(changed, virtual=virtual, check_step=check), notes


def _within(plan: Plan, small: Plan) -> int:
    """How many replicas share, so that there are several groups of several; 0 where they are too few for that."""
    replicas = small.replicas
    if not any(small.zeros) or replicas < 4:
        return 0
    return next((size for size in (plan.zero_within, 2, 3) if size and replicas % size == 0 and 1 < size < replicas), 0)


def _expert_degree(plan: Plan, replicas: int) -> int:
    """Ranks that share experts out of fewer replicas: some hold the same ones, if they did."""
    most = replicas // 2 if plan.expert_replicas > 1 and replicas > 2 else replicas
    return max(degree for degree in divisors(plan.expert) if replicas % degree == 0 and degree <= max(most, 1))


def _exact(plan: Plan) -> tuple[Plan, list[str]]:
    """The plan without what is not meant to be equal to one device."""
    codes = {"compress_gradients": plan.compress_gradients, "compress_activations": plan.compress_activations}
    notes = [
        f"{name} {code} → none: compression rounds, so the proof sends uncompressed numbers."
        for name, code in codes.items()
        if code != "none"
    ]
    notes += [f"codes of {each.words} → none: what was tried sends the numbers as they are." for each in plan.codes]
    if plan.local_steps:
        notes.append(f"local_steps {plan.local_steps} → 0: the proof sums gradients in every step.")
    exact = replace(plan, compress_gradients="none", compress_activations="none", codes=())
    return replace(exact, local_steps=0, fragments=1, overlap_steps=0), notes


def _left_out(job: PlannedJob) -> tuple[str, ...]:
    """What of a job no proof compares with one device, as the job file says it."""
    plan, train = job.plan, job.train
    found = [f"local_steps = {plan.local_steps}"] if plan.local_steps else []
    codes = {"compress_gradients": plan.compress_gradients, "compress_activations": plan.compress_activations}
    found += [f'{name} = "{code}"' for name, code in codes.items() if code != "none"]
    found += [f"codes of {each.words}" for each in plan.codes]
    found += [f'optimizer = "{train.optimizer}"'] * (train.optimizer == "adamw8bit")
    found += ["compile = true"] * bool(train.compile) + ["the meeting of sites"] * (train.meeting is not None)
    return tuple(found)


def _in_words(memory: LayerMemory) -> str:
    parts = [f"recompute {memory.recompute!r}", f"zero {memory.zero}"]
    return ", ".join([*parts, *(["offload " + ", ".join(memory.offload)] if memory.offload else [])])


def _layers(model: ModelSpec, plan: Plan, small: Plan) -> tuple[list[LayerKind], tuple[int, ...]]:
    """Kinds of layers, and how many each chunk has: uneven stages stay uneven, and a chunk keeps one of each kind."""
    last = max(1, small.chunks - 1)
    chosen = [round(i * (plan.chunks - 1) / last) for i in range(small.chunks)]  # the first, the last, some between
    sizes = [plan.stages[chunk] for chunk in chosen]
    if len(set(sizes)) == 1 < len(set(plan.stages)):
        sizes[small.chunks // 2] += 1
    chunks = chunk_layers(model, plan)
    kinds = [list(dict.fromkeys(kind for kind, _ in chunks[chunk])) for chunk in chosen]
    least = max(2 if small.chunks == 1 else 1, *map(len, kinds))
    stages = tuple(min(size, least + (min(sizes) < size == max(sizes))) for size in sizes)
    return [kind for own, layers in zip(kinds, stages, strict=True) for kind in (own * layers)[:layers]], stages


def _tokens(plan: Plan, small: Plan, sequence: int) -> tuple[int, int]:
    """Samples a microbatch and tokens per sample: whether tensor ranks can share a microbatch's tokens stays."""
    even = plan.tokens(sequence) % plan.tensor == 0
    blocks = 2 * small.context if small.context > 1 else 1  # of equal lengths, of which ranks share two each
    each = small.tensor * blocks
    tokens = -(-SEQUENCE * small.context // each) * each
    if even or small.tensor == 1:
        return min(plan.microbatch, 2), tokens
    return 1, tokens + blocks


def _microbatches(count: int, stages: int, fewer: int) -> int:
    """Fewer, equal to, a multiple of, or something beside a multiple of the number of stages, as it was."""
    if stages == 1:
        return min(count, 2)
    if count < stages:
        return min(count, fewer - 1)
    return min(count // stages, 2) * fewer + (count % stages > 0)


def _model(model: ModelSpec, plan: Plan, small: Plan, shapes: tuple[int, ...], sequence: int, before: int) -> ModelSpec:
    # ranks that split heads among them
    swapped = small.context if plan.context_exchange == "all-to-all" else small.context_inner
    kv_heads = small.tensor * swapped * min(2, model.kv_heads // (plan.tensor * swapped))
    heads = kv_heads * min(model.group, GROUP)
    head_size = max(4, WIDTH // heads)
    square = model.heads * model.head_size == model.hidden
    hidden = heads * head_size if square else heads * head_size + 4
    vocab = -(-VOCAB // small.tensor) * small.tensor
    if model.vocab % plan.tensor and small.tensor > 1:
        vocab += model.vocab % plan.tensor % small.tensor or 1
    narrow = small.tensor * -(-2 * hidden // small.tensor)
    widths = sorted({shape.ffn for shape in model.shapes})

    def window(shape: LayerSpec) -> int:
        if shape.window is None or shape.window >= before:
            return sequence if shape.window else 0
        return min(sequence - 1, max(2, shape.window * sequence // before))

    return replace(
        model,
        name=f"{model.name}, shrunk",
        layers=len(shapes),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        ffn=tuple(narrow + small.tensor * widths.index(model.shapes[shape].ffn) for shape in shapes),
        vocab=vocab,
        sequence=sequence if before == model.sequence else 2 * sequence,
        window=tuple(window(model.shapes[shape]) for shape in shapes),
        **_latent(model, head_size),
        **_experts(model, small, shapes),
    )


def _latent(model: ModelSpec, head_size: int) -> dict[str, Any]:
    """Short latents, and heads of which a part turns; of other attention that turns a part of each head, as small."""
    if not model.kv_latent:
        return {"rotary_size": head_size // 2 // 2 * 2 or head_size} if model.rotary_size else {}
    value = head_size - 1 if model.value_size else 0
    return {"rotary_size": 2, "value_size": value, "kv_latent": LATENT, "q_latent": LATENT + 1 if model.q_latent else 0}


def _experts(model: ModelSpec, small: Plan, shapes: tuple[int, ...]) -> dict[str, Any]:
    """Few and narrow experts, of which a token still goes to some and not to all, if it did."""
    if not any(model.shapes[shape].experts for shape in shapes):
        names = ("experts", "top_k", "expert_ffn", "shared_experts", "shared_ffn", "router_groups", "balance_rate")
        return {**dict.fromkeys(names, 0), "shared_gate": False}
    top_k = min(model.top_k, TOP_K)
    each = lcm(small.expert, 2 if model.router_groups else 1)
    few = -(-EXPERTS * top_k // each) * each  # each rank that shares them has as many, and each of two groups
    grouped = bool(model.router_groups) and all(model.shapes[shape].experts >= few for shape in shapes)
    return {
        "router_groups": 2 if grouped else 0,
        "router_top_groups": 1 if grouped else 0,
        "experts": tuple(min(model.shapes[shape].experts, few) for shape in shapes),
        "top_k": top_k,
        "expert_ffn": small.tensor * -(-EXPERT_FFN // small.tensor),
        "shared_ffn": 2 * small.tensor * -(-EXPERT_FFN // small.tensor) if model.shared_ffn else 0,
    }
