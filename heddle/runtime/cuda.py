"""What CUDA and NCCL read from the environment when they start, and what Heddle asks of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from heddle.errors import HeddleError
from heddle.spec.plan import Plan

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
# Streams of a rank: computing, ten axes and the world, a channel each way to two neighbors, and three for copies, of
# checkpoints, of what leaves the device and of what comes back. The axes are tensor, context and both dims of its
# exchange, data, all replicas, two for experts or for ZeRO among neighbors, its gathers, and the pipeline's ends.
STREAMS = 19

DEFAULTS = {
    # Memory that grows in place need not be freed and taken anew, for which CUDA waits until the device is idle.
    # Page-locked memory is taken as large as it is asked for, not rounded up to a power of two.
    "PYTORCH_ALLOC_CONF": "expandable_segments:True,pinned_max_round_threshold_mb:1",
    # Of streams that share a hardware queue, one that waits for a message holds up the others.
    QUEUES: "32",
    # Torch warns that messages of one group go one after the other; each of our channels is a group of its own.
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "false",
    # What is sent is awaited by others: its kernels go before those of products that fill the device.
    "TORCH_NCCL_HIGH_PRIORITY": "1",
    # Warnings of NCCL's are seldom, and name the link.
    "NCCL_DEBUG": "WARN",
    # So many of the last collectives are remembered; from them that of a hang is named.
    "TORCH_FR_BUFFER_SIZE": "2000",
}
# What makes a GPU give the same bits again: products that share no scratch memory, sums over ranks in one order.
REPEATABLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "allreduce:ring"}
SHOWN = ("CUBLAS_", "NCCL_", "TORCH_NCCL_", "TORCH_FR_", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", QUEUES)


def set_defaults(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what the user has not; to be called before CUDA starts."""
    for name, value in DEFAULTS.items():
        if not (name == "PYTORCH_ALLOC_CONF" and "PYTORCH_CUDA_ALLOC_CONF" in environment):  # its older name
            environment.setdefault(name, value)


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the environment says to PyTorch's allocator, to its process groups, to CUDA and to NCCL."""
    return {name: value for name, value in sorted(environment.items()) if name.startswith(SHOWN)}


def refuse_few_queues(plan: Plan, environment: MutableMapping[str, str] = os.environ) -> None:
    """Refuse a pipeline on devices whose streams would block each other."""
    queues = environment.get(QUEUES, DEFAULTS[QUEUES])
    if plan.pipeline > 1 and queues.isdecimal() and int(queues) < STREAMS:
        raise HeddleError(
            f"{QUEUES} is {queues}, but the plan has {plan.pipeline} pipeline stages.",
            f"A rank uses up to {STREAMS} streams. Where they share a hardware queue, a message that waits can hold up "
            "the computation that its sender waits for: training would hang.",
            f"Unset {QUEUES} (Heddle then sets {DEFAULTS[QUEUES]}), or train without a pipeline.",
        )
