"""A launch line of Megatron-LM as a job: what it trains, on how many devices, and under which plan."""

from __future__ import annotations

import re
from typing import Any

from heddle.errors import HeddleError
from heddle.schedule.registry import usual
from heddle.spec.rules.even import even_stages
from heddle.trainers.imported import ImportedSettings
from heddle.trainers.launch_line import launch_words
from heddle.trainers.megatron.layout import stages_of
from heddle.trainers.megatron.read_model import model_of
from heddle.trainers.megatron.words import DROPPED, HARMLESS, MegatronArguments
from heddle.trainers.values import check_chunks

TRAINER = "Megatron-LM"
EXCHANGES = {"p2p": "ring", "all_gather": "gather", "allgather": "gather", "a2a": "all-to-all", "a2a+p2p": "ring"}
OLD = ("DDP-impl", "activations-checkpoint-method", "checkpoint-activations")  # arguments of 2021


def read_megatron(given: str) -> ImportedSettings:
    """From the arguments, the whole command, or the path of a script."""
    words = launch_words(given)
    arguments = MegatronArguments.of(words)
    if not arguments.said("num-layers"):
        raise HeddleError(
            "The launch line has no --num-layers.",
            "It is read as the arguments of Megatron-LM's pretrain_gpt.py.",
            'For example "--num-layers 32 --hidden-size 4096 …", or the path of the script that starts it.',
        )
    found = ImportedSettings(trainer=TRAINER)
    found.model = model_of(arguments, found.assumed, found.dropped)
    found.plan = _plan(arguments, found.model["layers"])
    found.train = _train(arguments)
    found.software = _software(arguments)
    per_node, nodes = arguments.number("nproc_per_node", "nproc-per-node"), arguments.number("nnodes", default=1)
    if per_node is not None:
        found.processes, found.per_node = per_node * (nodes or 1), per_node
    _account(arguments, found)
    return found


