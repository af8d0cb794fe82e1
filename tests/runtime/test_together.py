"""What processes agree on through their store; and out of memory, which must not wait for them."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.parallel.collectives import start_all_reduce
from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime import together
from heddle.runtime.device import abandon, pending_collectives
from heddle.runtime.joining import part_in_failure
from heddle.runtime.launch import run_processes
from heddle.runtime.together import Together, check_shared
from heddle.spec.plan import Plan
from heddle.training.watchdog import oldest_collective

pytestmark = pytest.mark.dist


def agree(mesh, folder):
    """Everything in one set of processes: what each test looks at, by name."""
    seen = {}
    first = Together(mesh)
    began = time.monotonic()
    first.first("the loom", lambda: time.sleep(1.0), lambda: None)
    seen["waited"] = time.monotonic() - began
    seen["gathered"] = first.gather("ranks", {"rank": mesh.rank})
    seen["again"] = Together(mesh).gather("ranks", "new")  # not what stands there from before
    seen["shared"] = attempt(lambda: check_shared([folder / "all"], first, 5.0))
    # a folder that each process has for itself, as one that lies on the disk of a node
    seen["local"] = attempt(lambda: check_shared([folder / f"of-{mesh.rank}"], first, 1.0))
    (folder / "file").touch()
    seen["unwritable"] = attempt(lambda: check_shared([folder / "file" / "below"], first, 1.0))
    seen["left"] = sorted(str(path) for path in folder.rglob(".heddle-*"))
    # the flight recorder names a collective that somebody never comes to
    first.all("recording")
    if mesh.rank == 0:
        handle = start_all_reduce(torch.ones(4), mesh.world)
        time.sleep(0.3)
        seen["pending"], seen["oldest"] = len(pending_collectives()), oldest_collective(mesh)
        first.gather("later", None)
        handle.wait()
    else:
        first.gather("later", None)
        start_all_reduce(torch.ones(4), mesh.world).wait()
    first.all("done")
    # rank 1 stands in a collective that rank 0 never comes to; parting must not wait for it
    if mesh.rank == 0:
        time.sleep(0.5)
        began = time.monotonic()
        part_in_failure(mesh.rank)
        seen["parted"], seen["left group"] = time.monotonic() - began, not dist.is_initialized()
    else:
        with pytest.raises(RuntimeError):
            start_all_reduce(torch.ones(4), mesh.world).wait()
    return seen


def attempt(work):
    try:
        work()
    except HeddleError as error:
        return [error.what, error.why, error.hint]
    return None


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_FR_BUFFER_SIZE", "100")
        return run_processes(Plan(data=2), agree, tmp_path_factory.mktemp("shared"))


def test_the_first_rank_works_and_the_others_wait(seen):
    assert seen["waited"] >= 1.0
    assert seen["gathered"] == [{"rank": 0}, {"rank": 1}]
    assert seen["again"] == ["new", "new"]


def test_a_folder_that_not_all_see_is_refused_with_the_rank_and_node_that_do_not(seen):
    assert seen["shared"] is None
    what, why, hint = seen["local"]
    assert "Not every process sees" in what
    assert "rank 1 on " in what
    assert "Rank 0, on " in why
    assert "[train] runs" in hint
    assert "cannot be written by rank 0" in seen["unwritable"][0]
    assert seen["left"] == []


def test_a_collective_under_way_is_named(seen):
    assert seen["pending"] == 1
    assert "all_reduce number" in seen["oldest"]
    assert "over " in seen["oldest"]


def test_parting_in_failure_does_not_wait_for_those_who_wait_for_us(seen):
    assert seen["left group"]
    assert seen["parted"] < 5


def test_groups_are_aborted_because_destroying_them_waits(monkeypatch):
    called = []
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: called.append("destroyed"))
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: called.append("aborted"))
    abandon()
    assert called == ["aborted"]


def test_waiting_for_the_first_rank_takes_no_collective(monkeypatch):
    """A collective would end the run after half an hour of tokenizing; here it could not even begin."""
    store = dist.HashStore()
    monkeypatch.setattr(together, "own_store", lambda: store)
    first, second = (Together(Mesh(rank=rank, world=Axis(rank, (0, 1)))) for rank in range(2))
    assert not dist.is_initialized()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(second.first, "the tokens", lambda: None, lambda: "opened")
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        assert first.first("the tokens", lambda: "made", lambda: None) == "made"
        assert waiting.result(10) == "opened"


def test_one_process_agrees_with_itself():
    alone = Together(Mesh())
    assert alone.gather("anything", 3) == [3]
    assert alone.first("work", lambda: "done", lambda: None) == "done"
    check_shared([Path("nowhere")], alone)
    assert not Path("nowhere").exists()
