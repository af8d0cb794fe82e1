"""From measured links to a network: devices that reach each other alike are a group, and what is odd is named.

Groups come from latency first, which tells places apart, and then from bandwidth. A single device that is slow towards
everybody is not a place of its own: it stays in its group, and its links are listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heddle.spec.cluster import Device
from heddle.spec.network import DeviceGroup, GroupLink, Network, Speed

Floats = npt.NDArray[np.float64]

APART = 2.0  # times as slow: links between groups, beside those within
LEAST_LATENCY = 2e-4  # seconds: what differs below that is noise of the processes
ODD = 1.6  # times as slow, or as fast, as its group: a link that is listed by itself
ONE_WAY = 1.4  # times as fast one way as the other


@dataclass(frozen=True)
class Probed:
    """A network, which process is which of its devices, and what is odd about it."""

    network: Network
    ranks: tuple[int, ...]  # of each device, group after group
    oddities: tuple[str, ...]


def network_of(
    latency: Floats, bandwidth: Floats, names: Sequence[str], devices: Sequence[Device], name: str = "probed"
) -> Probed:
    """The network that was measured: seconds and bytes per second from each process to each other."""
    groups = find_groups(latency, bandwidth)
    titles = _titles(groups, names)
    ranks = [rank for group in groups for rank in group]
    where = {rank: (place, number) for place, group in enumerate(groups) for number, rank in enumerate(group)}
    typical = {
        (a, b): (_typical(latency, one, two), _typical(bandwidth, one, two))
        for a, one in enumerate(groups)
        for b, two in enumerate(groups)
        if a != b or len(one) > 1
    }
    links, oddities = [], []
    for a in range(len(groups)):
        for b in range(a + 1, len(groups)):
            there, back = typical[a, b][1], typical[b, a][1]
            if max(there, back) > ONE_WAY * min(there, back):
                links += [_link(titles[x], titles[y], *typical[x, y]) for x, y in ((a, b), (b, a))]
                oddities.append(f"{titles[a]} sends {_gbps(there)} Gbit/s to {titles[b]}, and gets {_gbps(back)} back.")
            else:
                late, fast = (float(np.mean(pair)) for pair in zip(typical[a, b], typical[b, a], strict=True))
                speed = _speed(late, fast)
                links.append(GroupLink(between=(titles[a], titles[b]), latency_ms=speed.latency_ms, gbps=speed.gbps))
    listed = _odd_links(latency, bandwidth, where, typical, titles)
    links += listed
    oddities += _odd_members(latency, bandwidth, groups, titles, typical) + _odd_devices(groups, titles, devices)
    made = [
        DeviceGroup(
            name=title,
            devices=len(group),
            inside=_speed(*typical[place, place]) if len(group) > 1 else None,
            device=devices[group[0]],
        )
        for place, (title, group) in enumerate(zip(titles, groups, strict=True))
    ]
    return Probed(Network(name=name, groups=tuple(made), links=tuple(links)), tuple(ranks), tuple(oddities))


def find_groups(latency: Floats, bandwidth: Floats) -> list[list[int]]:
    """Ranks that are at one place, by latency and then by bandwidth; in the order of their first ranks."""
    slow = np.log(np.maximum((latency + latency.T) / 2, LEAST_LATENCY))
    narrow = -np.log(np.maximum((bandwidth + bandwidth.T) / 2, 1.0))
    found = []
    for group in _parts(slow, list(range(len(latency)))):
        parts = _parts(narrow, group)
        # one that is slow towards all is a slow member, not a place
        found += parts if all(len(part) > 1 for part in parts) else [group]
    return sorted(found, key=lambda group: group[0])


def _parts(distance: Floats, members: list[int]) -> list[list[int]]:
    """Average linkage, cut where the next two parts are much further apart than any two before were."""
    parts = [[member] for member in members]
    history: list[tuple[float, list[list[int]]]] = []
    while len(parts) > 1:
        between = np.array([[distance[np.ix_(a, b)].mean() if a is not b else np.inf for b in parts] for a in parts])
        a, b = divmod(int(between.argmin()), len(parts))
        history.append((float(between[a, b]), [list(part) for part in parts]))
        parts = [part for place, part in enumerate(parts) if place not in (a, b)] + [sorted(parts[a] + parts[b])]
    if len(history) < 2:
        return [members]
    gaps = np.diff([height for height, _ in history])
    cut = int(gaps.argmax())
    if gaps[cut] < np.log(APART):
        return [members]
    return sorted((sorted(part) for part in history[cut + 1][1]), key=lambda part: part[0])


def _typical(table: Floats, one: list[int], two: list[int]) -> float:
    values = [table[a, b] for a in one for b in two if a != b]
    return float(np.median(values))


def _odd_links(
    latency: Floats,
    bandwidth: Floats,
    where: dict[int, tuple[int, int]],
    typical: dict[tuple[int, int], tuple[float, float]],
    titles: list[str],
) -> list[GroupLink]:
    """Links of two devices that are far from what is usual between their groups."""
    links = []
    for a, (group, number) in where.items():
        for b, (other, place) in where.items():
            if a == b:
                continue
            usual = typical[group, other]
            late = max(latency[a, b], LEAST_LATENCY) / max(usual[0], LEAST_LATENCY)
            slow = usual[1] / bandwidth[a, b]
            if max(late, 1 / late, slow, 1 / slow) > ODD:
                ends = f"{titles[group]}:{number}", f"{titles[other]}:{place}"
                links.append(_link(*ends, float(latency[a, b]), float(bandwidth[a, b])))
    return links


def _odd_members(
    latency: Floats,
    bandwidth: Floats,
    groups: list[list[int]],
    titles: list[str],
    typical: dict[tuple[int, int], tuple[float, float]],
) -> list[str]:
    """Devices that are slow, or late, towards most others of their group, in words."""
    said = []
    for place, group in enumerate(groups):
        if len(group) < 3:
            continue
        usual = typical[place, place]
        for number, rank in enumerate(group):
            others = [other for other in group if other != rank]
            sends, gets = np.median(bandwidth[rank, others]), np.median(bandwidth[others, rank])
            late = max(np.median(latency[rank, others]), LEAST_LATENCY)
            end = f"{titles[place]}:{number} (rank {rank})"
            for value, word in ((sends, "sends"), (gets, "receives")):
                if usual[1] / value > ODD:
                    said.append(
                        f"{end} {word} {_gbps(value)} Gbit/s within its group, but the others {_gbps(usual[1])}."
                    )
            if late / max(usual[0], LEAST_LATENCY) > ODD:
                said.append(f"{end} takes {1e3 * late:.3g} ms to its group, but the others {1e3 * usual[0]:.3g}.")
    return said


def _odd_devices(groups: list[list[int]], titles: list[str], devices: Sequence[Device]) -> list[str]:
    """Devices that compute more slowly than the rest of their group, in words."""
    said = []
    for title, group in zip(titles, groups, strict=True):
        speeds = [devices[rank].tflops.fp32 or 0.0 for rank in group]
        usual = float(np.median(speeds))
        for number, (rank, speed) in enumerate(zip(group, speeds, strict=True)):
            if speed and usual / speed > ODD:
                said.append(
                    f"{title}:{number} (rank {rank}) multiplies at {speed:.3g} TFLOP/s, but the others at {usual:.3g}."
                )
    return said


def _titles(groups: list[list[int]], names: Sequence[str]) -> list[str]:
    """The machine of each group's first rank; with a number where that is not enough to tell them apart."""
    hosts = [names[group[0]].replace(":", "-").strip() or "host" for group in groups]
    return [host if hosts.count(host) == 1 else f"{host}-{place}" for place, host in enumerate(hosts)]


def _link(source: str, target: str, latency: float, bandwidth: float) -> GroupLink:
    speed = _speed(latency, bandwidth)
    return GroupLink(source=source, target=target, latency_ms=speed.latency_ms, gbps=speed.gbps)


def _speed(latency: float, bandwidth: float) -> Speed:
    return Speed(latency_ms=float(f"{1e3 * latency:.3g}"), gbps=float(f"{8e-9 * bandwidth:.3g}"))


def _gbps(bandwidth: float) -> str:
    return f"{8e-9 * bandwidth:.3g}"
