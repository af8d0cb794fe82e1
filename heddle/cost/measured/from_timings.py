"""From timed kernels and messages to the few constants of a cluster, by the very formulas that predict with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from heddle.cost import compute
from heddle.cost.work import ELEMENT
from heddle.spec.cluster import Cluster, Device, Efficiency, Link, Peak
from heddle.spec.tables import to_table


class Product(NamedTuple):
    """A matrix product of (m, k) and (k, n)."""

    precision: str
    m: int
    k: int
    n: int
    seconds: float


class TrafficTime(NamedTuple):
    """A kernel that reads and writes so many bytes, as the formulas count them."""

    name: str
    bytes: int
    seconds: float


class Attended(NamedTuple):
    """Causal attention, forward and backward."""

    heads: int  # of all samples together
    sequence: int
    size: int
    forward: float
    backward: float


class MessageTime(NamedTuple):
    """A collective, or a message from one rank to another."""

    kind: str  # all-reduce, all-gather, reduce-scatter, send
    ranks: int
    bytes: int
    seconds: float


class StepTime(NamedTuple):
    """A step of a model so small that its kernels hardly count, with all processes as replicas, or as stages."""

    kind: str  # replicas, stages
    microbatches: int
    seconds: float


class TierTime(NamedTuple):
    """So many bytes in all, put away to a tier and taken back."""

    tier: str  # host or disk
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Timings:
    """What was timed on one machine, with all its processes at work at the same time."""

    products: tuple[Product, ...]
    copies: tuple[TrafficTime, ...]
    traffic: tuple[TrafficTime, ...]
    attention: tuple[Attended, ...]
    gelu_ns: float
    launch_us: float
    messages: tuple[MessageTime, ...] = ()
    steps: tuple[StepTime, ...] = ()
    tiers: tuple[TierTime, ...] = ()


def typical(passes: Sequence[Timings]) -> Timings:
    """Every timing's mean over several passes without the extremes.

    A training step lasts long enough to meet its share of whatever disturbs a machine, as the mean of many short
    timings does; the quickest of them, and their median, are of moments when nothing did.
    """

    def middle(rows: tuple[Any, ...]) -> Any:
        if isinstance(rows[0], str | int):
            return rows[0]
        if not isinstance(rows[0], tuple):
            outer = len(rows) // 4
            return float(np.mean(sorted(rows)[outer : len(rows) - outer]))
        inside = [middle(column) for column in zip(*rows, strict=True)]
        return type(rows[0])(*inside) if hasattr(rows[0], "_fields") else tuple(inside)

    return Timings(
        **{field.name: middle(tuple(getattr(one, field.name) for one in passes)) for field in fields(Timings)}
    )


def cluster_of(base: Cluster, found: Timings, source: str) -> Cluster:
    """The cluster that these measurements describe; `base` says what is no measurement: memory, counts, names."""
    peaks: dict[str, float] = {}
    for product in found.products:
        rate = 2.0 * product.m * product.k * product.n / product.seconds / 1e12
        peaks[product.precision] = max(rate, peaks.get(product.precision, 0.0))
    bandwidth = max(copy.bytes / copy.seconds for copy in found.copies) / 1e9
    speeds = {f"{tier.tier}_gbs": tier.bytes / tier.seconds / 1e9 for tier in found.tiers}
    device = replace(base.device, tflops=Peak(**peaks), memory_gbs=bandwidth, **speeds)  # type: ignore[arg-type]
    # the median: kernels differ, and one formula speaks for all
    reached = float(np.median([kernel.bytes / kernel.seconds for kernel in found.traffic])) / (bandwidth * 1e9)
    efficiency = replace(
        base.efficiency,
        memory=min(1.0, reached),
        launch_us=found.launch_us,
        gelu_ns=found.gelu_ns,
        # what communicates takes the time of the cores that would compute
        overlap=0.0 if device.host else base.efficiency.overlap,
        source=source,
    )
    cluster = replace(base, device=device, efficiency=efficiency)
    cluster = _with_products(cluster, found.products)
    cluster = _with_attention(cluster, found.attention)
    return _with_messages(cluster, found.messages) if found.messages else cluster


def _with_products(cluster: Cluster, products: tuple[Product, ...]) -> Cluster:
    """Time over ideal = 1/matmul · (1 + half_dim / least dim), by least squares of relative errors."""
    ideal = replace(cluster, efficiency=replace(cluster.efficiency, matmul=1.0, half_dim=0.0))
    ratios = np.array([p.seconds / float(compute.matmul(ideal, p.precision, p.m, p.k, p.n)) for p in products])
    least = np.array([min(p.m, p.k, p.n) for p in products])
    start, slope = _positive_fit(np.stack([np.ones_like(ratios), 1 / least], axis=1), ratios)
    # Where even the best shape was held up, a large product would be faster than any that was timed.
    beyond = max(1.0, 1 / start)
    peaks = {name: beyond * value for name, value in to_table(cluster.device.tflops).items()}
    efficiency = replace(cluster.efficiency, matmul=min(1.0, 1 / start), half_dim=slope / start)
    return replace(cluster, device=replace(cluster.device, tflops=Peak(**peaks)), efficiency=efficiency)


def _with_attention(cluster: Cluster, rows: tuple[Attended, ...]) -> Cluster:
    """The share of peak at which the formula takes as long as the kernels did, forward and backward together."""
    precision = next(name for name in ELEMENT if getattr(cluster.device.tflops, name) is not None)
    if cluster.device.tflops.bf16 is not None:
        precision = "bf16"
    whole = replace(cluster, efficiency=replace(cluster.efficiency, attention=1.0))
    shares = []
    for row in rows:
        work = compute.attention_work(precision, row.heads, row.sequence, row.size)
        shares.append(sum(float(part) for part in compute.attention(whole, work)) / (row.forward + row.backward))
    share = min(1.0, float(np.exp(np.mean(np.log(shares)))))
    return replace(cluster, efficiency=replace(cluster.efficiency, attention=share))


def _with_messages(cluster: Cluster, messages: tuple[MessageTime, ...]) -> Cluster:
    """Seconds = start + hops · latency + bytes past a rank / speed, as `heddle.cost.network` has it."""
    rows = [_terms(message) for message in messages]
    seconds = np.array([message.seconds for message in messages])
    start, hop, inverse = _positive_fit(np.array(rows), seconds)
    link = Link(
        name=cluster.links[0].name if cluster.links else "measured",
        gbs=1e-9 / max(inverse, 1e-15),
        devices=cluster.devices,
        latency_us=1e6 * hop,
        efficiency=1.0,
    )
    efficiency = replace(cluster.efficiency, collective_us=1e6 * start)
    return replace(cluster, links=(link,), efficiency=efficiency)


def _terms(message: MessageTime) -> tuple[float, float, float]:
    n = message.ranks
    match message.kind:
        case "send":
            return 0.0, 1.0, float(message.bytes)
        case "all-reduce":
            return 1.0, 2.0 * min(n - 1, float(np.ceil(np.log2(n)))), 2 * (n - 1) / n * message.bytes
        case _:
            return 1.0, float(n - 1), (n - 1) / n * message.bytes


def _positive_fit(columns: np.ndarray, seconds: np.ndarray) -> list[float]:
    """Least squares of relative errors with no negative answer: a column that would get one is left out."""
    scaled, used = columns / seconds[:, None], list(range(columns.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(scaled[:, used], np.ones(len(seconds)), rcond=None)
        if (found >= 0).all() or len(used) == 1:
            break
        del used[int(np.argmin(found))]
    answer = [0.0] * columns.shape[1]
    for index, value in zip(used, found, strict=True):
        answer[index] = float(value)
    return answer


def blank(name: str, memory_gib: float, processors: int | None, host: bool, devices: int, cores: int | None) -> Cluster:
    """A machine of which only what it says of itself is known."""
    links = (Link(name="loopback" if host else "between devices", gbs=1.0),) if devices > 1 else ()
    device = Device(name=name, memory_gib=memory_gib, processors=processors, host=host)
    return Cluster(name="this", devices=devices, cores=cores, device=device, links=links, efficiency=Efficiency())
