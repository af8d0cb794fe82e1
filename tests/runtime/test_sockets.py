"""Where a run listens: on one machine nobody from outside reaches it, on several only at the address that is named."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest

from tests.helpers.launching import STARTED, free_port, heddle, nobody_is_left, under, wait_for_steps

pytestmark = [
    pytest.mark.dist,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are listed under Linux only"),
]

LISTENING = "0A"  # the kernel's TCP_LISTEN


def listening(group: int) -> dict[int, set[IPv4Address | IPv6Address]]:
    """The ports on which any process of a group listens, and the addresses of each."""
    inodes = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == group:
                inodes |= {str(path.readlink()) for path in (process / "fd").iterdir()}
        except OSError:  # it ended meanwhile
            continue
    found: dict[int, set[IPv4Address | IPv6Address]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and f"socket:[{words[9]}]" in inodes:
                address, port = words[1].split(":")
                # words of four bytes, each in the order of this machine
                parts = [bytes.fromhex(address[i : i + 8]) for i in range(0, len(address), 8)]
                raw = b"".join(part[::-1] if sys.byteorder == "little" else part for part in parts)
                found.setdefault(int(port, 16), set()).add(ip_address(raw))
    return found


@pytest.fixture(scope="module")
def run(folder):
    """A run of two processes that goes on for as long as it is looked at."""
    process = heddle(*under({"pipeline": 2}, "listening", "train.steps=100000"), cwd=folder)
    STARTED.remove(process)  # it outlives the first test that looks at it
    wait_for_steps(folder / "runs/listening", 2)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    nobody_is_left(process.pid)


def test_on_one_machine_every_socket_is_loopback(run):
    found = listening(run.pid)
    assert found, "gloo's processes listen for each other"
    assert {address for addresses in found.values() for address in addresses} == {IPv4Address("127.0.0.1")}


@pytest.fixture
def elsewhere():
    """A command's prefix that runs it on another machine's network, and this machine's address as seen from there."""
    name = f"hd{uuid.uuid4().hex[:8]}"
    here, there = "10.213.77.1", "10.213.77.2"
    commands = [
        f"ip netns add {name}",
        f"ip link add {name}a type veth peer name {name}b netns {name}",
        f"ip addr add {here}/30 dev {name}a",
        f"ip link set {name}a up",
        f"ip netns exec {name} ip addr add {there}/30 dev {name}b",
        f"ip netns exec {name} ip link set {name}b up",
    ]
    try:
        if shutil.which("ip") is None:
            pytest.skip("no `ip` that could make a second network")
        for command in commands:
            made = subprocess.run(command.split(), capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"this user cannot make a second network: {command}: {made.stderr.strip()}")
        yield ["ip", "netns", "exec", name], here
    finally:
        for command in (f"ip link del {name}a", f"ip netns del {name}"):
            if shutil.which("ip"):
                subprocess.run(command.split(), capture_output=True)


KNOCK = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), timeout=10).close()
        print("open")
    except ConnectionRefusedError:
        print("refused")
"""


def knock(prefix: list[str], address: str, ports) -> list[str]:
    command = [*prefix, sys.executable, "-c", KNOCK, address, *map(str, ports)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def test_from_another_network_every_port_is_refused(run, elsewhere):
    prefix, here = elsewhere
    ports = listening(run.pid)
    with socket.create_server((here, 0)) as open_port:  # so that it is the run that refuses, and not the network
        assert knock(prefix, here, [open_port.getsockname()[1]]) == ["open"]
    assert ports
    assert knock(prefix, here, ports) == ["refused"] * len(ports)


def test_from_another_address_of_this_machine_every_port_is_refused(run):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way_out:
        try:
            way_out.connect(("192.0.2.1", 9))  # nothing is sent: only the way is looked up
        except OSError:
            pytest.skip("this machine has no address besides loopback")
        own = way_out.getsockname()[0]
    ports = listening(run.pid)
    assert ports
    assert knock([], own, ports) == ["refused"] * len(ports)


def test_by_an_address_that_is_named_nothing_listens_at_another(folder, elsewhere):
    _, here = elsewhere
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": here, "MASTER_PORT": free_port()}
    arguments = under({"pipeline": 2}, "named", "train.steps=100000")
    ranks = [heddle(*arguments, cwd=folder, RANK=rank, **where) for rank in "01"]
    wait_for_steps(folder / "runs/named", 1)
    found = [address for rank in ranks for addresses in listening(rank.pid).values() for address in addresses]
    assert len(found) >= 3  # the store of the first, and what gloo opens in both
    assert set(found) == {IPv4Address(here)}
