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

    def __post_init__(self) -> None:
        _positive("device.memory_gib", self.memory_gib)
        if self.memory_gbs is not None:
            _positive("device.memory_gbs", self.memory_gbs)


@dataclass(frozen=True, kw_only=True)
class Link:
    """One level of the network: what a device can send to a peer that it reaches through this level."""

    name: str
    devices: int | None = None  # how many neighbouring devices it joins; None: the whole cluster
    gbs: float  # GB/s of one device in one direction
    latency_us: float = 0.0

    def __post_init__(self) -> None:
        _positive(f"bandwidth gbs of link '{self.name}'", self.gbs)
        if self.devices is not None:
            _positive(f"devices of link '{self.name}'", self.devices)
        if self.latency_us < 0:
            raise HeddleError(f"latency_us = {self.latency_us} of link '{self.name}' is negative.")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Equal nodes of equal devices, with link levels from the innermost to the outermost."""

    name: str = "custom"
    nodes: int = 1
    devices: int = 1  # a node
    device: Device
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        _positive("nodes", self.nodes)
        _positive("devices", self.devices)
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
        raise HeddleError(f"cluster.{what} = {value} is not positive.", "A cluster has at least some of it.")
