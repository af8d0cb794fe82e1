"""A shell's limits are named, whether they end a run before it begins or within it."""

import os

import pytest

from heddle.errors import HeddleError
from heddle.runtime import limits
from heddle.runtime.launch import run_processes
from heddle.spec.plan import Plan
from tests.helpers.commands import write_job
from tests.helpers.launching import start


@pytest.fixture
def limited(monkeypatch):
    """A process with other limits than this one's."""

    def become(**allowed: int) -> None:
        numbers = {getattr(limits.resource, name): value for name, value in allowed.items()}
        unlimited = limits.resource.RLIM_INFINITY
        monkeypatch.setattr(limits.resource, "getrlimit", lambda number: (numbers.get(number, unlimited),) * 2)

    return become


def test_too_few_open_files_are_refused_before_anything_is_started(limited):
    limited(RLIMIT_NOFILE=31)
    with pytest.raises(HeddleError, match="2 processes need at least 32 open files") as caught:
        run_processes(Plan(data=2), os.getpid)
    assert caught.value.why == "`ulimit -n` allows 31."


def test_a_rank_that_ran_out_of_something_names_the_limit(limited):
    limited(RLIMIT_NOFILE=40, RLIMIT_AS=1 << 30)
    assert "ulimit -n` allows 40" in str(limits.limit_reached("Rank 1", OSError(24, "Too many open files")))
    assert "1 GiB of addresses" in str(limits.limit_reached("Rank 1", MemoryError()))
    assert limits.limit_reached("Rank 1", ValueError("no such thread")) is None


def test_a_rank_that_ended_without_a_word_may_have_met_a_limit(limited):
    limited(RLIMIT_NOFILE=1024)
    assert limits.narrow_limits() == ""
    limited(RLIMIT_NOFILE=64, RLIMIT_AS=1 << 30)
    assert "1 GiB of addresses, which may be why." in limits.narrow_limits()
    assert "allows 64 open files, which may be why." in limits.narrow_limits()


@pytest.mark.slow  # an interpreter of its own
def test_a_command_with_few_open_files_ends_without_a_traceback(tmp_path):
    write_job(tmp_path)
    process = start("bash", "-c", "ulimit -n 16; exec heddle train job.toml --set plan.data=2", cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    assert errors.startswith("error: 2 processes need at least 32 open files each.")
    assert process.returncode == 2
