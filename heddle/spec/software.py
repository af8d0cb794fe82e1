"""What the software of a run does: what it overlaps, what it fuses, how it cuts what it sends.

Named profiles say it for known trainers, each with its source. A cluster file (or the cluster of a job) may name a
profile other than Heddle's own, or change single facts of one: `[cluster.software]`; measured rows have columns of the
same names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from heddle.errors import HeddleError, nearest
from heddle.spec.ranges import Amount, Count, Positive, Share, check_ranges

Fp8Casts = Literal["step", "microbatch"]
ContextExchange = Literal[
    "ring", "all-to-all", "gather", "torch", "2d"
]  # of keys and values; explained in heddle.cost.context
CONTEXT_EXCHANGES: tuple[ContextExchange, ...] = get_args(ContextExchange)


@dataclass(frozen=True, kw_only=True)
class Software:
    """Facts about the software of a run; what is left out is the profile's."""

    profile: str = "heddle"
    data_overlap: Share | None = None  # of the gradients' sum over replicas, what goes on beside the backward
    gather_overlap: Share | None = None  # of ZeRO-1's gather of parameters, what goes on beside the next forward
    pipeline_overlap: Share | None = None  # of messages between stages of several chunks, what hides behind compute
    tensor_overlap: Share | None = None  # of tensor-parallel exchange, what goes on beside its own matrix product
    bucket_mb: Amount | None = None  # of gradients that travel together, MB; 0: every parameter by itself
    fused_accumulation: bool | None = None  # products add to the gradient of their weight
    sliced_messages: bool | None = None  # a tensor rank sends its slice to the next stage, not all of it
    fused_kernels: bool | None = None  # attention and SwiGLU are one kernel each, which keeps little for the backward
    fp8_casts: Fp8Casts | None = None  # how often weights are cast to 8 bits
    fused_casts: Share | None = None  # of activations, what the kernel before writes in 8 bits at once
    cast_reads: Count | None = None  # passes over what becomes 8 bits: 1, or 2 where its largest value is found first
    hopper_attention: Positive | None = None  # speed of fused attention on Hopper and later over FlashAttention-2's
    sums_once: bool | None = (
        None  # sharded layers sum gradients in the last microbatch of a step, and keep them until then
    )
    expert_overlap: Share | None = None  # of the exchange with experts, what goes on beside another microbatch
    expert_by_node: bool | None = None  # a token goes to each node once, at the speed of rings, and is spread there
    expert_fp8: bool | None = None  # with 8-bit products, those of experts are, too
    dispatch_fp8: bool | None = None  # with 8-bit products, rows go to experts in 8 bits, and gradients of their output

    def __post_init__(self) -> None:
        check_ranges(self, "cluster.software")
        if self.profile not in PROFILES:
            raise HeddleError(
                f"There is no software profile '{self.profile}'.",
                f"Profiles are {', '.join(PROFILES)}.",
                nearest(self.profile, PROFILES),
            )

    @property
    def facts(self) -> Profile:
        """The profile with what this record changes of it."""
        found = PROFILES[self.profile]
        said = {name: value for name in FACTS if (value := getattr(self, name)) is not None}
        return replace(found, **said)

    def __str__(self) -> str:
        changed = [f"{name} = {value}" for name in FACTS if (value := getattr(self, name)) is not None]
        return f"'{self.profile}' ({PROFILES[self.profile].source})" + (
            f", but {', '.join(changed)}" if changed else ""
        )


