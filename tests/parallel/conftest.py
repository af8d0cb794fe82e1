"""Shared by the tests of parallelism."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.world import World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Eight processes, started when first asked for, for the tests of one file."""
    processes = World()
    yield processes
    processes.close()
