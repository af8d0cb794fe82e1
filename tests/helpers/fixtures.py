"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import chdir, suppress
from unittest import mock

import pytest

from tests.helpers import warm
from tests.helpers.commands import call, write_job
from tests.helpers.launching import (
    SERIAL,
    STARTED,
    TENSOR_PIPELINE,
    under,
)
from tests.helpers.world import MANY, SHARED, World


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A job, and two runs of it: on one process, and on four that `heddle train` started itself."""
    folder = tmp_path_factory.mktemp("launch")
    write_job(folder / "job")
    with chdir(folder / "job"):
        assert call(*under(SERIAL, "serial")) == 0
        assert call(*under(TENSOR_PIPELINE, "own")) == 0
        assert call(*under({"tensor": 2}, "own-tensor")) == 0
    return folder / "job"


@pytest.fixture(scope="session", autouse=True)
def _let_the_server_go():
    """The one that commands are forked from, and what is left of the world."""
    yield
    warm.close()
    SHARED.close()


@pytest.fixture(autouse=True)
def _leave_nobody_behind():
    """Where a test fails, what it has started goes all the same."""
    yield
    while STARTED:
        process = STARTED.pop()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def environment():
    """Sets variables, from none of those that launchers set; all is as before afterwards."""
    with mock.patch.dict(os.environ):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_NNODES"):
            os.environ.pop(name, None)
        yield lambda **variables: os.environ.update(variables)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Eight processes, started when first asked for; the files that need them come one after the other."""
    yield SHARED
    if len(SHARED.made) > MANY:
        SHARED.close()
