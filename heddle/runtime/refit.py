"""Other processes than a plan takes: they agree on another plan, and those that have no place in it stand by."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.runtime.environment import LaunchedRank
from heddle.runtime.rendezvous import SharedError
from heddle.spec.plan import Plan

OVER = "heddle/over"  # the key in the store that tells processes without a place that all is done


class Refit(Protocol):
    """Who finds another plan where there are not as many processes, or devices, as a plan takes."""

    tied: bool  # whether both ends of a pipeline hold the embedding's weight
    store: Any  # through which processes agreed on another plan than they were given
    returning: bool  # whether ranks were asked to stop because devices are back

    def may(self) -> bool:
        """Whether another plan is thinkable at all: nobody starts with one that was not asked for."""

    def decide(self, world: int) -> dict[str, Any]:
        """What the first of so many processes finds; a HeddleError where they cannot go on."""

    def take(self, decided: dict[str, Any]) -> Plan:
        """Go on under what was found."""

    def given(self) -> tuple[Any, ...]:
        """The arguments of a rank's work."""

    def here(self, restart: int) -> tuple[Any, ...]:
        """The same for processes that are started here; the first of them, a job, has the plan."""

    def back(self) -> bool:
        """Whether devices that were missing are there again."""

    def goes_on(self, result: Any) -> bool:
        """Whether ranks that ended well are to be started again."""


class SpareError(Exception):
    """This process has no place in the mesh: the others go on without it."""

    def __init__(self, store: Any) -> None:
        super().__init__("a process without a place in the mesh")
        self.store = store


def agreed_plan(store: Any, place: LaunchedRank, refit: Refit) -> Plan:
    """The plan that the first process found for all of them."""
    told: dict[str, Any] = {}
    if place.rank == 0:
        try:
            told = {"decided": refit.decide(place.world)}
        except HeddleError as error:
            told = {"error": [error.what, error.why, error.hint]}
        if store is not None:
            store.set("plan", json.dumps(told))
    if store is not None:
        told = json.loads(store.get("plan"))
    if "error" in told:
        raise SharedError(*told["error"])
    return refit.take(told["decided"])


def stand_by(store: Any) -> None:
    """Wait until the others are done: a launcher may take a process that ends for the end of its node."""
    while True:
        try:
            store.wait([OVER], timedelta(seconds=60))
            return
        except dist.DistStoreError:  # not yet
            continue
        except (dist.DistError, RuntimeError):  # whoever kept the store is gone
            return
