"""A job as the arguments of Megatron-LM, in a script that starts it."""

from __future__ import annotations

from heddle.schedule.registry import BY_DEFAULT
from heddle.spec.job import PlannedJob
from heddle.spec.model import ModelSpec
from heddle.spec.rules.even import even_stages
from heddle.trainers.exported import (
    ExportedPlan,
    JobInWords,
    commented,
    devices_per_node,
    first_of_each_chunk,
    recompute_words,
    same_offload,
    same_zero,
)
from heddle.trainers.megatron.layout import layout_of

TRAINER = "Megatron-LM"
EXCHANGES = {"ring": "p2p", "gather": "all_gather", "all-to-all": "a2a"}
DECAYS = {"cosine": "cosine", "linear": "linear", "constant": "constant", "wsd": "WSD"}

Arguments = dict[str, object]  # True: a flag; None: left out


def megatron_script(job: PlannedJob) -> ExportedPlan:
    """A script as Megatron-LM's examples have them."""
    words = JobInWords(job)
    groups = {
        "MODEL_ARGS": model_arguments(words),
        "TRAINING_ARGS": training_arguments(words),
        "MODEL_PARALLEL_ARGS": parallel_arguments(words),
        "DATA_ARGS": data_arguments(words),
    }
    padded = -(-job.model.vocab // (128 * job.plan.tensor)) * 128 * job.plan.tensor
    besides = [f"model.vocab = {job.model.vocab}: {TRAINER} pads it to {padded}"] * (padded != job.model.vocab)
    missing = words.missing(TRAINER, besides)
    each = devices_per_node(job)
    sharded = job.plan.zero >= 2 and job.plan.replicas > 1
    connections = (
        "# FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset" if sharded else "export CUDA_DEVICE_MAX_CONNECTIONS=1"
    )
    text = [
        "#!/bin/bash",
        f"# {job.model.name} on {job.plan.world} GPUs with {TRAINER} (core 0.8 or later). Start it on every node.",
        commented(missing, TRAINER),
        connections,
        *(f"\n{name}=(\n" + "".join(f"    {line}\n" for line in _lines(found)) + ")" for name, found in groups.items()),
        "",
        f"torchrun --nproc_per_node {each} --nnodes {job.plan.world // each} --node_rank ${{NODE_RANK:-0}} \\",
        "    --master_addr ${MASTER_ADDR:-localhost} --master_port ${MASTER_PORT:-29500} pretrain_gpt.py \\",
        " \\\n".join(f"    ${{{name}[@]}}" for name in groups),
    ]
    return words.exported(TRAINER, "train.sh", "\n".join(text) + "\n", besides)


def _lines(arguments: Arguments) -> list[str]:
    said = {flag: value for flag, value in arguments.items() if value is not None and value is not False}
    worded = {flag: " ".join(value) if isinstance(value, tuple) else value for flag, value in said.items()}
    return [f"--{flag}" if value is True else f"--{flag} {value}" for flag, value in worded.items()]


def model_arguments(words: JobInWords) -> Arguments:
    """The shape of the model."""
    model, take = words.job.model, words.model.take
    grouped = take("kv_heads") != take("heads")
    found: Arguments = {
        "num-layers": take("layers"),
        "hidden-size": take("hidden"),
        "num-attention-heads": model.heads,
        "group-query-attention": grouped,
        "num-query-groups": model.kv_heads if grouped else None,
        "kv-channels": take("head_size"),
        "seq-length": words.job.sequence,
        "max-position-embeddings": take("sequence"),
        "normalization": {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[take("norm")],
        "norm-epsilon": take("norm_epsilon"),
        "untie-embeddings-and-output-weights": not take("tied"),
        "hidden-dropout": take("dropout"),
        "attention-dropout": 0.0,
        "qk-layernorm": take("qk_norm") if model.qk_norm_over == "head" else None,
        "apply-layernorm-1p": take("norm_weight") == "offset",
        "softmax-type": "learnable" if take("sinks") else None,
    }
    words.train.take("sequence")
    if model.norm_weight == "none":
        words.model.miss("norm_weight", "norms have weights")
    return found | _mlp(words, model) | _positions(words, model) | _experts(words, model)


def _mlp(words: JobInWords, model: ModelSpec) -> Arguments:
    take, miss = words.model.take, words.model.miss
    if take("activation") not in ("gelu", "swiglu", "relu2"):
        miss("activation", "only GELU, SwiGLU and squared ReLU have an argument")
    if take("bias") not in ("all", "none", "qkv"):
        miss("bias", "linear layers have biases all or none, or those of queries, keys and values")
    width = take("ffn")
    if isinstance(width, tuple):
        miss("ffn", "all layers are equally wide")
    return {
        "ffn-hidden-size": max(width) if isinstance(width, tuple) else width,
        "swiglu": model.activation == "swiglu",
        "squared-relu": model.activation == "relu2",
        "disable-bias-linear": model.bias in ("none", "qkv"),
        "add-qkv-bias": model.bias == "qkv",
    }


def _positions(words: JobInWords, model: ModelSpec) -> Arguments:
    take, miss = words.model.take, words.model.miss
    window = take("window")
    windows = {*window} - {0} if isinstance(window, tuple) else {window} - {None}
    found: Arguments = {}
    if len(windows) == 1:
        found["window-size"] = f"{max(w for w in windows if w) - 1},0"
        if isinstance(window, tuple):
            found["window-attn-skip-freq"] = _pattern([int(w > 0) for w in window])
    elif windows:
        miss("window", "all windows are equally long")
    if take("positions") == "learned":
        take("rope_theta")
        return found | {"position-embedding-type": "learned_absolute"}
    theta = take("rope_theta")
    bases = {*theta} - {0.0} if isinstance(theta, tuple) else {theta}
    if len(bases) > 1:
        miss("rope_theta", "layers share one base")
    elif isinstance(theta, tuple):
        found["no-rope-freq"] = _pattern([int(t == 0) for t in theta])
    scaling = take("rope_scaling")
    if scaling is not None and scaling.kind == "llama3":
        found |= {"use-rope-scaling": True, "rope-scaling-factor": scaling.factor}
        usual = (scaling.low_frequency_factor, scaling.high_frequency_factor, scaling.original_sequence)
        if usual != (1.0, 4.0, 8192):
            miss("rope_scaling", "of Llama 3's scaling only the factor can be set")
    elif scaling is not None and scaling.kind == "linear" and scaling.factor == int(scaling.factor):
        found["rotary-seq-len-interpolation-factor"] = int(scaling.factor)
    elif scaling is not None:
        miss("rope_scaling", "this way of stretching positions has no argument")
    size = take("rotary_size")
    return found | {
        "position-embedding-type": "rope",
        "rotary-base": int(max(bases)),
        "rotary-percent": size / model.head_size if size else None,
        "rotary-interleaved": take("rotary_pairs") == "neighbors",
    }


def _pattern(flags: list[int]) -> str:
    return f'"[{",".join(map(str, flags))}]"'


def _experts(words: JobInWords, model: ModelSpec) -> Arguments:
    take = words.model.take
    experts = take("experts")
    counts = {*experts} - {0} if isinstance(experts, tuple) else {experts} - {0}
    if not counts:
        return {}
    if len(counts) > 1:
        words.model.miss("experts", "layers have equally many experts, or none")
    balance, z = take("balance_loss"), take("z_loss")
    for name in ("shared_experts", "router"):
        take(name)
    return {
        "num-experts": max(counts),
        "moe-layer-freq": _pattern([int(count > 0) for count in experts]) if isinstance(experts, tuple) else None,
        "moe-router-topk": take("top_k"),
        "moe-ffn-hidden-size": take("expert_ffn"),
        "moe-shared-expert-intermediate-size": take("shared_ffn") or None,
        "moe-shared-expert-gate": take("shared_gate"),
        "moe-router-score-function": model.router,
        "moe-router-pre-softmax": not take("router_normalized"),
        "moe-router-load-balancing-type": "seq_aux_loss" if balance else "none",
        "moe-aux-loss-coeff": balance or None,
        "moe-z-loss-coeff": z or None,
        "moe-grouped-gemm": True,
        "moe-token-dispatcher-type": "alltoall",
    }


def training_arguments(words: JobInWords) -> Arguments:
    """Batch, optimizer, learning rate, precision."""
    train, take = words.job.train, words.train.take
    for name in ("precision", "optimizer"):
        take(name)
    if take("compile"):
        words.train.miss("compile", "kernels are fused by Transformer Engine instead")
    style = take("schedule")
    share = take("decay")
    return {
        "micro-batch-size": words.plan.take("microbatch"),
        "global-batch-size": take("global_batch"),
        "train-iters": take("steps"),
        "lr": take("learning_rate"),
        "min-lr": f"{train.learning_rate * take('final_learning_rate'):.6g}",
        "lr-decay-style": DECAYS[style],
        "lr-decay-iters": train.steps,
        "lr-wsd-decay-iters": round(share * train.steps) if style == "wsd" else None,
        "lr-warmup-iters": take("warmup"),
        "weight-decay": take("weight_decay"),
        "adam-beta1": take("beta1"),
        "adam-beta2": take("beta2"),
        "adam-eps": take("epsilon"),
        "clip-grad": take("clip"),
        "seed": take("seed") or 1,
        words.job.precision: words.job.precision != "fp32",
    }


def parallel_arguments(words: JobInWords) -> Arguments:
    """The plan."""
    job, plan, take, miss = words.job, words.job.plan, words.plan.take, words.plan.miss
    take("data")
    found: Arguments = {
        "tensor-model-parallel-size": take("tensor"),
        "sequence-parallel": take("sequence"),
        "pipeline-model-parallel-size": take("pipeline"),
        "context-parallel-size": take("context"),
        "cp-comm-type": EXCHANGES.get(take("context_exchange"), "p2p") if plan.context > 1 else None,
        "expert-model-parallel-size": take("expert") if plan.expert > 1 else None,
        "expert-tensor-parallel-size": take("expert_tensor") if plan.whole_experts else None,
    }
    if plan.context > 1 and plan.context_exchange not in EXCHANGES:
        miss("context_exchange", "it is one of ring, gather and all-to-all here; written as a ring")
    take("virtual")
    if take("schedule") not in BY_DEFAULT and plan.pipeline > 1:
        miss("schedule", "pipelines run 1F1B, interleaved where they have several chunks")
    stages = take("stages")
    if len(set(stages)) > 1:
        found["pipeline-model-parallel-layout"] = f'"{layout_of(stages)}"'
    elif plan.virtual > 1:
        found["num-virtual-stages-per-pipeline-rank"] = plan.virtual
    assert sum(stages) == sum(even_stages(job.model.layers, plan.chunks))
    return found | _sharding(words) | _memory(words)


def _sharding(words: JobInWords) -> Arguments:
    """ZeRO, as the distributed optimizer or as Megatron's FSDP."""
    plan = words.job.plan
    zero = words.plan.take("zero") if plan.replicas > 1 else 0
    if not same_zero(words.job):
        words.plan.miss("layers", "all layers shard alike")
    overlap: Arguments = {"overlap-grad-reduce": plan.replicas > 1, "overlap-param-gather": zero > 0}
    found: Arguments = {"use-distributed-optimizer": zero > 0} | overlap
    if zero >= 2:
        kept = {2: "optim_grads", 3: "optim_grads_params"}[zero]
        found |= {
            "use-megatron-fsdp": True,
            "data-parallel-sharding-strategy": kept,
            "ckpt-format": "fsdp_dtensor",
        }
    return found


def _memory(words: JobInWords) -> Arguments:
    """Recomputation and offloading."""
    job = words.job
    recompute, said = words.plan.take("recompute"), {*recompute_words(job)}
    words.plan.take("layers") if job.plan.layers and same_zero(job) and same_offload(job) else None
    found: Arguments = {}
    if said == {"selective"}:
        found["recompute-granularity"] = "selective"
    elif said == {"elementwise"}:
        mixture = any(shape.experts for shape in job.model.shapes)
        modules = ("layernorm", *["moe_act"] * mixture)
        found = {"recompute-granularity": "selective", "recompute-modules": modules}
        words.plan.miss("recompute", f"of what lies between products, {' and '.join(modules)} alone is recomputed")
    elif said == {"full"}:
        found = {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    elif said != {"none"}:
        count = first_of_each_chunk(job)
        if count is None:
            name = "recompute" if not isinstance(recompute, str) else "layers"
            words.plan.miss(name, "layers are recomputed alike, or so many at the beginning of each chunk")
        else:
            found = {"recompute-granularity": "full", "recompute-method": "block", "recompute-num-layers": count}
    offload = words.plan.take("offload")
    if not same_offload(job):
        words.plan.miss("layers", "all layers offload alike")
    if {*offload} <= {"optimizer:host"}:
        found["optimizer-cpu-offload"] = bool(offload)
    else:
        words.plan.miss("offload", "only the optimizer's state is kept on the host, by --optimizer-cpu-offload")
    return found


def data_arguments(words: JobInWords) -> Arguments:
    """Made-up tokens, until there are real ones: Heddle's are in another format."""
    return {"mock-data": True, "tokenizer-type": "NullTokenizer", "vocab-size": words.model.take("vocab")}
