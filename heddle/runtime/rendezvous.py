"""The rendezvous: where the processes of a run find each other, and on which addresses they listen.

On one machine they meet in a file that only this user can open, and listen on loopback alone. On several they meet at
MASTER_ADDR:MASTER_PORT, and listen where that address is, not on every interface that a machine happens to have: what
PyTorch and gloo say over their sockets is neither authenticated nor encrypted.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from heddle.errors import HeddleError
from heddle.runtime.environment import LaunchedRank, local_place, number
from heddle.runtime.error_files import restart_count, set_restart_count
from heddle.runtime.interfaces import interface_towards
from heddle.runtime.starts import AbsentError, agree_on_start

TIMEOUT = timedelta(minutes=30)  # of whatever processes do together once they have met
PATIENCE = "HEDDLE_RENDEZVOUS_SECONDS"  # the variable that says how long they wait for each other before that
DEFAULT_PATIENCE = 600  # seconds: a hundred containers may take minutes to import from one file system
LISTEN = "HEDDLE_LISTEN"  # the variable that says where rank 0 listens, if that is not at MASTER_ADDR
RESOLVING = 5.0  # seconds until a name that nobody knows counts as wrong: a new machine's may take a moment
SOON = 10.0  # seconds after which a process that still waits says so
ANOTHER_PORT = "Set MASTER_PORT to a free port on that machine: heddle launch --port, or torchrun --master-port."

Address = tuple[socket.AddressFamily, str]


class SharedError(HeddleError):
    """What is wrong for every process of a launch alike, so that one of them is enough to say so."""


def rendezvous_in_file(file: Path, place: LaunchedRank) -> Store:
    """The store of processes that share a folder of one machine."""
    return FileStore(str(file), place.world)


def rendezvous_at_address(place: LaunchedRank) -> Store:
    """The store of processes that another launcher started, possibly on several machines."""
    host = os.environ.get("MASTER_ADDR", "")
    if not host:
        raise HeddleError(
            "MASTER_ADDR is not set.",
            "The processes meet at that address.",
            "torchrun sets it; under Slurm use the script that `heddle launch --slurm` prints.",
        )
    port, patience = number("MASTER_PORT", 1, 65535), number(PATIENCE, 1, default=DEFAULT_PATIENCE)
    launcher_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)  # as torchrun says it
    hosting, addresses = place.rank == 0 and not launcher_hosts, _resolved(host)
    if hosting:
        listener, (_, address) = _listen(host, addresses, port)
    else:
        listener, (_, address) = None, _wait_for_rank_0(host, addresses, port, place, patience)
    # A name that means loopback here, as Debian writes it into /etc/hosts, says nothing of where other nodes are.
    apart = place.world > max(1, local_place()[1]) and _is_loopback(address)
    if not apart and (interface := interface_towards(address)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    try:
        tcp = TCPStore(
            address,
            port,
            place.world,
            is_master=hosting,
            timeout=timedelta(seconds=patience + SOON),
            wait_for_workers=False,
            master_listen_fd=None if listener is None else listener.detach(),
        )
    except dist.DistError as error:
        raise HeddleError(
            f"Rank {place.rank} cannot meet the others at {host}:{port}.",
            f"What listens there is not a run of Heddle or torchrun: {str(error).splitlines()[0]}",
            ANOTHER_PORT,
        ) from None
    try:
        store = _of_this_start(tcp, place, f"{host}:{port}", patience)
    except dist.DistError as error:
        raise SharedError(
            f"Rank {place.rank} lost the others at {host}:{port}.",
            str(error).splitlines()[0],
            "Find out what happened to rank 0, which hosts their store.",
        ) from None
    return store


def _resolved(host: str) -> list[Address]:
    end = time.monotonic() + RESOLVING
    while True:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return [(family, str(name[0])) for family, _, _, _, name in found]
        except (OSError, UnicodeError) as error:  # the latter for what no name can look like
            if time.monotonic() > end or isinstance(error, UnicodeError):
                raise HeddleError(
                    f"MASTER_ADDR={host!r} is not an address.",
                    f"Looking it up failed: {getattr(error, 'strerror', None) or error}.",
                    "Set it to the name or address at which the others can reach rank 0's machine.",
                ) from None
        time.sleep(0.5)


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def _listen(host: str, addresses: list[Address], port: int) -> tuple[socket.socket, Address]:
    """Listen on this machine at the address that is named, and at no other. (TCPStore would, at every one of them.)"""
    own = os.environ.get(LISTEN)
    family, address = _resolved(own)[0] if own else addresses[0]
    machines = max(number(name, 1, default=1) for name in ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"))
    if _is_loopback(address) and machines > 1:
        raise HeddleError(
            f"MASTER_ADDR={host} is {address} on rank 0's machine, which the other {machines - 1} cannot reach.",
            "Rank 0 listens only on the address given.",
            f"Set MASTER_ADDR to its address in the cluster's network; or {LISTEN} to that, if the name resolves "
            "differently on rank 0's machine.",
        )
    try:
        return socket.create_server((address, port), family=family, backlog=4096), (family, address)
    except OSError as error:
        why, hint = f"{error.strerror}.", ANOTHER_PORT
        if error.errno == errno.EADDRINUSE:
            why = "Another program is listening there, perhaps a run that has not ended."
        if error.errno == errno.EADDRNOTAVAIL:
            why = "That is not an address of this machine, where rank 0 runs."
            hint = f"Start rank 0 where MASTER_ADDR is; or set {LISTEN} if its network translates addresses."
        raise HeddleError(f"Rank 0 cannot listen at {address}:{port}.", why, hint) from None


def _wait_for_rank_0(host: str, addresses: list[Address], port: int, place: LaunchedRank, patience: int) -> Address:
    """The address at which rank 0, or a launcher in its place, answers."""
    began, waiting = time.monotonic(), False
    while (waited := time.monotonic() - began) < patience:
        for family, address in addresses:
            try:
                socket.create_connection((address, port), timeout=min(5.0, patience - waited + 0.1)).close()
            except OSError as error:
                why = error.strerror or str(error)
            else:
                return family, address
        if waited > SOON and not waiting:
            waiting = True
            sys.stderr.write(f"Rank {place.rank} waits for rank 0 at {host}:{port} ({why}).\n")
        time.sleep(0.1)
    raise HeddleError(
        f"Rank {place.rank} cannot reach rank 0 at MASTER_ADDR:MASTER_PORT = {host}:{port}.",
        f"There was no answer within {patience} s: {why}.",
        f"Set MASTER_ADDR to rank 0's machine, and let the others through its firewall; {PATIENCE} waits longer.",
    )


def _of_this_start(store: Store, place: LaunchedRank, where: str, patience: int) -> Store:
    """What is said only among the processes of this start; ranks that never join are named now, not by a time-out."""
    try:
        start = agree_on_start(store, place, restart_count(), patience)
    except AbsentError as absent:
        missing = absent.ranks
        listed = ", ".join(map(str, missing[:8])) + ", …" * (len(missing) > 8)
        raise SharedError(
            f"{len(missing)} of {place.world} processes did not join at {where} within {patience} s: rank {listed}.",
            "A run starts when all its ranks have joined.",
            f"Find out what happened to them; {PATIENCE} waits longer.",
        ) from None
    set_restart_count(start.restarts)
    return PrefixStore(f"start-{start.name}", store)
