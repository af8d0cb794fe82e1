"""Shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
import zlib

# A shell without job control starts what it runs in the background with Ctrl-C ignored; every command that a test
# starts and interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start interpreters by the dozen: each of them would compile all of Heddle anew where nobody may keep bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Before torch is imported anywhere: tests measure correctness, and small tensors are quicker on one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.helpers.world import SHARED

sys.dont_write_bytecode = False  # so that tests, too, are rewritten once and not by each worker of each run
pytest_plugins = ["tests.helpers.fixtures"]

# continuous integration tries the same examples each time; everybody else new ones
settings.register_profile(
    "heddle", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("heddle")


WORLDLY: set[Path] = set()  # files whose tests need the eight processes of `tests/helpers/world.py`


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests start processes go first: two workers share the rest more evenly at the end."""
    starting = {item.path for item in items if item.get_closest_marker("dist")}
    WORLDLY.update(item.path for item in items if "world" in getattr(item, "fixturenames", ()))
    items.sort(key=lambda item: (item.path not in WORLDLY, item.path not in starting))


def pytest_collection_finish() -> None:
    """All that was imported stays: whoever collects garbage later need not look through it.

    Nor does it count any more, so that garbage is looked for as soon as there is some: trainers that refer to
    themselves hold files and threads.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Who waits for the next task takes time from others: when files need no world any more, it ends."""
    if item.path not in WORLDLY and SHARED.processes:
        SHARED.close()


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Every test runs in a folder of its own: what it writes is nobody else's."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _own_numbers(request):
    """Every test draws numbers of its own, the same each time, whatever ran before it."""
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))
