"""What software does, as columns of a work: the facts of `heddle.spec.software`, and the kernels that they name."""

from __future__ import annotations

import re
from typing import Any

from heddle.cost.kernels import (
    HEDDLE_CPU,
    HEDDLE_GPU,
    KEMPNERFORGE,
    LLAMA_3,
    MEGATRON,
    MEGATRON_2021,
    TORCHTITAN,
    XLA,
    Kernels,
)
from heddle.spec.cluster import Device
from heddle.spec.software import HOPPER, Profile

KERNELS = {
    "heddle": HEDDLE_GPU,
    "megatron": MEGATRON,
    "megatron 2021": MEGATRON_2021,
    "torchtitan": TORCHTITAN,
    "kempnerforge": KEMPNERFORGE,
    "xla": XLA,
    "llama 3": LLAMA_3,
}
TRITON = 0.5  # "around 2× speedup" of FlashAttention-2 over what came before it (arXiv 2307.08691, abstract)
PIECE_ELEMENTS = 1e6  # of a bucket that grows, for each replica


def kernels_of(facts: Profile, host: bool = False) -> Kernels:
    """The kernels of a profile, with what was said otherwise of it."""
    if host and facts.kernels == "heddle":
        return HEDDLE_CPU
    found = KERNELS[facts.kernels]._replace(adds_in_place=int(facts.fused_accumulation))
    return found if facts.fused_kernels else found._replace(fused=0, fused_gate=0)


def software_columns(facts: Profile) -> dict[str, Any]:
    """The columns that follow from what software overlaps, and how it cuts what it sends."""
    return {
        "stops_early": int(facts.stops_early),
        "waits_backward": facts.waits_backward,
        "scatter": int(facts.sliced_messages),
        "both_ways": int(facts.both_ways),
        "casts_gradients": int(facts.casts_gradients),
        "regather": int(facts.regather),
        "tensor_overlap": facts.tensor_overlap,
        "data_overlap": facts.data_overlap,
        "gather_overlap": facts.gather_overlap,
        "pipeline_overlap": facts.pipeline_overlap,
        "bucket_bytes": facts.bucket_mb * 1e6,
        "piece_bytes": 4 * PIECE_ELEMENTS if facts.bucket_grows else 0.0,
        "casts_per_step": int(facts.fp8_casts == "step"),
        "fused_casts": facts.fused_casts,
        "cast_reads": facts.cast_reads,
        "sharded_gradients": int(facts.sharded_gradients),
        "sums_once": int(facts.sums_once),
        "own_sums": int(facts.own_sums),
        "whole_loss": int(facts.whole_loss),
        "large_gathers": int(facts.large_gathers),
        "sums_whole": int(facts.sums_whole),
        "broadcasts": int(facts.broadcasts),
        "expert_overlap": facts.expert_overlap,
        "expert_by_node": int(facts.expert_by_node),
        "expert_fp8": int(facts.expert_fp8),
        "dispatch_fp8": int(facts.dispatch_fp8),
    }


def attention_speed(facts: Profile, device: Device, word: str = "", era: bool = False) -> float:
    """Of fused attention, relative to FlashAttention-2: by the kernel that a run names, else by its software's own.

    `era`: how fast cuDNN's was at the time of the run is said by its software.
    """
    hopper = any(chip in device.name for chip in ("H100", "H20", "H800", "B200", "B300"))
    if "triton" in word:
        return TRITON
    if not hopper:
        return 1.0
    if re.search(r"(flash(attention)?|fa)[-_ ]?(attn)?3", word):
        return max(facts.hopper_attention, HOPPER)
    if re.search(r"cudnn|\bte\b|transformer.?engine", word):
        return facts.hopper_attention if era else max(facts.hopper_attention, HOPPER)
    if re.search(r"(flash(attention)?|fa)[-_ ]?(attn)?2|sdpa", word):
        return 1.0
    return facts.hopper_attention