def _plan(arguments: MegatronArguments, layers: int) -> dict[str, Any]:
    tensor = arguments.degree("tensor-model-parallel-size", "model-parallel-size")
    pipeline = arguments.degree("pipeline-model-parallel-size")
    context = arguments.degree("context-parallel-size")
    plan: dict[str, Any] = {"tensor": tensor, "pipeline": pipeline}
    plan["sequence"] = arguments.flag("sequence-parallel") and tensor > 1
    if context > 1:
        plan |= {"context": context, "context_exchange": EXCHANGES.get(arguments.word("cp-comm-type", "p2p"), "ring")}
    if (experts := arguments.degree("expert-model-parallel-size")) > 1:
        plan["expert"] = experts
    if arguments.number("expert-tensor-parallel-size", default=tensor) == 1 < tensor:
        plan["expert_tensor"] = 1
    stages = _stages(arguments, layers, pipeline)
    plan |= {"virtual": len(stages) // pipeline, "stages": stages}
    plan["schedule"] = usual(plan["virtual"])
    plan["zero"] = _zero(arguments)
    plan["microbatch"] = arguments.number("micro-batch-size", "batch-size", default=1)
    plan["recompute"] = _recompute(arguments, stages)
    if arguments.flag("optimizer-cpu-offload"):
        plan["offload"] = ["optimizer:host"]
    return plan


def _stages(arguments: MegatronArguments, layers: int, pipeline: int) -> list[int]:
    """Layers of each chunk, in model order."""
    if layout := arguments.word("pipeline-model-parallel-layout"):
        return stages_of(layout)
    virtual = arguments.number("num-virtual-stages-per-pipeline-rank", default=1) or 1
    each = arguments.number("num-layers-per-virtual-pipeline-stage")
    if each:
        virtual = max(1, layers // (pipeline * each))
    first = arguments.number("decoder-first-pipeline-num-layers")
    last = arguments.number("decoder-last-pipeline-num-layers")
    check_chunks(pipeline * virtual, layers)
    ranks = [*even_stages(layers, pipeline)]
    if first is not None or last is not None:
        middle = max(0, pipeline - (first is not None) - (last is not None))
        rest = layers - (first or 0) - (last or 0)
        ranks = [*([first] if first is not None else []), *(even_stages(rest, middle) if middle else []),
                 *([last] if last is not None else [])]  # fmt: skip
    else:
        start, end = (arguments.flag(f"account-for-{name}-in-pipeline-split") for name in ("embedding", "loss"))
        if start or end:
            ranks = [*even_stages(layers + start + end, pipeline)]
            ranks[0], ranks[-1] = ranks[0] - start, ranks[-1] - end
    if virtual == 1 or pipeline == 1:
        return ranks
    if any(count % virtual for count in ranks):
        return [*even_stages(layers, pipeline * virtual)]
    return [count // virtual for _ in range(virtual) for count in ranks]


def _zero(arguments: MegatronArguments) -> int:
    sharded = arguments.flag("use-distributed-optimizer")
    if arguments.flag("use-torch-fsdp2"):
        return 2 if arguments.flag("torch-fsdp2-no-reshard-after-forward") else 3
    if arguments.flag("use-megatron-fsdp", "use-custom-fsdp"):
        kept = arguments.word("data-parallel-sharding-strategy", "optim_grads_params")
        return {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}.get(kept, 3)
    return int(sharded)


BETWEEN = frozenset({"layernorm", "moe_act"})  # of what Megatron recomputes by module, all but products


def _recompute(arguments: MegatronArguments, stages: list[int]) -> str | list[str]:
    count = arguments.number("recompute-num-layers", "activations-checkpoint-num-layers", default=1) or 1
    method = arguments.word("recompute-method", arguments.word("activations-checkpoint-method", ""))
    granularity = arguments.word("recompute-granularity", "")
    if not granularity:
        if arguments.flag("recompute-activations"):
            return "selective"
        old = method or arguments.flag("checkpoint-activations")
        granularity = "full" if old else "none"
    modules = {*arguments.words("recompute-modules")}
    if granularity == "selective" and modules & BETWEEN and "core_attn" not in modules:
        return "elementwise"
    if granularity != "full" or method != "block":
        return granularity
    return [word for length in stages for word in ["full"] * min(count, length) + ["none"] * max(0, length - count)]


def _train(arguments: MegatronArguments) -> dict[str, Any]:
    train: dict[str, Any] = {}
    batch = arguments.number("global-batch-size")
    if batch:
        train["global_batch"] = batch
    steps, samples = arguments.number("train-iters"), arguments.number("train-samples")
    if steps is None and samples and batch:
        steps = samples // batch
    if steps:
        train["steps"] = steps
    if sequence := arguments.number("seq-length", "encoder-seq-length"):
        train["sequence"] = sequence
    train["precision"] = next((name for name in ("bf16", "fp16") if arguments.flag(name)), "fp32")
    for key, flag in (
        ("learning_rate", "lr"),
        ("weight_decay", "weight-decay"),
        ("beta1", "adam-beta1"),
        ("beta2", "adam-beta2"),
        ("epsilon", "adam-eps"),
        ("clip", "clip-grad"),
    ):
        if (value := arguments.real(flag)) is not None:
            train[key] = value
    rate, least = train.get("learning_rate"), arguments.real("min-lr")
    if rate and least is not None:
        train["final_learning_rate"] = least / rate
    style = arguments.word("lr-decay-style", "linear").lower()
    train["schedule"] = style if style in ("cosine", "linear", "wsd", "constant") else "cosine"
    decay = arguments.number("lr-decay-iters") or steps
    if (warmup := arguments.number("lr-warmup-iters")) is not None:
        train["warmup"] = warmup
    elif (share := arguments.real("lr-warmup-fraction")) is not None and decay:
        train["warmup"] = round(share * decay)
    elif (samples := arguments.number("lr-warmup-samples")) and batch:
        train["warmup"] = samples // batch
    if (last := arguments.number("lr-wsd-decay-iters")) and steps:
        train["decay"] = min(1.0, last / steps)
    if (seed := arguments.number("seed")) is not None:
        train["seed"] = seed
    return train


def _software(arguments: MegatronArguments) -> dict[str, Any]:
    """Which Megatron-LM it is, and what it overlaps: asked for by arguments, not by default."""
    if any(arguments.said(name) for name in OLD):
        return {"profile": "megatron-lm 2021"}
    found: dict[str, Any] = {
        "profile": "megatron-core 0.8+",
        "data_overlap": float(arguments.flag("overlap-grad-reduce")),
        "gather_overlap": float(arguments.flag("overlap-param-gather")),
    }
    if not arguments.flag("tp-comm-overlap"):
        found["tensor_overlap"] = 0.0
    if arguments.flag("no-overlap-p2p-communication"):
        found["pipeline_overlap"] = 0.0
    return found


def _account(arguments: MegatronArguments, found: ImportedSettings) -> None:
    """What became of the arguments that nobody asked for."""
    for name, values in arguments.left():
        shown = f"--{name} {' '.join(values)}".strip()
        reason = next((why for pattern, why in DROPPED.items() if re.fullmatch(pattern, name)), None)
        if reason is not None:
            found.dropped.append(f"{shown}: {reason}")
        elif re.fullmatch(HARMLESS, name):
            found.harmless += 1
        else:
            found.unknown.append(shown)
