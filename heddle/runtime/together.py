"""What the processes of a run agree on without sending tensors: through the store at which they met.

A collective that waits for slow work ends a run after its watchdog's half hour, and on GPUs it holds up every one of
them. A key in the store has no limit.
"""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from heddle.errors import HeddleError
from heddle.parallel.mesh import EVER, Mesh

SLOWEST_LOOK = 1.0  # seconds between two looks at the store, at most
CACHED = 60.0  # seconds that a network file system may take to show a node what another one wrote

Tick = Callable[[], None]


def _nothing() -> None:
    pass


def own_store(timeout: timedelta = EVER) -> Any:
    """A connection to the store of this launch that nobody else uses."""
    store: Any = dist.distributed_c10d._get_default_store()
    store = store.clone()
    store.set_timeout(timeout)
    return store


def wait_until(
    what: str,  # noqa: ARG001 - the watchdog reads it, and the ranks that it depends on, off the stack
    true: Callable[[], bool],
    ranks: tuple[int, ...],  # noqa: ARG001
    tick: Tick = _nothing,
) -> None:
    """Look until something is true."""
    pause = 0.001
    while not true():
        time.sleep(pause)
        pause = min(2 * pause, SLOWEST_LOOK)
    tick()


class Together:
    """A mesh's processes and their store; one process has nobody to agree with."""

    def __init__(self, mesh: Mesh, tick: Tick = _nothing) -> None:
        self.mesh, self.tick = mesh, tick
        self.store: Any = None
        if mesh.world.size > 1:
            self.store = own_store()
            number = self.store.add(f"together/{mesh.rank}", 1)
            self.store = PrefixStore(f"together/{number}", self.store)
        self.meetings = 0  # all ranks meet in the same order, so they count alike, and no name is used twice
        self.others = tuple(rank for rank in mesh.world.ranks if rank != mesh.rank)

    def _key(self, name: str) -> str:
        self.meetings += 1
        return f"{self.meetings} {name}"

    def first(self, name: str, work: Callable[[], Any], then: Callable[[], Any]) -> Any:
        """Rank 0 does `work`; the others wait for it, however long it takes, and then do `then`."""
        store, key = self.store, self._key(name)
        if self.mesh.rank == 0:
            done = work()
            if store is not None:
                store.set(key, "done")
            return done
        wait_until(f"rank 0 is done with {name}", lambda: bool(store.check([key])), (0,), self.tick)
        return then()

    def all(self, name: str) -> None:
        """Wait for everybody."""
        self.gather(name, None)

    def gather(self, name: str, words: Any) -> list[Any]:
        """What every process says, by rank; as JSON."""
        store, world = self.store, self.mesh.world.ranks
        if store is None:
            return [words]
        key = self._key(name)
        keys = [f"{key}/{rank}" for rank in world]
        store.set(keys[self.mesh.world.rank], json.dumps(words))
        count = f"{key}/count"
        store.add(count, 1)
        everybody = f"everybody is done with {name}"
        wait_until(everybody, lambda: int(store.get(count)) >= len(world), self.others, self.tick)
        values = store.multi_get(keys) if store.has_extended_api() else map(store.get, keys)
        return [json.loads(value) for value in values]


def check_shared(folders: Iterable[Path], together: Together, patience: float = CACHED) -> None:
    """Refuse folders that not every process sees: rank 0 writes a token into each, and all read it."""
    mesh = together.mesh
    if mesh.world.size == 1:
        return
    for number, folder in enumerate(folders):
        name = f"folder {number}"
        path, token = folder / f".heddle-{uuid.uuid4().hex}", uuid.uuid4().hex
        written = _written(path, token) if mesh.rank == 0 else None
        path_name, expected, problem = together.gather(f"{name}, written", (path.name, token, written))[0]
        if problem is not None:
            raise HeddleError(f"{folder} cannot be written by rank 0.", f"{problem}.", "Choose another place for it.")
        seen = _sees(folder / path_name, expected, patience)
        answers = together.gather(f"{name}, seen", (seen, socket.gethostname()))
        if mesh.rank == 0:
            path.unlink(missing_ok=True)
        blind = [(rank, host) for rank, (sees, host) in zip(mesh.world.ranks, answers, strict=True) if not sees]
        if blind:
            nodes = Counter(host for _, host in blind)
            ranks = ", ".join(str(rank) for rank, _ in blind[:8]) + (", …" if len(blind) > 8 else "")
            raise HeddleError(
                f"Not every process sees {folder}: rank {ranks} on {', '.join(nodes)} does not.",
                f"Rank 0, on {answers[0][1]}, wrote a file there that these did not find within {patience:.0f} s. All "
                "ranks of a run read and write that folder.",
                "Put it on a file system that all nodes share: [train] runs and [data] cache say where.",
            )


def _written(path: Path, token: str) -> str | None:
    """What went wrong; None if nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(token)
        return None
    except OSError as error:
        return str(error.strerror or error)


def _sees(path: Path, token: str, patience: float) -> bool:
    end = time.monotonic() + patience
    while True:
        try:
            next(path.parent.iterdir(), None)  # makes a network file system look again
            if path.read_text() == token:
                return True
        except OSError:
            pass
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
