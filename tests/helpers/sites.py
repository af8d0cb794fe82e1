"""Real slow links on one machine: a network namespace for each site, and a relay between them with delay and rate.

Every site has a TUN device in a namespace of its own. The relay, a process of its own, reads what one site sends,
keeps it for as long as the link would take, and gives it to the other. Programs in the sites run unmodified. Addresses
exist only inside the namespaces.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

TUNSETIFF, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
CLONE_NEWNET = 0x40000000
LARGEST = 65000  # bytes of a packet: fewer of them for the relay to carry


class Sites:
    """Some sites that are up."""

    def __init__(self, prefix: str, count: int) -> None:
        self.names = [f"{prefix}{number}" for number in range(count)]
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count)]

    def start(
        self, site: int, command: Sequence[str], environment: dict[str, str], **options: object
    ) -> subprocess.Popen:
        """A program at a site."""
        inside = ["ip", "netns", "exec", self.names[site], *command]
        return subprocess.Popen(inside, env=environment, **options)  # type: ignore[call-overload]

    def namespace(self, site: int) -> str:
        """The path of its network namespace."""
        return f"/var/run/netns/{self.names[site]}"

    def sent_bytes(self, site: int) -> int:
        """What its interface has sent: exact, however busy the machine is."""
        path = "/sys/class/net/wan0/statistics/tx_bytes"
        shown = subprocess.run(
            ["ip", "netns", "exec", self.names[site], "cat", path], capture_output=True, text=True, check=True
        )
        return int(shown.stdout)


def why_not() -> str | None:
    """Why sites cannot be made here; None if they can."""
    if sys.platform != "linux" or shutil.which("ip") is None or not Path("/dev/net/tun").exists():
        return "network namespaces need Linux, ip and /dev/net/tun"
    name = f"heddle-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None if made.returncode == 0 else f"network namespaces are not allowed here: {made.stderr.strip()}"


@contextmanager
def sites(delay: Sequence[Sequence[float]], rate: Sequence[Sequence[float]]) -> Iterator[Sites]:
    """Sites with so many seconds of delay, and so many bytes per second, from each to each other."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    made = Sites(f"heddle-{os.getpid()}-", len(delay))
    relay = None
    try:
        for name in made.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        arguments = [
            ",".join(made.names),
            *(";".join(" ".join(map(str, row)) for row in table) for table in (delay, rate)),
        ]
        relay = subprocess.Popen(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert relay.stdout is not None
        assert relay.stdout.readline() == "ready\n"
        for name, address in zip(made.names, made.addresses, strict=True):
            for words in (f"addr add {address}/24 dev wan0", f"link set wan0 mtu {LARGEST} up", "link set lo up"):
                subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield made
    finally:
        if relay is not None:
            relay.kill()
            relay.communicate()
        for name in made.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def relay(names: list[str], delay: list[list[float]], rate: list[list[float]]) -> None:
    """Carry packets between the sites until the parent lets go of standard input."""
    libc = ctypes.CDLL(None, use_errno=True)
    ends = []
    for name in names:
        with Path(f"/var/run/netns/{name}").open("rb") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", b"wan0", TUN_WITHOUT_HEADER))
        ends.append(end)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    free = [[0.0] * len(ends) for _ in ends]  # when each link has sent all that it was given
    waiting: list[tuple[float, int, int, bytes]] = []
    count = 0
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([*ends, sys.stdin], [], [], pause)
        if sys.stdin in ready:
            return
        now = time.monotonic()
        for source in (ends.index(end) for end in ready):
            while True:
                try:
                    packet = os.read(ends[source], LARGEST + 100)
                except BlockingIOError:
                    break
                target = packet[19] - 1 if packet[0] >> 4 == 4 else -1  # 10.77.0.N
                if 0 <= target < len(ends) and target != source:
                    free[source][target] = max(now, free[source][target]) + len(packet) / rate[source][target]
                    count += 1
                    heapq.heappush(waiting, (free[source][target] + delay[source][target], count, target, packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, target, packet = heapq.heappop(waiting)
            with suppress(BlockingIOError):  # a full queue loses a packet, as others do, and it is sent again
                os.write(ends[target], packet)


if __name__ == "__main__":
    named, *tables = sys.argv[1:]
    relay(named.split(","), *([[float(word) for word in row.split()] for row in table.split(";")] for table in tables))
