"""A job as a TOML file for torchtitan."""

from __future__ import annotations

import re
from typing import Any

from heddle.schedule.registry import rule_of, usual
from heddle.spec.job import PlannedJob
from heddle.spec.tables import to_toml
from heddle.trainers.exported import (
    ExportedPlan,
    JobInWords,
    commented,
    devices_per_node,
    recompute_words,
    same_offload,
    same_zero,
)
from heddle.trainers.torchtitan.flavors import FLAVORS, flavor_of
from heddle.trainers.torchtitan.stages import modules_of

TRAINER = "torchtitan"
OFFLOADED = {"weights:host", "optimizer:host"}  # what its offloading moves


def torchtitan_toml(job: PlannedJob) -> ExportedPlan:
    """A file for `CONFIG_FILE=… ./run_train.sh`, and the same as flags of later releases."""
    words = JobInWords(job)
    besides: list[str] = []
    tables = {
        "job": {"description": f"{job.model.name} on {job.plan.world} GPUs"},
        "model": _model(words, besides),
        "optimizer": _optimizer(words),
        "lr_scheduler": _rates(words),
        "training": _training(words),
        "parallelism": _parallelism(words),
        "activation_checkpoint": _recompute(words),
        "compile": {"enable": bool(words.train.take("compile"))},
        "debug": {"seed": words.train.take("seed")},
    }
    each = devices_per_node(job)
    head = (
        f"# {job.model.name} on {job.plan.world} GPUs with {TRAINER} 0.1 or 0.2: "
        f"torchrun --nproc_per_node {each} --nnodes {job.plan.world // each} -m torchtitan.train "
        "--job.config_file THIS\n"
        "# Releases from 0.3 on take no files: there the keys of [training] and [parallelism] are flags, such as "
        f"--parallelism.tensor_parallel_degree {job.plan.tensor}.\n"
    )
    text = head + commented(words.missing(TRAINER, besides), TRAINER) + "\n" + _narrow(to_toml(tables))
    return words.exported(TRAINER, "torchtitan.toml", text, besides)


def _narrow(text: str) -> str:
    """Lists in lists on a line each: there is one for every chunk."""
    return re.sub(
        r"    \[\n((?:        [^\n]*\n)+)    \]", lambda each: f"    [{' '.join(each[1].split())[:-1]}]", text
    )


def _model(words: JobInWords, besides: list[str]) -> dict[str, Any]:
    model = words.job.model
    flavor = flavor_of(model)
    if flavor is None:
        besides.append(f"model: {TRAINER} has no flavor of the shape of {model.name}; register one")
        for each in ("name", "family"):
            words.model.take(each)
        words.model.spoken.update(model.__dataclass_fields__)
        return {"name": "llama3", "flavor": model.name}
    known = FLAVORS[flavor]
    words.model.spoken.update(set(model.__dataclass_fields__) - {"dropout", "balance_loss", "z_loss", "rope_scaling"})
    if (model.rope_scaling is None) == ("rope_scaling" in known):
        words.model.miss("rope_scaling", f"flavor {flavor[1]} has its own")
    else:
        words.model.take("rope_scaling")
    return {"name": flavor[0], "flavor": flavor[1]}


def _optimizer(words: JobInWords) -> dict[str, Any]:
    take = words.train.take
    take("optimizer")
    return {
        "name": "AdamW",
        "lr": take("learning_rate"),
        "beta1": take("beta1"),
        "beta2": take("beta2"),
        "eps": take("epsilon"),
        "weight_decay": take("weight_decay"),
    }


def _rates(words: JobInWords) -> dict[str, Any]:
    take, train = words.train.take, words.job.train
    shape, least = take("schedule"), take("final_learning_rate")
    found: dict[str, Any] = {"warmup_steps": take("warmup"), "min_lr_factor": least}
    share = take("decay")
    if shape == "constant":
        return found | {"decay_ratio": 0.0, "min_lr_factor": 1.0}
    if shape == "wsd":
        return found | {"decay_ratio": share, "decay_type": "linear"}
    return found | {"decay_ratio": 1.0 - train.warmup / max(1, train.steps), "decay_type": shape}


