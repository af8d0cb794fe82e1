"""Two sets of processes never write to one run folder, whatever was killed before, and no lock outlives its holders."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from heddle.errors import HeddleError
from heddle.runs import lock as lock_module
from heddle.runs.lock import LOCK, RunLock, begun, locked
from tests.helpers.commands import REPOSITORY, call, write_job
from tests.helpers.launching import heddle, start, under, wait_for_steps


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(lock_module, "PATIENCE", 0.2)


HOLD = """
import sys, time
from pathlib import Path
from heddle.runs.lock import locked
with locked(Path(sys.argv[1]), print):
    (Path(sys.argv[1]) / "job.toml").touch()
    print("held", flush=True)
    time.sleep(100)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = start(sys.executable, "-c", HOLD, str(folder), cwd=folder.parent)
    assert process.stdout.readline() == "held\n"
    return process


def test_the_holder_is_named_and_a_kill_frees_the_lock_at_once(tmp_path, impatient):
    process = holder(tmp_path / "run")
    with pytest.raises(HeddleError) as told, locked(tmp_path / "run", pytest.fail):
        pass
    assert told.value.what == f"The run folder {tmp_path / 'run'} is in use."
    assert told.value.why == f"Process {process.pid} on {socket.gethostname()} trains there."
    process.kill()
    process.wait()
    with locked(tmp_path / "run", pytest.fail):
        assert (tmp_path / "run" / LOCK).read_text().split()[0] == str(os.getpid())


def stay(lock: RunLock, ready) -> None:
    assert os.fstat(lock.descriptor)
    ready.set()
    multiprocessing.parent_process().join()  # as a rank that has not noticed yet that the launcher is gone
    signal.pause()


ORPHAN = """
import multiprocessing, os, signal, sys
from pathlib import Path
from tests.runs.test_lock import stay
from heddle.runs.lock import locked
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    ready = context.Event()
    with locked(Path(sys.argv[1]), print) as lock:
        (Path(sys.argv[1]) / "job.toml").touch()
        child = context.Process(target=stay, args=(lock, ready))
        child.start()
        ready.wait()
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_an_orphan_of_a_killed_launcher_still_holds_the_lock(method, tmp_path, impatient, monkeypatch):
    (tmp_path / "orphan.py").write_text(ORPHAN)
    process = start(sys.executable, "orphan.py", "run", method, cwd=tmp_path, PYTHONPATH=str(REPOSITORY))
    orphan = int(process.stdout.readline())
    process.wait()
    try:
        with pytest.raises(HeddleError, match="is in use") as told, locked(tmp_path / "run", pytest.fail):
            pass
        assert f"Process {process.pid} on {socket.gethostname()} is gone, but processes" in told.value.why
    finally:
        os.kill(orphan, signal.SIGKILL)
    monkeypatch.setattr(lock_module, "PATIENCE", 60)
    with locked(tmp_path / "run", pytest.fail):
        pass


def test_a_folder_that_nothing_came_into_is_gone_again(tmp_path):
    folder = tmp_path / "runs" / "new"
    with locked(folder, pytest.fail):
        assert folder.is_dir()
        assert not begun(folder)  # two ranks of a launcher: the second must not take the lock for a run
    assert not (tmp_path / "runs").exists()
    with locked(folder, pytest.fail):
        (folder / "job.toml").touch()
        assert begun(folder)
    assert begun(folder)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_called_lock_and_is_no_file_is_refused_and_left_alone(tmp_path, kind):
    (tmp_path / "run").mkdir()
    (tmp_path / "thesis").write_text("years of work")
    if kind == "link":
        (tmp_path / "run" / LOCK).symlink_to(tmp_path / "thesis")
    else:
        os.mkfifo(tmp_path / "run" / LOCK)
    with pytest.raises(HeddleError, match="cannot be written") as caught, locked(tmp_path / "run", pytest.fail):
        pytest.fail("was locked")
    assert "lock" in caught.value.why
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert (tmp_path / "run" / LOCK).exists()


def test_a_lock_file_that_was_removed_meanwhile_is_not_taken_for_the_lock(tmp_path, monkeypatch):
    """The first to wait gets the lock on a file that its holder removed; a third would make a new one beside it."""
    folder, opened = tmp_path / "run", os.open

    def removed(path, *rest):
        descriptor = opened(path, *rest)
        monkeypatch.setattr(os, "open", opened)
        Path(path).unlink()
        return descriptor

    monkeypatch.setattr(os, "open", removed)
    with locked(folder, pytest.fail) as lock:
        assert os.fstat(lock.descriptor).st_ino == (folder / LOCK).stat().st_ino


def test_a_file_system_without_locks_is_told_of_and_used(tmp_path, monkeypatch):
    def nothing(*_):
        raise OSError(lock_module.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock_module.fcntl, "flock", nothing)
    told = []
    with locked(tmp_path / "run", told.append):
        pass
    assert "a file system without locks" in told[0]


@pytest.mark.dist
@pytest.mark.slow
def test_a_second_resume_changes_nothing_and_the_first_goes_on(tmp_path):
    write_job(tmp_path)
    long = under({"data": 2}, "r", "train.steps=100000", "train.save_every=1")
    first = heddle(*long, cwd=tmp_path)
    run = tmp_path / "runs" / "r"
    wait_for_steps(run, 3)
    before = (run / "job.toml").read_bytes()
    second = heddle(*long, "--resume", "--set", "train.log_every=7", cwd=tmp_path)
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 2
    assert "error: The run folder runs/r is in use." in errors
    assert f"Process {first.pid} on " in errors
    assert (run / "job.toml").read_bytes() == before
    assert first.poll() is None
    # the launcher is killed: its processes end, and whoever comes at once gets the lock
    first.kill()
    first.wait()
    short = [word.replace("100000", "10") for word in long]
    again = heddle(*short, "--resume", "--allow-changes", cwd=tmp_path)
    out, errors = again.communicate(timeout=120)
    assert again.returncode == 0, out + errors


def test_a_job_that_fails_early_leaves_no_folder(tmp_path, monkeypatch):
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call("train", "job.toml", "--set", "model.vocab=100") == 2
    assert not Path("runs").exists()
