"""Which kernels a trainer is made of, where its memory depends on them: one record for each kind of software.

What a formula of `heddle.cost.memory` needs to know is here and nowhere else. Heddle's own two records are held against
its trainer by tests, tensor by tensor; the others are read off the code that their comments name.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Kernels(NamedTuple):
    """Yes or no, and bytes per logit."""

    fused: int = 1  # attention never writes its scores
    eager: int = 0  # RMSNorm and rotary positions are many kernels, and keep what lies between them in fp32
    fused_gate: int = 0  # SwiGLU is one kernel: keeps gate, up and product, makes again what it made of the gate
    joint_qkv: int = 1  # one product makes query, key and value, and lives as long as the values, which view it
    keeps_gathered: int = 0  # under sequence parallelism the gathered input of a product is kept, not gathered again
    adds_in_place: int = 0  # products add to the gradient of their weight; no gradient of one weight lies beside it
    gloo: int = 0  # collectives add up in memory of their own
    logits_at_once: int = 0  # output layer and loss are one, and make their gradients so many at a time; 0: all, apart
    kept_logit: int = 4  # what the loss keeps for its backward
    brief_logit: int = 8  # what it holds for a moment beside that, vocabulary whole
    brief_split_logit: int = 4  # the same, vocabulary split; the logits as they were multiplied come on top
    # bytes per logit that the loss moves beside reading it once and writing its gradient once, forward and backward.
    # In fp32 and in passes of their own: cast, largest, exponentials, sum, what the targets have; the gradient likewise
    loss_forward: int = 20
    loss_backward: int = 12
    posted: int = 2  # messages between stages that are received ahead from each neighbor
    window_block: int = 0  # queries of a window that are computed together, from copies; 0: a kernel knows of windows
    pads_values: int = 0  # 1: values shorter than keys are filled up to their length before attention
    fused_permute: int = 0  # 1: rows go to experts in one pass, weighed before these end, so that nothing of it is kept
    replayed: int = 0  # 1: sharded steps of this trainer are replayed, so bounds need no estimate of them
    context_parts: int = 0  # 1: ranks that share tokens attend as heddle.parallel.context does
    sent: int = 1  # 1: what was sent lives until a neighbor shows that it has used it

    def columns(self) -> dict[str, Any]:
        """As columns of a work."""
        return self._asdict()


# heddle.models and heddle.parallel, eager. Output layer and loss are one and keep no logit (heddle.models.loss).
# PyTorch has no fused RMSNorm for a CPU.
HEDDLE_GPU = Kernels(
    logits_at_once=64 << 20,
    kept_logit=0,
    brief_logit=0,
    brief_split_logit=0,
    window_block=64,
    pads_values=1,
    posted=1,
    context_parts=1,
    replayed=1,
)
HEDDLE_CPU = HEDDLE_GPU._replace(eager=1, gloo=1, posted=2)

# Megatron-LM with Transformer Engine: bias_swiglu_fusion, gradient_accumulation_fusion, a fused loss in fp32 that makes
# its exponentials beside the logits (core/tensor_parallel/cross_entropy.py). Experts: moe_permute_fusion, and their
# weights in the activation (core/transformer/moe/experts.py).
MEGATRON = Kernels(fused_permute=1, fused_gate=1, adds_in_place=1, brief_logit=4, brief_split_logit=8)
MEGATRON_2021 = MEGATRON._replace(adds_in_place=0)  # before gradient_accumulation_fusion (2022)

# Transformer Engine's loss (cross_entropy_fusion_impl = "te"): one kernel reads 16-bit logits and writes their gradient
# in their place, one scales that.
MEGATRON_FUSED_LOSS = MEGATRON._replace(
    kept_logit=2, brief_logit=0, brief_split_logit=0, loss_forward=2, loss_backward=2
)

# torchtitan: three products for query, key and value; under tensor parallelism DTensor keeps what it gathered; the loss
# is F.cross_entropy of logits in fp32 (models/llama, parallelize_llama.py, train.py of December 2024), over a
# split vocabulary DTensor's loss_parallel, which holds one copy more. Without torch.compile RMSNorm is many kernels.
TORCHTITAN = Kernels(joint_qkv=0, keeps_gathered=1, brief_split_logit=8)
TORCHTITAN_EAGER = TORCHTITAN._replace(eager=1)
# From 2025 on the loss is compiled (components/loss.py): it keeps the logits as they were multiplied, and its backward
# makes their gradient in one kernel.
TORCHTITAN_2025 = TORCHTITAN._replace(kept_logit=2, brief_logit=2, brief_split_logit=2)

# KempnerForge: as torchtitan, with F.cross_entropy of 16-bit logits, which PyTorch reads three times forward and twice
# backward, with the softmax that it kept; the logits themselves live as long (kempnerforge/training/loss.py).
KEMPNERFORGE = TORCHTITAN._replace(kept_logit=4, brief_logit=4, brief_split_logit=4, loss_forward=6, loss_backward=10)

# XLA fuses what lies between products: SwiGLU, the norms, and the loss, which reads 16-bit logits forward and backward.
XLA = Kernels(
    fused_gate=1, joint_qkv=0, kept_logit=2, brief_logit=2, brief_split_logit=2, loss_forward=2, loss_backward=2
)

# Meta's own (arXiv 2407.21783 §3.3): inputs and outputs of stages are freed, query, key and value are three products.
LLAMA_3 = Kernels(fused_gate=1, joint_qkv=0, sent=0)
