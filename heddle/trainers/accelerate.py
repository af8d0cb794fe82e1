"""accelerate: the YAML file that `accelerate launch --config_file` reads."""

from __future__ import annotations

from typing import Any

from heddle.schedule.registry import BY_DEFAULT
from heddle.spec.job import PlannedJob
from heddle.trainers.deepspeed import ELSEWHERE
from heddle.trainers.exported import (
    ExportedPlan,
    JobInWords,
    commented,
    devices_per_node,
    recompute_words,
    same_offload,
    same_zero,
)
from heddle.yaml_text import to_yaml

TRAINER = "accelerate"
TIERS = {"host": "cpu", "disk": "nvme"}


def accelerate_yaml(job: PlannedJob) -> ExportedPlan:
    """By the backend that has most of the plan: FSDP2, DeepSpeed, Megatron-LM, or plain replicas."""
    words = JobInWords(job)
    plan = job.plan
    words.model.spoken.update(job.model.__dataclass_fields__)
    words.train.spoken.update(job.train.__dataclass_fields__)
    each = devices_per_node(job)
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "NO",
        "mixed_precision": {"fp32": "no"}.get(job.precision, job.precision),
        "num_machines": plan.world // each,
        "num_processes": plan.world,
        "machine_rank": 0,
        "main_training_function": "main",
    }
    if plan.pipeline > 1 or (plan.tensor > 1 and plan.zero < 2):
        document |= {"distributed_type": "MEGATRON_LM", "megatron_lm_config": _megatron(words)}
    elif plan.zero == 3 and plan.replicas > 1:
        document |= {"distributed_type": "FSDP", "fsdp_config": _fsdp(words)}
        document |= {"parallelism_config": _parallelism(words)} if plan.tensor * plan.context > 1 else {}
    elif plan.zero and plan.replicas > 1:
        document |= {"distributed_type": "DEEPSPEED", "deepspeed_config": _deepspeed(words)}
    elif plan.world > 1:
        document["distributed_type"] = "MULTI_GPU"
    for name in ("data", "microbatch", "tensor", "pipeline", "stages", "schedule"):
        words.plan.take(name)
    if {*recompute_words(job)} == {"none"}:
        words.plan.take("recompute")
    besides = [
        (
            "model, data, batch and optimizer: the script names them; "
            f"per_device_train_batch_size = {plan.microbatch}, "
            f"gradient_accumulation_steps = {plan.microbatches(job.train.global_batch)}"
        )
    ]
    head = f"# {job.model.name} on {plan.world} GPUs: accelerate launch --config_file THIS train.py\n"
    text = head + commented(words.missing(TRAINER, besides), TRAINER) + to_yaml(document) + "\n"
    return words.exported(TRAINER, "accelerate.yaml", text, besides)


def _alike(words: JobInWords, kinds: set[str]) -> set[str]:
    """What leaves the device, as far as the backend can move it."""
    offload = {*words.plan.take("offload")}
    if offload - kinds:
        words.plan.miss("offload", f"this backend moves {' and '.join(sorted(kinds)) or 'nothing'}")
    if not same_zero(words.job) or not same_offload(words.job):
        words.plan.miss("layers", "all layers do alike")
    return offload & kinds


def _fsdp(words: JobInWords) -> dict[str, Any]:
    words.plan.take("zero")
    moved = _alike(words, {"weights:host", "optimizer:host"})
    said = {*recompute_words(words.job)}
    words.plan.take("recompute")
    if said not in ({"none"}, {"full"}):
        words.plan.miss("recompute", "layers are recomputed in full or not at all; written as full")
    if words.plan.take("sequence"):
        words.plan.miss("sequence", "tensor parallelism follows the model's own plan")
    return {
        "fsdp_version": 2,
        "fsdp_activation_checkpointing": said != {"none"},
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_offload_params": bool(moved),
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _parallelism(words: JobInWords) -> dict[str, Any]:
    plan, take = words.job.plan, words.plan.take
    found: dict[str, Any] = {
        "parallelism_config_dp_replicate_size": 1,
        "parallelism_config_dp_shard_size": plan.data,
        "parallelism_config_tp_size": plan.tensor,
        "parallelism_config_cp_size": take("context"),
    }
    if plan.context > 1:
        found["parallelism_config_cp_comm_strategy"] = (
            "allgather" if take("context_exchange") == "gather" else "alltoall"
        )
        if plan.context_exchange not in ("ring", "gather"):
            words.plan.miss("context_exchange", "heads are not exchanged for tokens; written as a ring")
    return found


def _deepspeed(words: JobInWords) -> dict[str, Any]:
    plan = words.job.plan
    moved = _alike(words, {"optimizer:host", "optimizer:disk"})
    tier = next(iter(moved), "").partition(":")[2]
    if words.plan.take("context") > 1:
        words.plan.miss("context", "with DeepSpeed, sequence parallelism is set up by the script")
    if {*recompute_words(words.job)} != {"none"}:
        words.plan.miss("recompute", ELSEWHERE["recompute"])
    return {
        "zero_stage": words.plan.take("zero"),
        "gradient_accumulation_steps": plan.microbatches(words.job.train.global_batch),
        "gradient_clipping": words.job.train.clip,
        "offload_optimizer_device": TIERS.get(tier, "none"),
        "offload_param_device": "none",
        "zero3_init_flag": False,
    }


def _megatron(words: JobInWords) -> dict[str, Any]:
    job, plan, take = words.job, words.job.plan, words.plan.take
    for name in ("virtual", "context"):
        if take(name) > 1:
            words.plan.miss(name, "its settings for Megatron-LM have no such word")
    if len({*plan.stages}) > 1:
        words.plan.miss("stages", "layers are split evenly")
    if plan.schedule not in BY_DEFAULT:
        words.plan.miss("schedule", "pipelines run 1F1B")
    if take("zero") > 1 and plan.replicas > 1:
        words.plan.miss("zero", "the optimizer's state is sharded, no more; written as zero = 1")
    _alike(words, set())
    said = {*recompute_words(job)}
    words.plan.take("recompute")
    if said not in ({"none"}, {"selective"}):
        words.plan.miss("recompute", "only attention is recomputed; written as selective")
    return {
        "megatron_lm_tp_degree": plan.tensor,
        "megatron_lm_pp_degree": plan.pipeline,
        "megatron_lm_num_micro_batches": plan.microbatches(job.train.global_batch),
        "megatron_lm_sequence_parallelism": take("sequence"),
        "megatron_lm_recompute_activations": said != {"none"},
        "megatron_lm_use_distributed_optimizer": plan.zero > 0 and plan.replicas > 1,
        "megatron_lm_gradient_clipping": job.train.clip,
    }
