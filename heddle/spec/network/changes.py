"""What became of links between two measurements of a network."""

from __future__ import annotations

from heddle.errors import HeddleError
from heddle.spec.network.network import Network

MUCH = 1.5  # times as slow or as fast: less than that differs from one measurement to the next
LEAST_MS = 1.0  # milliseconds by which latency differs at least


def changed_links(before: Network, now: Network) -> list[str]:
    """Each two groups between which links are much slower, faster, nearer or further than they were; medians of them.

    Devices are compared by their numbers; groups are called as they are now.
    """
    import numpy as np

    if before.devices != now.devices:
        raise HeddleError(
            f"There were {before.devices} devices, and now there are {now.devices}.",
            "Links are compared device by device.",
            "Compare with a network of the same devices.",
        )
    tables = [network.tables() for network in (before, now)]
    names = list(dict.fromkeys(now.group_of))
    members = {name: [d for d, group in enumerate(now.group_of) if group == name] for name in names}
    found = []
    for a in names:
        for b in names:
            pairs = [(i, j) for i in members[a] for j in members[b] if i != j]
            if not pairs:
                continue
            rows, columns = zip(*pairs, strict=True)
            (late, fast), (later, faster) = (
                (1e3 * float(np.median(delay[rows, columns])), 8e-9 * float(np.median(speed[rows, columns])))
                for delay, speed in tables
            )
            way = f"inside {a}" if a == b else f"{a} to {b}"
            if max(faster / fast, fast / faster) > MUCH:
                found.append(f"{way}: {fast:.3g} Gbit/s then, {faster:.3g} now.")
            if abs(later - late) > LEAST_MS and max(later, late) > MUCH * min(later, late):
                found.append(f"{way}: {late:.3g} ms then, {later:.3g} now.")
    return found
