"""The moment in which ranks connect: whoever cannot reach the others hears of it, and does not wait in silence.

NCCL connects while process groups are made, before there is a watchdog. A wrong interface, a firewall or an adapter
that is down then shows nothing for as long as its own limit allows.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from heddle.errors import HeddleError
from heddle.runtime.environment import LaunchedRank, number
from heddle.runtime.error_files import write_error
from heddle.runtime.rendezvous import DEFAULT_PATIENCE, PATIENCE, SOON

NAMES = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME")


@contextmanager
def connecting(store: Any, place: LaunchedRank, backend: str) -> Iterator[None]:
    """While inside, say so once it takes long, and end this process when it has taken too long."""
    patience = number(PATIENCE, 1, default=DEFAULT_PATIENCE)
    done = threading.Event()
    own = store.clone()  # the main thread waits in the other one
    thread = threading.Thread(target=_watch, args=(done, own, place, backend, patience), daemon=True)
    thread.start()
    try:
        yield
        store.set(f"connected/{place.rank}", "")
    finally:
        done.set()
        thread.join()  # its clone of the store writes when it goes, which must not be when the disk is full


def _watch(done: threading.Event, store: Any, place: LaunchedRank, backend: str, patience: int) -> None:
    if done.wait(SOON):
        return
    over = ", ".join(f"{name}={os.environ[name]}" for name in NAMES if name in os.environ) or "no interface is named"
    sys.stderr.write(f"Rank {place.rank} is connecting to the others over {backend} ({over}).\n")
    sys.stderr.flush()
    if done.wait(patience):
        return
    missing = [rank for rank in range(place.world) if not store.check([f"connected/{rank}"])]
    listed = ", ".join(map(str, missing[:8])) + ", …" * (len(missing) > 8)
    error = HeddleError(
        f"Rank {place.rank} could not connect to the others over {backend} within {patience + SOON:.0f} s.",
        f"Not connected yet: rank {listed}. They have met, so they run; what they send each other does not arrive "
        f"({over}).",
        "Set NCCL_SOCKET_IFNAME and NCCL_IB_HCA to the cluster's network, and let it through the firewall; "
        f"NCCL_DEBUG=INFO shows what it tries. {PATIENCE} waits longer.",
    )
    write_error(place.rank, error)
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
    os._exit(2)
