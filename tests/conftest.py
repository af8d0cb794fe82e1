"""Shared by all tests."""

from __future__ import annotations

import os

# Before torch is imported anywhere: tests measure correctness, and small tensors are quicker on one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.helpers.fixtures"]

# continuous integration tries the same examples each time; everybody else new ones
settings.register_profile(
    "heddle", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("heddle")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests start processes go first: two workers share the rest more evenly at the end."""
    starting = {item.path for item in items if item.get_closest_marker("dist")}
    items.sort(key=lambda item: item.path not in starting)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Every test runs in a folder of its own: what it writes is nobody else's."""
    monkeypatch.chdir(tmp_path)
