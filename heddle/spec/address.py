"""HOST:PORT, read strictly and in one place: what the system would read as every interface of a machine is refused."""

from __future__ import annotations

import ipaddress
import re

from heddle.errors import HeddleError

Address = tuple[str, int]
LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")  # of a name; _ is common in private networks
NUMERIC = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")  # a last label that the system's resolver reads as part of an address
LONGEST = 253  # characters of a name


def parsed_address(text: str, any_port: bool = False) -> Address:
    """An address such as 10.0.0.1:29700, head.example:29700 or [fd00::1]:29700; `any_port` allows 0, a free one."""
    host, colon, port = text.rpartition(":")
    inside = host[1:-1] if host.startswith("[") and host.endswith("]") else None
    if not colon or not (is_host(host) if inside is None else _is_ip(inside, 6)):
        why = "It is HOST:PORT: a name, an IPv4 address, or an IPv6 address in brackets, and a port."
    elif not re.fullmatch("[0-9]{1,5}", port) or not (0 if any_port else 1) <= int(port) < 65536:
        why = f"A port is a whole number from {0 if any_port else 1} to 65535."
    else:
        return host if inside is None else inside, int(port)
    raise HeddleError(f"{_shown(text)} is not an address.", why, "For example 10.0.0.1:29700 or [fd00::1]:29700.")


def is_host(text: str) -> bool:
    """Whether this is an IPv4 address in full or a name. "0" and "0x0" are neither, though some read 0.0.0.0."""
    labels = text.removesuffix(".").split(".")
    if NUMERIC.fullmatch(labels[-1]):
        return _is_ip(text, 4)
    return len(text) <= LONGEST and all(map(LABEL.fullmatch, labels))


def written_address(host: str, port: int) -> str:
    """The same as text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_ip(text: str, version: int) -> bool:
    """Whether this is the address of a machine: not one of many, such as a multicast group or a broadcast."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.version == version and not address.is_multicast and text != "255.255.255.255"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
