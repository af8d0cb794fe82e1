"""Network interfaces by the addresses they have. No torch here: it is asked before."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from pathlib import Path

SIOCGIFADDR = 0x8915  # Linux: the address of an interface
LOOPBACK = ("lo", "lo0")  # as Linux and macOS call it


def bind_to_loopback() -> None:
    """Let gloo and NCCL listen where nobody outside this machine can knock, whatever was set for other runs.

    gloo would else look for an address by the machine's name, which also fails on a laptop without a network.
    """
    for _, name in socket.if_nameindex():
        if name in LOOPBACK:
            os.environ["GLOO_SOCKET_IFNAME"] = name
            os.environ["NCCL_SOCKET_IFNAME"] = f"={name}"  # "=": this very one, and not all whose names begin so


def interface_towards(address: str) -> str | None:
    """The interface by which this machine reaches an address; None where that cannot be told."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # nothing is sent: the kernel only looks up the way
        except OSError:
            return None
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            if own in _addresses(name, probe):
                return name
    return None


def _addresses(name: str, probe: socket.socket) -> list[str]:
    if probe.family == socket.AF_INET:
        try:
            answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:  # it has none, or this is not Linux
            return []
        return [socket.inet_ntoa(answer[20:24])]
    try:
        rows = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    except OSError:
        return []
    return [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])) for row in rows if row[-1] == name]