FACTS = tuple(field.name for field in fields(Software) if field.name != "profile")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One trainer: every fact of a Software, and some that only profiles know."""

    source: str
    data_overlap: float
    gather_overlap: float
    pipeline_overlap: float
    tensor_overlap: float
    bucket_mb: float
    fused_accumulation: bool
    sliced_messages: bool = True
    fused_kernels: bool = True
    fp8_casts: Fp8Casts = "microbatch"
    bucket_grows: bool = False  # buckets hold a million elements per replica at least
    kernels: str = "heddle"  # a record of heddle.cost.kernels
    waits_backward: float = 0.0  # share of the sum of input gradients that no product runs beside
    stops_early: bool = False  # recomputing ends before the last product
    regather: bool = False  # ZeRO-3 gathers once more for the recomputed forward
    reduces: int = 4  # bytes of a gradient that is sent, where training is in bf16
    hopper_attention: float = 1.0  # its fused attention on Hopper and later, relative to FlashAttention-2
    sums_once: bool = False  # ZeRO-2 and 3 sum gradients once per step, not in every microbatch
    sequence: bool = False  # its runs split sequences between tensor-parallel regions, unless they say otherwise
    sharded_gradients: bool = False  # with a pipeline, too, each replica keeps its share of them only
    cast_reads: int = 1  # passes over what becomes 8 bits: one with delayed scaling, two with dynamic
    fused_casts: float = 0.0  # share of activations whose norm writes them in 8 bits at once
    both_ways: bool = True  # a rank sends to a stage what it has for it while it receives what that has for it
    casts_gradients: bool = False  # 16-bit gradients become fp32 in memory before they are added to those in fp32
    context_exchange: ContextExchange = "ring"  # where ranks share the tokens of a sample
    own_sums: bool = False  # each product of a layer sums its input's gradient over tensor ranks, not all of them once
    whole_loss: bool = False  # tensor ranks gather all logits, and each makes the whole loss
    large_gathers: bool = False  # ZeRO-3's gathers are of gigabytes at once, and so as fast as links are
    sums_whole: bool = False  # ZeRO-1 sums gradients for all replicas, though each needs its share only
    broadcasts: bool = False  # ZeRO-1 shares whole tensors out; each replica broadcasts its own, one after the other
    expert_overlap: float = 0.0  # of the exchange with experts, what goes on beside another microbatch's compute
    expert_by_node: bool = False  # a token goes to each node once, however many of its experts are there
    expert_fp8: bool = False  # with 8-bit products, those of experts are, too
    dispatch_fp8: bool = False  # with 8-bit products, rows go to experts in 8 bits; what they make comes back in 16


ALL_AT_ONCE = 1e9  # MB: one buffer for all gradients

# FlashAttention-3 and cuDNN's attention on H100 are 1.5 to 2.0 times as fast as FlashAttention-2 forward and 1.5 to
# 1.75 times backward (arXiv 2407.08608, abstract and §4.1, Figures 5 and 6).
HOPPER = 1.6

PROFILES: dict[str, Profile] = {
    "heddle": Profile(
        source="this trainer: heddle/parallel",
        data_overlap=1.0,
        gather_overlap=1.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=33.6,
        bucket_grows=True,
        fused_accumulation=False,
        stops_early=True,
        cast_reads=2,
    ),
    # Gradients and parameters travel layer by layer beside compute, and one piece of each is left over; messages are
    # hidden only between interleaved chunks; tensor exchange runs beside its products in as many pieces as there are
    # ranks, of which one stands alone; weights are cast in the first microbatch (is_first_microbatch).
    "megatron-core 0.8+": Profile(
        source="NVIDIA NeMo user guide, Communication Overlap; Megatron-LM README, section Training Speed",
        data_overlap=1.0,
        gather_overlap=1.0,
        pipeline_overlap=1.0,
        tensor_overlap=0.85,
        bucket_mb=160.0,
        bucket_grows=True,
        fused_accumulation=True,
        kernels="megatron",
        fp8_casts="step",
        hopper_attention=HOPPER,
        fused_casts=0.5,
        sequence=True,
        reduces=2,
        expert_fp8=True,  # Transformer Engine's GroupedLinear
    ),
    # DualPipe runs a forward of one microbatch beside a backward of another, so that each one's exchange with experts
    # has the other's compute to hide behind, and so do messages (§3.2.1); a token goes to at most four nodes, once to
    # each over InfiniBand, and from there over NVLink (§3.2.2); rows are cast to 8 bits before they go to experts, and
    # come back in 16 (§3.3.3); products of 8 bits scale by tiles of 128 numbers, read and written apart (§3.5.2).
    # Kernels of attention, and how gradients are cut, are not described: Megatron-core's.
    "deepseek-v3": Profile(
        source="DeepSeek-V3, arXiv 2412.19437 §3.2 and §3.3; deepseek-ai/DeepEP",
        data_overlap=1.0,
        gather_overlap=1.0,
        pipeline_overlap=1.0,
        tensor_overlap=0.0,
        bucket_mb=160.0,
        bucket_grows=True,
        fused_accumulation=True,
        kernels="megatron",
        fp8_casts="step",
        hopper_attention=HOPPER,
        expert_overlap=1.0,
        expert_by_node=True,
        expert_fp8=True,
        dispatch_fp8=True,
    ),
    "megatron-lm 2021": Profile(
        source="arXiv 2104.04473 and its code",
        data_overlap=0.0,
        gather_overlap=0.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=ALL_AT_ONCE,
        fused_accumulation=False,
        kernels="megatron 2021",
        waits_backward=1.0,
    ),
    "megatron-lm 2022": Profile(
        source="arXiv 2205.05198 and Megatron-LM v3.0: asynchronous all-reduce, gradient accumulation fusion",
        data_overlap=0.0,
        gather_overlap=0.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=ALL_AT_ONCE,
        fused_accumulation=True,
        kernels="megatron",
    ),
    # A fork of Megatron-LM of 2021 whose pipeline and optimizer are DeepSpeed's: reduce_bucket_size = 5e8 elements;
    # messages are slices (runtime/pipe/engine.py, is_pipe_partitioned = is_model_parallel);
    # sends and receives are instructions of their own, one after the other (runtime/pipe/schedule.py, TrainSchedule);
    # gradients are cast to fp32 before they are added up (runtime/bf16_optimizer.py, update_hp_grads).
    "megatron-deepspeed 2022": Profile(
        source="bigscience-workshop/Megatron-DeepSpeed; DeepSpeed configuration, zero_optimization",
        data_overlap=0.0,
        gather_overlap=0.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=1000.0,
        fused_accumulation=False,
        kernels="megatron 2021",
        waits_backward=1.0,
        regather=True,
        both_ways=False,
        casts_gradients=True,
    ),
    "torch FSDP2": Profile(
        source="PyTorch FSDP, arXiv 2304.11277; torchtitan, arXiv 2410.06511",
        data_overlap=1.0,
        gather_overlap=0.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=ALL_AT_ONCE,  # of a stage, when there is a pipeline
        fused_accumulation=False,
        kernels="torchtitan",
        cast_reads=2,
        waits_backward=1.0,
        stops_early=True,
        context_exchange="torch",
    ),
    # FSDP2 and DTensor as in torchtitan, but: query, key, value, gate and up are parallelized one by one, so that each
    # sums its input's gradient (distributed/tensor_parallel.py; their gathers are one once compiled); logits are
    # gathered (output_layouts=Replicate()); gradients are summed in the last microbatch (training/grad.py).
    "kempnerforge": Profile(
        source="KempnerInstitute/KempnerForge, kempnerforge/distributed and kempnerforge/training",
        data_overlap=1.0,
        gather_overlap=0.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=ALL_AT_ONCE,
        fused_accumulation=False,
        kernels="kempnerforge",
        cast_reads=2,
        waits_backward=1.0,
        stops_early=True,
        sums_once=True,
        own_sums=True,
        whole_loss=True,
    ),
    "torch FSDP": Profile(
        source="PyTorch FSDP, arXiv 2304.11277; llm-foundry with Transformer Engine",
        data_overlap=1.0,
        gather_overlap=1.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=25.0,
        fused_accumulation=False,
    ),
    # Messages are asynchronous; tensor exchange is not; optimizer and gradients are sharded, parameters stay gathered;
    # what no backward needs is let go of.
    "llama 3": Profile(
        source="The Llama 3 Herd of Models, arXiv 2407.21783 §3.3.2",
        data_overlap=1.0,
        gather_overlap=1.0,
        pipeline_overlap=1.0,
        tensor_overlap=0.0,
        bucket_mb=1600.0,  # a layer, split eightfold, in fp32
        fused_accumulation=False,
        kernels="llama 3",
        sequence=True,
        sharded_gradients=True,
        waits_backward=1.0,
        context_exchange="gather",
    ),
    # XLA gathers up to 2 GB at once and one turn of the loop over layers ahead (its flags
    # xla_gpu_all_gather_combine_threshold_bytes, …_enable_pipelined_all_gather, …_reduce_scatter and
    # …_while_loop_double_buffering); casts to 8 bits are part of the kernels before products, with delayed scaling;
    # attention is cuDNN's.
    "maxtext": Profile(
        source="NVIDIA/dgxc-benchmarking v25.04, maxtext/configure.sh; AI-Hypercomputer/maxtext",
        data_overlap=1.0,
        gather_overlap=1.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=2147.0,
        fused_accumulation=False,
        kernels="xla",
        hopper_attention=HOPPER,
        fused_casts=1.0,
        fp8_casts="step",
        stops_early=True,  # what a backward does not need is never computed
        large_gathers=True,
    ),
    # 16-bit gradients are summed by all-reduces in buckets of 512 M elements, as the last backward makes them; whole
    # tensors are shared out among the replicas, each updates and then broadcasts its own, and all wait for that
    # (solver/optimizer/hybrid_zero_optim.py: _reduce_and_copy, _partition_param_list, broadcast_params).
    "internevo": Profile(
        source="InternLM/InternEvo, solver/optimizer/hybrid_zero_optim.py and configs/7B_sft.py",
        data_overlap=1.0,
        gather_overlap=0.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=1074.0,
        fused_accumulation=False,
        reduces=2,
        sums_whole=True,
        broadcasts=True,
    ),
    # gradients in the buckets of DistributedDataParallel; after the update one gather for each parameter
    "nanotron": Profile(
        source="huggingface/nanotron, optim/zero.py and parallel/data_parallel",
        data_overlap=1.0,
        gather_overlap=0.0,
        pipeline_overlap=0.0,
        tensor_overlap=0.0,
        bucket_mb=0.0,
        fused_accumulation=False,
    ),
}
HEDDLE = Software()
