"""Which processes were started together, where a store outlives those that spoke through it.

A launcher that starts all processes again may keep its store, in which what the dead said still stands. An elastic one
also changes how many there are and who has which rank: nobody can tell by counting which start this is. So each process
has a name of its own. Rank 0 proposes those that it finds, each confirms a proposal in which it finds itself, and the
first that all have confirmed is the start: the dead confirm nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from heddle.runtime.environment import LaunchedRank

LOOK = 0.1  # seconds between two looks of rank 0 at who is there
HEAR = timedelta(seconds=1)  # for which others wait until they look whether there is another proposal


class Start(NamedTuple):
    """What all processes of a start agree on."""

    name: str
    restarts: int  # how often the run was started before, by whoever knows of most


class AbsentError(Exception):
    """Ranks that did not come in time."""

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(f"absent: {ranks}")
        self.ranks = ranks


def agree_on_start(store: Store, place: LaunchedRank, restarts: int, patience: float) -> Start:
    """Find those that were started with this process; `restarts`: how often the run was, as far as this one knows."""
    own = uuid.uuid4().hex
    known = max(store.add(f"starts/{place.rank}", 1) - 1, restarts)
    store.set(f"here/{place.rank}", json.dumps([own, place.world, known]))
    return _propose(store, place, patience) if place.rank == 0 else _confirm(store, own, patience)


def _propose(store: Store, place: LaunchedRank, patience: float) -> Start:
    end, proposal = time.monotonic() + patience, ""
    while True:
        present = _present(store, place.world)
        if len(present) == place.world:
            names = [name for name, _, _ in present.values()]
            start = hashlib.sha256("".join(names).encode()).hexdigest()[:16]
            if start != proposal:
                proposal = start
                for name in names[1:]:
                    store.set(f"proposed/{name}", start)
            if store.add(f"confirmed/{start}", 0) == place.world - 1:
                found = Start(start, max(known for _, _, known in present.values()))
                store.set(f"begun/{start}", str(found.restarts))
                return found
        if time.monotonic() > end:
            heard = {0} | {rank for rank, (name, *_) in present.items() if store.check([f"heard/{proposal}/{name}"])}
            seen = present if len(present) < place.world else heard
            raise AbsentError([rank for rank in range(place.world) if rank not in seen])
        time.sleep(LOOK)


def _present(store: Store, world: int) -> dict[int, Any]:
    """What each rank said last, of those that know of as many processes as this one."""
    keys = [f"here/{rank}" for rank in range(world)]
    if not store.check(keys):
        keys = [key for key in keys if store.check([key])]
    said = [json.loads(text) for text in store.multi_get(keys)]
    return {int(key[5:]): each for key, each in zip(keys, said, strict=True) if each[1] == world}


def _confirm(store: Store, own: str, patience: float) -> Start:
    end, confirmed = time.monotonic() + 2 * patience, ""  # rank 0 may have come late, and tells who is absent
    while time.monotonic() < end:
        proposal = store.get(f"proposed/{own}").decode()
        if proposal != confirmed:
            confirmed = proposal
            store.set(f"heard/{proposal}/{own}", "")
            store.add(f"confirmed/{proposal}", 1)
        with suppress(dist.DistStoreError):
            store.wait([f"begun/{proposal}"], HEAR)
            return Start(proposal, int(store.get(f"begun/{proposal}")))
    raise AbsentError([0])
