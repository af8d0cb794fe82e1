"""NeMo's Megatron-Bridge: a YAML file that overrides a recipe."""

from __future__ import annotations

from typing import Any

from heddle.spec.job import PlannedJob
from heddle.trainers.exported import ExportedPlan, JobInWords, commented
from heddle.trainers.megatron.write import (
    Arguments,
    data_arguments,
    model_arguments,
    parallel_arguments,
    training_arguments,
)
from heddle.yaml_text import to_yaml

TRAINER = "NeMo"
# by Megatron-LM's arguments: the section of a recipe, and the field where it is not the argument's name
MODEL = {
    "num-layers": "num_layers",
    "hidden-size": "hidden_size",
    "num-attention-heads": "num_attention_heads",
    "num-query-groups": "num_query_groups",
    "kv-channels": "kv_channels",
    "ffn-hidden-size": "ffn_hidden_size",
    "seq-length": "seq_length",
    "tensor-model-parallel-size": "tensor_model_parallel_size",
    "sequence-parallel": "sequence_parallel",
    "pipeline-model-parallel-size": "pipeline_model_parallel_size",
    "pipeline-model-parallel-layout": "pipeline_model_parallel_layout",
    "num-virtual-stages-per-pipeline-rank": "virtual_pipeline_model_parallel_size",
    "context-parallel-size": "context_parallel_size",
    "cp-comm-type": "cp_comm_type",
    "expert-model-parallel-size": "expert_model_parallel_size",
    "recompute-granularity": "recompute_granularity",
    "recompute-modules": "recompute_modules",
    "recompute-method": "recompute_method",
    "recompute-num-layers": "recompute_num_layers",
    "num-experts": "num_moe_experts",
    "moe-router-topk": "moe_router_topk",
    "moe-ffn-hidden-size": "moe_ffn_hidden_size",
}
SECTIONS: dict[str, dict[str, str]] = {
    "model": MODEL,
    "train": {
        "micro-batch-size": "micro_batch_size",
        "global-batch-size": "global_batch_size",
        "train-iters": "train_iters",
    },
    "optimizer": {
        "lr": "lr",
        "min-lr": "min_lr",
        "weight-decay": "weight_decay",
        "adam-beta1": "adam_beta1",
        "adam-beta2": "adam_beta2",
        "adam-eps": "adam_eps",
        "clip-grad": "clip_grad",
        "optimizer-cpu-offload": "optimizer_cpu_offload",
        "use-distributed-optimizer": "use_distributed_optimizer",
    },
    "scheduler": {
        "lr-decay-style": "lr_decay_style",
        "lr-decay-iters": "lr_decay_iters",
        "lr-warmup-iters": "lr_warmup_iters",
    },
    "ddp": {
        "use-distributed-optimizer": "use_distributed_optimizer",
        "use-megatron-fsdp": "use_megatron_fsdp",
        "data-parallel-sharding-strategy": "data_parallel_sharding_strategy",
        "overlap-grad-reduce": "overlap_grad_reduce",
        "overlap-param-gather": "overlap_param_gather",
    },
    "rng": {"seed": "seed"},
}


def nemo_yaml(job: PlannedJob) -> ExportedPlan:
    """Overrides for a recipe of the same model: Megatron-LM's words, in the sections that recipes have."""
    words = JobInWords(job)
    said: Arguments = model_arguments(words) | training_arguments(words) | parallel_arguments(words)
    data_arguments(words)
    document: dict[str, Any] = {}
    for section, names in SECTIONS.items():
        found = {field: _plain(said[flag]) for flag, field in names.items() if said.get(flag) is not None}
        document[section] = found
    if job.plan.virtual > 1 and "virtual_pipeline_model_parallel_size" not in document["model"]:
        document["model"]["virtual_pipeline_model_parallel_size"] = job.plan.virtual
    document["mixed_precision"] = {"bf16": "bf16_mixed", "fp16": "fp16_mixed"}.get(job.precision)
    document = {key: value for key, value in document.items() if value}
    besides = ["model: norms, positions and activations are the recipe's; start from one of the same family"]
    head = (
        f"# {job.model.name} on {job.plan.world} GPUs, for Megatron-Bridge: merge it into a recipe's ConfigContainer,\n"
        "# as its guide shows under YAML (OmegaConf.load and apply_overrides).\n"
    )
    text = head + commented(words.missing(TRAINER, besides), TRAINER) + to_yaml(document) + "\n"
    return words.exported(TRAINER, "nemo.yaml", text, besides)


def _plain(value: object) -> object:
    """As YAML has it: without quotation marks, and several words as a list."""
    return value.strip('"') if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
