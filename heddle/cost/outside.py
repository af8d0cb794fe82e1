"""Device memory that no allocator hands out: CUDA's own, and the buffers of each group of ranks."""

from __future__ import annotations

from typing import NamedTuple

from heddle.format import GIB
from heddle.spec.cluster import Device
from heddle.spec.plan import Plan
from heddle.spec.ranks import stage_pairs

# Usual values on data-center GPUs, not measured; `heddle selftest` reports a machine's own. A context holds the code of
# all kernels. A communicator of NCCL's has buffers of some MiB for each of its channels, on both ends.
CONTEXT = 0.5 * GIB
GROUP = 0.2 * GIB


class Outside(NamedTuple):
    """What one rank has on its GPU beside tensors."""

    groups: int  # of ranks that it is in, each a communicator
    bytes: float

    def __str__(self) -> str:
        groups = "" if not self.groups else f" and {self.groups} group{'s' * (self.groups > 1)} of ranks"
        return f"CUDA{groups}: about {self.bytes / GIB:.1f} GiB per GPU"


def outside(plan: Plan, device: Device, tied: bool) -> Outside | None:
    """Of the rank that is in most groups; None on CPUs, where there is nothing of the kind."""
    if device.host:
        return None
    groups = group_count(plan, tied)
    return Outside(groups, CONTEXT + groups * GROUP)


def group_count(plan: Plan, tied: bool) -> int:
    """How many groups `heddle.parallel.mesh` makes for the rank that is in most of them."""
    if plan.world == 1:
        return 0
    wide = plan.context > 1 and plan.data > 1
    hybrid = plan.shards < plan.replicas
    counted = (
        True,  # the world
        plan.tensor > 1,
        plan.context > 1,
        plan.data > 1,
        wide,  # all whose gradients are summed
        plan.shards > 1 and plan.replicas > 1 and max(plan.zeros) >= 2,  # gathers
    )
    two_dims = plan.context > 1 and plan.context_exchange == "2d"
    inner = (plan.context_inner > 1) + (plan.context_inner < plan.context) if two_dims else 0
    sharing = (plan.shards > 1) + True if hybrid else 0
    shared = plan.expert > 1 or plan.whole_experts
    experts = (plan.expert > 1) + (plan.expert < plan.expert_ranks) if shared else 0
    replica = bool(plan.local_steps) and plan.world > plan.data
    return sum(counted) + inner + sharing + experts + replica + _in_a_pipeline(plan, tied)


def _in_a_pipeline(plan: Plan, tied: bool) -> int:
    """Channels of the stage that has most, and the group of both ends."""
    pairs = stage_pairs(plan)
    ends = {0, plan.last_rank} if tied and plan.last_rank > 0 else set()
    return max(sum(stage in pair for pair in pairs) + (stage in ends) for stage in range(plan.pipeline))
