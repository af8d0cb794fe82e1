"""What the user has: devices, how many, and the links between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from heddle.errors import HeddleError
from heddle.spec.ranges import Amount, Count, Machines, Positive, Share, ShareReached, check_ranges
from heddle.spec.software import Software

Precision = Literal["fp32", "bf16", "fp16", "fp8"]


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The device's stated dense matrix throughput by precision, in TFLOP/s; None where it is not stated."""

    fp32: Positive | None = None
    tf32: Positive | None = None
    bf16: Positive | None = None
    fp16: Positive | None = None
    fp8: Positive | None = None

    def __post_init__(self) -> None:
        check_ranges(self, "cluster.device.tflops")

    def flops(self, precision: str) -> float | None:
        """Peak FLOP/s for a training precision."""
        tflops: float | None = getattr(self, precision)
        return None if tflops is None else tflops * 1e12


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator, or one share of a CPU."""

    name: str
    memory_gib: Positive
    memory_gbs: Positive | None = None  # memory bandwidth, GB/s
    tflops: Peak = field(default_factory=Peak)
    processors: Count | None = None  # multiprocessors that share the tiles of a matrix product; None: not known
    host: bool = False  # a CPU: it starts its own kernels, and nothing runs beside them
    host_gbs: Positive | None = None  # to host memory and back, GB/s each way; None: PCIe 4's 25, on a CPU its memory's
    host_sharing: Count = 1  # devices that share one way to the host, and so its speed
    host_gib: Positive | None = None  # host memory that a device may fill; None: not known, and not looked at
    disk_gbs: Positive | None = None  # to the disk or back, both at once sharing it, GB/s; None: 2
    capability: Positive | None = None  # CUDA's compute capability; None: not known

    def __post_init__(self) -> None:
        check_ranges(self, "cluster.device")

    @property
    def precision(self) -> Precision:
        """What it trains best in: bf16 where it has units for that, as GPUs do from compute capability 8 on."""
        if self.host:
            return "fp32"  # most CPUs only imitate bf16
        has_units = self.tflops.bf16 is not None if self.capability is None else self.capability >= 8
        return "bf16" if has_units else "fp32"


@dataclass(frozen=True, kw_only=True)
class Link:
    """One level of the network: what a device can send to a peer that it reaches through this level."""

    name: str
    devices: Count | None = None  # how many neighboring devices it joins; None: the whole cluster
    gbs: Positive  # GB/s of one device in one direction
    latency_us: Amount = 0.0
    efficiency: ShareReached = 0.8  # share of `gbs` that a long message reaches

    def __post_init__(self) -> None:
        check_ranges(self, f"cluster.links {self.name!r}")


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What real work reaches of the numbers on the label: few constants, physical, no share above 1.

    The defaults are what such kernels usually reach; a preset's are fitted to measured runs, and `source` says which.
    """

    matmul: ShareReached = 0.82  # share of peak FLOP/s that a large matrix product reaches
    half_dim: Amount = 200.0  # smallest dim at which a matrix product reaches half of that
    fp8: ShareReached = 0.914  # of that share, what products in 8 bits reach: they draw more power
    attention: ShareReached = 0.45  # share of peak FLOP/s that fused attention reaches, causal half counted
    memory: ShareReached = 0.85  # share of memory bandwidth that element-wise kernels reach
    kernel_us: Amount = 0.0  # what a kernel that memory limits takes beside its bytes, where `memory` does not say it
    loss: ShareReached = 1.0  # of what such kernels reach, those of the loss
    gather_gbs: Positive = 4.0  # GB/s between nodes, a device: at most, of gathers that layers wait for
    overlap: Share = 0.85  # share of communication beside compute that is truly hidden
    jitter: Share = 0.015  # spread of a node's step time, as a share of it
    launch_us: Amount = 8.0  # what the host needs to start one kernel
    gelu_ns: Amount = 0.0  # what GELU takes a number where its arithmetic, not memory, is the limit (CPUs)
    collective_us: Amount = 30.0  # what it takes to start one collective
    step_us: Amount = 0.0  # what a step takes beside kernels and messages: the trainer's own work, waking up
    microbatch_us: Amount = 0.0  # the same for each microbatch and chunk
    message_us: Amount = 0.0  # what it takes to wake up the rank that a message between stages is for
    # spread of the use of a layer's experts, relative to its mean: 0, tokens choose evenly. With a balance loss the
    # largest of 64 such shares is 1.6 times the mean, and DeepSeek tells of 1.5 to 1.7 (arXiv 2408.15664, MaxVio)
    expert_spread: Amount = 0.2
    slack: Share = 0.1  # memory that the allocator cannot use, as a share of what is held
    source: str = "usual values, not measured"

    def __post_init__(self) -> None:
        check_ranges(self, "cluster.efficiency")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Equal nodes of equal devices, with link levels from the innermost to the outermost."""

    name: str = "custom"
    nodes: Machines = 1
    devices: Machines = 1  # a node
    cores: Count | None = None  # of a node, if its devices share fewer than there are of them; None: each has its own
    device: Device
    links: tuple[Link, ...] = ()
    efficiency: Efficiency = field(default_factory=Efficiency)
    software: Software | None = None  # what trains on it, where that is not Heddle

    def __post_init__(self) -> None:
        check_ranges(self, "cluster")
        inside_out = sorted(self.links, key=lambda link: link.devices or math.inf)
        if list(self.links) != inside_out:
            raise HeddleError(
                "The links of the cluster are out of order.",
                "They go from the innermost level out; one without `devices` joins the whole cluster.",
                f"Write them in this order: {', '.join(link.name for link in inside_out)}.",
            )
        if self.world > 1 and not any(self.reaches(link, self.world) for link in self.links):
            raise HeddleError(
                f"No link of cluster '{self.name}' joins all its {self.world} devices.",
                "The outermost link must reach every device.",
                "Leave `devices` out of the last [[cluster.links]].",
            )

    @staticmethod
    def reaches(link: Link, devices: int) -> bool:
        """Whether a group of that many neighboring devices talks over this link alone."""
        return link.devices is None or devices <= link.devices

    @property
    def world(self) -> int:
        """All devices."""
        return self.nodes * self.devices

    def link(self, devices: int) -> Link:
        """The innermost link that joins a group of that many neighboring devices."""
        for link in self.links:
            if self.reaches(link, devices):
                return link
        raise HeddleError(
            f"No link of cluster '{self.name}' joins {devices} devices.",
            f"It has {self.world} devices and {len(self.links)} links.",
            "Add a [[cluster.links]] without `devices`: it joins the whole cluster.",
        )


def dumps_cluster(cluster: Cluster) -> str:
    """The cluster as a TOML file with a [cluster] table; a job names it as cluster.file."""
    from heddle.spec.tables import to_table, to_toml

    return to_toml({"cluster": to_table(cluster)})