def _training(words: JobInWords) -> dict[str, Any]:
    job, take = words.job, words.train.take
    plan, precision = job.plan, job.precision
    batch = take("global_batch")
    take("sequence"), take("precision"), words.plan.take("microbatch")
    if precision == "fp16":
        words.train.miss("precision", "it computes in bf16 or fp32")
    found = {
        # with a pipeline it cuts the local batch into microbatches; without one it adds up gradients instead
        "local_batch_size": plan.microbatch if plan.pipeline == 1 else batch // plan.data,
        "global_batch_size": batch,
        "seq_len": job.sequence,
        "max_norm": take("clip"),
        "steps": take("steps"),
        "mixed_precision_param": "float32" if precision == "fp32" else "bfloat16",
    }
    offload = {*words.plan.take("offload")}
    if offload == OFFLOADED and plan.zero == 3 and same_offload(job):
        found["enable_cpu_offload"] = True
    elif offload:
        words.plan.miss("offload", "weights, gradients and optimizer state go to the host together, or not at all")
    return found


def _parallelism(words: JobInWords) -> dict[str, Any]:
    job, plan, take, miss = words.job, words.job.plan, words.plan.take, words.plan.miss
    zero = take("zero") if plan.replicas > 1 else 0
    data = take("data")
    if zero == 1:
        miss("zero", "it shards gradients and weights as well; written as zero = 2")
    alone = plan.world == plan.data  # it copies weights only where nothing else is split
    if zero == 0 and plan.replicas > 1 and not alone:
        miss("zero", "weights are copied only where nothing else is split; written as zero = 2")
    if not same_zero(job):
        miss("layers", "all layers shard alike")
    sharded = zero > 0 or not alone
    if take("tensor") > 1 and not take("sequence"):
        miss("sequence", "tensor parallelism always splits the sequence, too")
    take("sequence"), take("pipeline"), take("virtual"), take("stages")
    found: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if sharded else data,
        "data_parallel_shard_degree": data if sharded else 1,
        "fsdp_reshard_after_forward": "always" if zero == 3 else "never",
        "tensor_parallel_degree": plan.tensor,
        "pipeline_parallel_degree": plan.pipeline,
        "context_parallel_degree": take("context"),
    }
    if plan.context > 1:
        ring = take("context_exchange") != "gather"
        found["context_parallel_rotate_method"] = "alltoall" if ring else "allgather"
        if plan.context_exchange not in ("ring", "gather"):
            miss("context_exchange", "heads are not exchanged for tokens; written as a ring")
    if take("expert") > 1:
        split = 1 if take("expert_tensor") == 1 else plan.tensor
        found |= {"expert_parallel_degree": plan.expert, "expert_tensor_parallel_degree": split}
    schedule = take("schedule")
    if plan.pipeline > 1:
        name = rule_of(schedule).torch_name
        if not name:
            miss("schedule", "torch.distributed.pipelining has none of its kind")
        found |= {
            "pipeline_parallel_schedule": name or rule_of(usual(plan.virtual)).torch_name,
            "pipeline_parallel_microbatch_size": plan.microbatch,
            "module_fqns_per_model_part": modules_of(plan.stages),
        }
    return found


def _recompute(words: JobInWords) -> dict[str, Any]:
    job = words.job
    words.plan.take("recompute")
    if job.plan.layers and same_zero(job) and same_offload(job):
        words.plan.take("layers")
    said = recompute_words(job)
    if len({*said}) > 1:
        words.plan.miss(
            "layers" if job.plan.layers else "recompute", "all layers are recomputed alike; written as full"
        )
    mode = said[0] if len({*said}) == 1 else "full"
    if mode not in ("selective", "elementwise"):
        return {"mode": mode}
    words.plan.miss(
        "recompute",
        "every second product is recomputed, too"
        if mode == "elementwise"
        else "what lies between products is recomputed, and not attention",
    )
    return {"mode": "selective", "selective_ac_option": "op"}
