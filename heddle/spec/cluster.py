"""What the user has: devices, how many, and the links between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from heddle.errors import HeddleError

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The device's stated dense matrix throughput by precision, in TFLOP/s; None where it is not stated."""

    fp32: float | None = None
    tf32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None

    def flops(self, precision: str) -> float | None:
        """Peak FLOP/s for a training precision."""
        tflops: float | None = getattr(self, precision)
        return None if tflops is None else tflops * 1e12


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator, or one share of a CPU."""

    name: str
    memory_gib: float
    memory_gbs: float | None = None  # memory bandwidth, GB/s
    tflops: Peak = field(default_factory=Peak)
    processors: int | None = None  # multiprocessors that share the tiles of a matrix product; None: not known
    host: bool = False  # a CPU: it starts its own kernels, and nothing runs beside them

    def __post_init__(self) -> None:
        _positive("device.memory_gib", self.memory_gib)
        for name in ("memory_gbs", "processors"):
            if getattr(self, name) is not None:
                _positive(f"device.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class Link:
    """One level of the network: what a device can send to a peer that it reaches through this level."""

    name: str
    devices: int | None = None  # how many neighbouring devices it joins; None: the whole cluster
    gbs: float  # GB/s of one device in one direction
    latency_us: float = 0.0
    efficiency: float = 0.8  # share of `gbs` that a long message reaches

    def __post_init__(self) -> None:
        _positive(f"bandwidth gbs of link '{self.name}'", self.gbs)
        _share(f"efficiency of link '{self.name}'", self.efficiency)
        if self.devices is not None:
            _positive(f"devices of link '{self.name}'", self.devices)
        if self.latency_us < 0:
            raise HeddleError(f"latency_us = {self.latency_us} of link '{self.name}' is negative.")


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What real work reaches of the numbers on the label: few constants, physical, no share above 1.

    The defaults are what such kernels usually reach; a preset's are fitted to measured runs, and `source` says which.
    """

    matmul: float = 0.82  # share of peak FLOP/s that a large matrix product reaches
    half_dim: float = 200.0  # smallest dim at which a matrix product reaches half of that
    attention: float = 0.45  # share of peak FLOP/s that fused attention reaches, causal half counted
    memory: float = 0.85  # share of memory bandwidth that element-wise kernels reach
    gather: float = 0.15  # share of the links between nodes that gathers reach which layers wait for (ZeRO, sequence)
    overlap: float = 0.85  # share of communication beside compute that is truly hidden
    jitter: float = 0.015  # spread of a node's step time, as a share of it
    launch_us: float = 8.0  # what the host needs to start one kernel
    gelu_ns: float = 0.0  # what GELU takes a number where its arithmetic, not memory, is the limit (CPUs)
    collective_us: float = 30.0  # what it takes to start one collective
    slack: float = 0.1  # memory that the allocator cannot use, as a share of what is held
    source: str = "usual values, not measured"

    def __post_init__(self) -> None:
        for name in ("matmul", "attention", "memory", "gather"):
            _share(f"efficiency.{name}", getattr(self, name))
        for name in ("overlap", "jitter", "slack"):
            if not 0 <= getattr(self, name) <= 1:
                raise HeddleError(
                    f"cluster.efficiency.{name} = {getattr(self, name)} is no share.", "It lies between 0 and 1."
                )
        for name in ("half_dim", "launch_us", "gelu_ns", "collective_us"):
            if getattr(self, name) < 0:
                raise HeddleError(f"cluster.efficiency.{name} = {getattr(self, name)} is negative.")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Equal nodes of equal devices, with link levels from the innermost to the outermost."""

    name: str = "custom"
    nodes: int = 1
    devices: int = 1  # a node
    cores: int | None = None  # of a node, if its devices share fewer than there are of them; None: each has its own
    device: Device
    links: tuple[Link, ...] = ()
    efficiency: Efficiency = field(default_factory=Efficiency)

    def __post_init__(self) -> None:
        _positive("nodes", self.nodes)
        _positive("devices", self.devices)
        if self.cores is not None:
            _positive("cores", self.cores)
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
        """Whether a group of that many neighbouring devices talks over this link alone."""
        return link.devices is None or devices <= link.devices

    @property
    def world(self) -> int:
        """All devices."""
        return self.nodes * self.devices

    def link(self, devices: int) -> Link:
        """The innermost link that joins a group of that many neighbouring devices."""
        for link in self.links:
            if self.reaches(link, devices):
                return link
        raise HeddleError(
            f"No link of cluster '{self.name}' joins {devices} devices.",
            f"It has {self.world} devices and {len(self.links)} links.",
            "Add a [[cluster.links]] without `devices`: it joins the whole cluster.",
        )


def _positive(what: str, value: float) -> None:
    if value <= 0:
        raise HeddleError(
            f"cluster.{what} = {value} is not positive.", "There is no cluster without it.", "Use a positive number."
        )


def _share(what: str, value: float) -> None:
    if not 0 < value <= 1:
        raise HeddleError(
            f"cluster.{what} = {value} is no share.",
            "It is what real work reaches of the stated number: above 0, at most 1.",
            "If more than the stated number was measured, state the measured one, with an efficiency of 1.",
        )


def dumps_cluster(cluster: Cluster) -> str:
    """The cluster as a TOML file with a [cluster] table; a job names it as cluster.file."""
    from heddle.spec.read import to_table, to_toml

    return to_toml({"cluster": to_table(cluster)})
