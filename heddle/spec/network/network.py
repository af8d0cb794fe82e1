"""Devices that are not all alike and links that differ: groups at one place each, and what joins every two of them.

A `Cluster` is equal nodes with equal links, and stays the short way to say so. A `Network` is for the rest: two sites,
spot machines, a continent. `network_file` reads and writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from heddle.errors import HeddleError, listing, nearest, shorten
from heddle.spec.cluster import Device
from heddle.spec.ranges import Machines, Range, check_ranges

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Latency = Annotated[float, Range("[0, 1e9]", "It is the time of the shortest message, one way, in milliseconds.")]
Bandwidth = Annotated[float, Range("(0, 1e9]", "It is the rate at which one device sends to another, in Gbit/s.")]
MOST_IN_A_TABLE = 4096  # devices whose pairs are written out: a table of 128 MiB


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a message takes from one device to another."""

    latency_ms: Latency = 0.0  # one way
    gbps: Bandwidth  # Gbit/s of one device to another

    def __post_init__(self) -> None:
        check_ranges(self, "a link's speed")


@dataclass(frozen=True, kw_only=True)
class DeviceGroup:
    """Equal devices at one place: a node, a site, a region."""

    name: str
    devices: Machines = 1
    inside: Speed | None = None  # between two of them; a group of one needs none
    device: Device | None = None  # what they are; None: not said

    def __post_init__(self) -> None:
        check_ranges(self, f"network.groups {self.name!r}")
        # what is not printable would move the cursor of whoever reads a table
        if not self.name or ":" in self.name or self.name != self.name.strip() or not self.name.isprintable():
            raise HeddleError(
                f"{shorten(self.name)} cannot be the name of a group.",
                "A name is printable, has no spaces at its ends, and no colon, which comes before a device number.",
                "For example name = 'Ohio'.",
            )


@dataclass(frozen=True, kw_only=True)
class GroupLink:
    """What joins two groups, or single devices: both ways with `between`, one way with `from` and `to`."""

    between: tuple[str, ...] = ()
    source: str | None = field(default=None, metadata={"key": "from"})
    target: str | None = field(default=None, metadata={"key": "to"})
    latency_ms: Latency = 0.0  # one way
    gbps: Bandwidth  # Gbit/s of one device to another

    def __post_init__(self) -> None:
        one_way = self.source is not None and self.target is not None
        either = self.source is not None or self.target is not None
        if either == bool(self.between) or either != one_way or len(self.between) not in (0, 2):
            raise HeddleError(
                f"A link of the network has the ends {shorten([*self.between, self.source, self.target])}.",
                "It joins two ends, both ways or one way.",
                "Write between = ['Ohio', 'Tokyo'], or from = 'Ohio' and to = 'Tokyo'.",
            )
        check_ranges(self, f"network.links {' to '.join(self.ends)!r}")

    @property
    def ends(self) -> tuple[str, str]:
        if self.between:
            return self.between[0], self.between[1]
        return str(self.source), str(self.target)

    @property
    def ways(self) -> list[tuple[str, str]]:
        """From where to where."""
        a, b = self.ends
        return [(a, b), (b, a)] if self.between else [(a, b)]


class End(NamedTuple):
    """A group, or one device of it."""

    group: int
    device: int | None


