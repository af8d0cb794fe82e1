"""DeepSpeed: the JSON configuration that a training script hands to `deepspeed.initialize`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, nearest, shorten
from heddle.files import parse_foreign_json, read_text
from heddle.schedule.registry import usual
from heddle.spec.job import PlannedJob
from heddle.trainers.exported import ExportedPlan, JobInWords, recompute_words, same_offload, same_zero
from heddle.trainers.imported import ImportedSettings
from heddle.trainers.values import AUTO, real, subtable, whole

TRAINER = "DeepSpeed"
TIERS = {"cpu": "host", "nvme": "disk"}
ELSEWHERE = {  # what the script or the model says, not the configuration
    "pipeline": "stages are set where the model is made: PipelineModule(num_stages=…)",
    "recompute": "layers are recomputed where the model asks for it: gradient_checkpointing_enable()",
}
# keys that change neither the plan nor how long a step takes by more than a little
HARMLESS = (
    *("steps_per_print", "wall_clock_breakdown", "dump_state", "tensorboard", "wandb", "csv_monitor", "flops_profiler"),
    *("comms_logger", "checkpoint", "data_types", "zero_allow_untrained_parameters", "zero_force_ds_cpu_optimizer"),
    *(
        "communication_data_type",
        "prescale_gradients",
        "gradient_predivide_factor",
        "aio",
        "zero_allow_untested_optimizer",
    ),
)


def deepspeed_json(job: PlannedJob) -> ExportedPlan:
    """The configuration; JSON has no comments, so what it does not say is in `missing` alone."""
    words = JobInWords(job)
    plan, take = job.plan, words.plan.take
    words.model.spoken.update(job.model.__dataclass_fields__)
    if take("pipeline") > 1:
        words.plan.miss("pipeline", ELSEWHERE["pipeline"])
        for name in ("virtual", "stages"):
            take(name)
        if take("schedule") != usual(1):
            words.plan.miss("schedule", "pipelines run 1F1B")
    take("stages"), take("schedule")
    if {*recompute_words(job)} != {"none"}:
        words.plan.miss("recompute", ELSEWHERE["recompute"])
    take("recompute")
    if plan.sequence and take("sequence"):
        words.plan.miss("sequence", "tensor parallelism keeps whole sequences on every rank")
    data, microbatch = take("data"), take("microbatch")
    document: dict[str, Any] = {
        "train_batch_size": words.train.take("global_batch"),
        "train_micro_batch_size_per_gpu": microbatch,
        "gradient_accumulation_steps": job.train.global_batch // (data * microbatch),
        "gradient_clipping": words.train.take("clip"),
        "optimizer": _optimizer(words),
        "scheduler": _rates(words),
        "zero_optimization": _zero(words),
    }
    precision = job.precision
    words.train.take("precision")
    if precision != "fp32":
        document[precision] = {"enabled": True}
    if take("tensor") > 1:
        document["tensor_parallel"] = {"autotp_size": plan.tensor}
    if take("context") > 1:
        document["sequence_parallel_size"] = plan.context
        if take("context_exchange") != "all-to-all":
            words.plan.miss("context_exchange", "ranks that share samples exchange heads for tokens (Ulysses)")
    document = {key: value for key, value in document.items() if value is not None}
    besides = ["model and data: the script names them"]
    for name in ("steps", "sequence", "seed", "compile"):
        words.train.take(name)
    return words.exported(TRAINER, "ds_config.json", json.dumps(document, indent=2) + "\n", besides)


def _optimizer(words: JobInWords) -> dict[str, Any]:
    take = words.train.take
    take("optimizer")
    return {
        "type": "AdamW",
        "params": {
            "lr": take("learning_rate"),
            "betas": [take("beta1"), take("beta2")],
            "eps": take("epsilon"),
            "weight_decay": take("weight_decay"),
        },
    }


def _rates(words: JobInWords) -> dict[str, Any]:
    take, train = words.train.take, words.job.train
    shape, least, share = take("schedule"), take("final_learning_rate"), take("decay")
    warmup = take("warmup")
    del share
    if shape == "cosine":
        params: dict[str, Any] = {"total_num_steps": train.steps, "warmup_num_steps": warmup, "cos_min_ratio": least}
        return {"type": "WarmupCosineLR", "params": params}
    params = {"warmup_min_lr": 0, "warmup_max_lr": train.learning_rate, "warmup_num_steps": warmup}
    if shape == "constant":
        return {"type": "WarmupLR", "params": params}
    if shape == "wsd":
        words.train.miss("schedule", "rates are constant, linear or cosine; written as linear")
    if least:
        words.train.miss("final_learning_rate", "a linear schedule ends at 0")
    return {"type": "WarmupDecayLR", "params": params | {"total_num_steps": train.steps}}


def _zero(words: JobInWords) -> dict[str, Any]:
    job = words.job
    stage = words.plan.take("zero") if job.plan.replicas > 1 else 0
    if not same_zero(job):
        words.plan.miss("layers", "all layers shard alike")
    found: dict[str, Any] = {"stage": stage}
    if stage:
        found |= {"overlap_comm": True, "contiguous_gradients": True}
    tiers = {word.partition(":")[0]: word.partition(":")[2] for word in words.plan.take("offload")}
    devices = {tier: device for device, tier in TIERS.items()}
    for kind, key in (("optimizer", "offload_optimizer"), ("weights", "offload_param")):
        if kind in tiers:
            found[key] = {"device": devices[tiers.pop(kind)], "pin_memory": True}
    if tiers:
        words.plan.miss("offload", "activations are offloaded by the script, if at all")
    if not same_offload(job):
        words.plan.miss("layers", "all layers offload alike")
    return found


def read_deepspeed(given: str) -> ImportedSettings:
    """From the path of a JSON file, or its text."""
    text = given if given.lstrip().startswith("{") else read_text(Path(given), "a configuration of DeepSpeed")
    try:
        document = parse_foreign_json(text)
    except ValueError as error:
        raise HeddleError("The configuration is not valid JSON.", f"{error}.", "DeepSpeed reads { … }.") from None
    if not isinstance(document, dict):
        raise HeddleError("The configuration is not a table.", "DeepSpeed reads one JSON object.", "Write { … }.")
    found = ImportedSettings(trainer=TRAINER)
    asked: set[str] = set()

    def number(name: str) -> int | None:
        asked.add(name)
        if document.get(name) == AUTO:
            found.assumed.append(f"{name}: left to the script (auto)")
        return whole(document, name, least=1)

    batch, micro = number("train_batch_size"), number("train_micro_batch_size_per_gpu")
    steps = number("gradient_accumulation_steps") or 1
    tensor = whole(subtable(document, "tensor_parallel"), "autotp_size", 1, "tensor_parallel.") or 1
    context = whole(document, "sequence_parallel_size", 1) or 1
    asked.update(("tensor_parallel", "sequence_parallel_size", "gradient_clipping", "optimizer", "scheduler", "seed"))
    asked.update(("zero_optimization", "bf16", "fp16", "bfloat16", "amp"))
    plan: dict[str, Any] = {"microbatch": micro or 1}
    if tensor > 1:
        plan["tensor"] = tensor
    if context > 1:
        plan |= {"context": context, "context_exchange": "all-to-all"}
    if batch and micro:
        plan["data"] = max(1, batch // (micro * steps))
    if batch:
        found.train["global_batch"] = batch
    found.plan = plan | _read_zero(document, found)
    found.train |= _read_train(document)
    if not batch and micro:
        found.assumed.append(
            "batch: one microbatch for each device and accumulation step, as train_batch_size is not set"
        )
    found.software = {"profile": "torch FSDP" if plan.get("zero", 0) == 3 else "heddle"}
    _account(document, asked, found)
    return found


def _read_zero(document: dict[str, Any], found: ImportedSettings) -> dict[str, Any]:
    zero = document.get("zero_optimization", {})
    if not isinstance(zero, dict):
        return {"zero": 1 if zero is True else 0}
    stage = whole(zero, "stage", 0, "zero_optimization.")
    if stage not in (0, 1, 2, 3):
        raise HeddleError(f"zero_optimization.stage = {stage}.", "ZeRO has stages 0 to 3.", "For example stage = 3.")
    plan: dict[str, Any] = {"zero": stage}
    offload = []
    for key, kind in (("offload_param", "weights"), ("offload_optimizer", "optimizer")):
        device = str(subtable(zero, key, "zero_optimization.").get("device", "none"))
        if device not in (*TIERS, "none"):
            raise HeddleError(
                f"zero_optimization.{key}.device = {shorten(device)} is not known.",
                "States are kept in the host's memory, or on its disk.",
                nearest(device, [*TIERS, "none"]),
            )
        tier = TIERS.get(device)
        if key == "offload_optimizer" and zero.get("cpu_offload"):
            tier = "host"
        if tier:
            offload.append(f"{kind}:{tier}")
    if any(word.startswith("weights") for word in offload) and not any(
        word.startswith("optimizer") for word in offload
    ):
        offload.append(f"optimizer:{offload[0].partition(':')[2]}")
        found.assumed.append("offload_optimizer: as offload_param, since weights are updated where they are")
    if offload:
        plan["offload"] = offload
    for key in ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients", "mics_shard_size"):
        if zero.get(key) not in (None, False, 1, -1):
            found.dropped.append(f"zero_optimization.{key} = {zero[key]}: priced without")
    return plan


def _read_train(document: dict[str, Any]) -> dict[str, Any]:
    on = [name for name in ("bf16", "bfloat16", "fp16") if _enabled(document.get(name))]
    train: dict[str, Any] = {"precision": {"bfloat16": "bf16"}.get(on[0], on[0]) if on else "fp32"}
    params = subtable(subtable(document, "optimizer"), "params", "optimizer.")
    for key, name in (("learning_rate", "lr"), ("epsilon", "eps"), ("weight_decay", "weight_decay")):
        if (value := real(params, name, "optimizer.params.")) is not None:
            train[key] = value
    betas = params.get("betas")
    if isinstance(betas, list) and len(betas) == 2:
        for key, beta in zip(("beta1", "beta2"), betas, strict=True):
            if (value := real({key: beta}, key, "optimizer.params.")) is not None:
                train[key] = value
    if (clip := real(document, "gradient_clipping")) is not None:
        train["clip"] = clip
    return train | _read_rates(subtable(document, "scheduler"))


def _read_rates(scheduler: dict[str, Any]) -> dict[str, Any]:
    if not scheduler:
        return {}
    params = subtable(scheduler, "params", "scheduler.")
    shapes = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
    found: dict[str, Any] = {"schedule": shapes.get(str(scheduler.get("type", "")), "cosine")}
    for key, name in (("steps", "total_num_steps"), ("warmup", "warmup_num_steps")):
        if (count := whole(params, name, where="scheduler.params.")) is not None and (count or key != "steps"):
            found[key] = count
    if (ratio := real(params, "cos_min_ratio", "scheduler.params.")) is not None:
        found["final_learning_rate"] = ratio
    if found["schedule"] == "linear":
        found["final_learning_rate"] = 0.0
    return found


def _enabled(table: Any) -> bool:
    return isinstance(table, dict) and table.get("enabled") is True


def _account(document: dict[str, Any], asked: set[str], found: ImportedSettings) -> None:
    for name, value in document.items():
        if name in asked:
            continue
        if name in HARMLESS:
            found.harmless += 1
        elif name == "activation_checkpointing":
            found.dropped.append(
                "activation_checkpointing: whether layers are recomputed is said by the model; --set changes it"
            )
        elif name in ("pipeline", "sparse_attention", "compression_training", "moe", "progressive_layer_drop"):
            found.dropped.append(f"{name}: priced without")
        else:
            found.unknown.append(f"{name} = {json.dumps(value)[:40]}")
