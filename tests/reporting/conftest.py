"""Shared by the tests of pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heddle.planning.layer_memory.explain import MemoryPrice, price_of_memory
from heddle.planning.search.search import Search, search
from heddle.reporting import memory, subject
from heddle.simulating.simulation import Simulation
from heddle.spec import Data, Job
from heddle.spec.job import dumps_job

FOUND: dict[str, Search] = {}
PRICES: dict[tuple[str, int], list[MemoryPrice]] = {}


def without_data(job: Job) -> str:
    """A job in words: what is decided about it does not depend on the folder of its text."""
    return dumps_job(replace(job, data=Data(text="corpus")))


@pytest.fixture(autouse=True)
def _decide_once(monkeypatch):
    """Pages show the same few jobs over and over: their plans are searched once, and so is what memory is worth."""

    def searched(job: Job) -> Search:
        return FOUND[key] if (key := without_data(job)) in FOUND else FOUND.setdefault(key, search(job))

    def priced(found: Simulation, budgets: int) -> list[MemoryPrice]:
        key = without_data(found.job), budgets
        return PRICES[key] if key in PRICES else PRICES.setdefault(key, price_of_memory(found, budgets))

    monkeypatch.setattr(subject, "search", searched)
    monkeypatch.setattr(memory, "price_of_memory", priced)