@dataclass(frozen=True, kw_only=True)
class Network:
    """Groups of devices, numbered group after group, and the links between them.

    What is said of a single device goes before what is said of its group, of one way before both ways, and of any two
    ends before `across`.
    """

    name: str = "custom"
    groups: tuple[DeviceGroup, ...]
    links: tuple[GroupLink, ...] = ()
    across: Speed | None = None  # between groups that no link joins

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        if not names:
            raise HeddleError(
                "The network has no groups.", "It is made of groups of devices.", "Add a [[network.groups]]."
            )
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise HeddleError(
                f"The network has two groups called {twice!r}.", "Links name groups.", "Rename one of them."
            )
        for group in self.groups:
            if group.devices > 1 and group.inside is None:
                raise HeddleError(
                    f"Nothing joins the {group.devices} devices of {group.name!r}.",
                    "A group of several devices must say how they are linked.",
                    "For example inside = { latency_ms = 1.0, gbps = 10.0 }.",
                )
        self._check_links()

    def _check_links(self) -> None:
        said = set()
        for way, ends, link in self._ways():
            one, two = ends
            if one.group == two.group and (one.device is None or two.device is None or one.device == two.device):
                raise HeddleError(
                    f"A link leads from {way[0]!r} to {way[1]!r}, within one group.",
                    "The devices of a group are joined by its `inside`; a link may join two single devices of it.",
                    f"Set `inside` of {self.groups[one.group].name!r}, or name two devices of it, such as "
                    f"'{self.groups[one.group].name}:0'.",
                )
            key = (*ends, bool(link.between))
            if key in said:
                raise HeddleError(
                    f"Two links lead from {way[0]!r} to {way[1]!r}.", "One of them would be ignored.", "Remove one."
                )
            said.add(key)
        if self.across is None:
            whole = {(a.group, b.group) for _, (a, b), _ in self._ways() if a.device is None and b.device is None}
            for a, group in enumerate(self.groups):
                for b, other in enumerate(self.groups):
                    if a != b and (a, b) not in whole:
                        raise HeddleError(
                            f"No link leads from {group.name!r} to {other.name!r}.",
                            "Every pair of groups needs a link.",
                            f"Add a [[network.links]] between = ['{group.name}', '{other.name}'], or `across` for all "
                            "that have none.",
                        )

    def _ways(self) -> Iterator[tuple[tuple[str, str], tuple[End, End], GroupLink]]:
        for link in self.links:
            for way in link.ways:
                yield way, (self.end(way[0]), self.end(way[1])), link

    def end(self, name: str) -> End:
        """The group that a link calls "Ohio", or the device that it calls "Ohio:3"."""
        group, colon, number = name.partition(":")
        if group not in self._places:
            raise HeddleError(
                f"There is no group {shorten(group)} for a link to {shorten(name)}.",
                "Links join groups of the network.",
                nearest(group, self._places),
            )
        place = self._places[group]
        if not colon:
            return End(place, None)
        count = self.groups[place].devices
        if not (number.isascii() and number.isdecimal() and len(number) < 8 and int(number) < count):
            raise HeddleError(
                f"A link names the device {shorten(name)}.",
                f"The devices of {group!r} are numbered from 0 to {count - 1}.",
                f"Write '{group}:0', or '{group}' for all of them.",
            )
        return End(place, int(number))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {group.name: place for place, group in enumerate(self.groups)}

    @property
    def devices(self) -> int:
        """All devices."""
        return sum(group.devices for group in self.groups)

    @cached_property
    def group_of(self) -> tuple[str, ...]:
        """The name of each device's group."""
        return tuple(group.name for group in self.groups for _ in range(group.devices))

    @property
    def first_device(self) -> list[int]:
        """The number of each group's first device."""
        starts = [0]
        for group in self.groups:
            starts.append(starts[-1] + group.devices)
        return starts[:-1]

    def tables(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(devices, devices) from sender to receiver: delay in seconds, and bandwidth in bytes per second.

        On the diagonal the delay is 0 and the bandwidth infinite.
        """
        import numpy as np

        n = self.devices
        if n > MOST_IN_A_TABLE:
            raise HeddleError(
                f"The network has {n:,} devices.",
                f"Links are written out pair by pair, for at most {MOST_IN_A_TABLE:,} devices.",
                "Describe one device of each node.",
            )
        delay, bandwidth = np.zeros((n, n)), np.full((n, n), np.inf)
        first = self.first_device

        def put(a: slice, b: slice, speed: Speed | GroupLink) -> None:
            delay[a, b], bandwidth[a, b] = speed.latency_ms / 1e3, speed.gbps * 1e9 / 8

        def span(end: End) -> slice:
            start = first[end.group] + (end.device or 0)
            return slice(start, start + (self.groups[end.group].devices if end.device is None else 1))

        if self.across is not None:
            put(slice(None), slice(None), self.across)
        for place, group in enumerate(self.groups):
            if group.inside is not None:
                put(span(End(place, None)), span(End(place, None)), group.inside)

        def rank(said: tuple[Any, tuple[End, End], GroupLink]) -> tuple[int, bool]:
            return sum(end.device is not None for end in said[1]), not said[2].between

        for _, (a, b), link in sorted(self._ways(), key=rank):  # what is more particular is said last
            put(span(a), span(b), link)
        np.fill_diagonal(delay, 0.0)
        np.fill_diagonal(bandwidth, np.inf)
        return delay, bandwidth


def in_words(network: Network) -> str:
    """The network in a line: "64 devices in 8 groups of 8"."""
    sizes = sorted({group.devices for group in network.groups})
    count = len(network.groups)
    return f"{network.devices} devices in {count} group{'s' * (count > 1)} of {listing(sizes)}"
