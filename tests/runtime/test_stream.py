"""Where a device stands, by marks in its stream that a test reaches by hand."""

import pytest
import torch

from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime import stream
from heddle.runtime.stream import StreamMarks
from heddle.spec import Plan
from heddle.training import watchdog
from heddle.training.phases import Phases
from heddle.training.watchdog import Doing, Watchdog, read_stream

MESH = Mesh(rank=1, tensor=Axis(1, (0, 1)), pipeline=Axis(0, (1, 3)), world=Axis(1, (0, 1, 2, 3)))


class ByHand:
    """A mark that is reached when the test has let the device come so far."""

    reached_to = 0
    made = 0

    def __init__(self, *_, **__) -> None:
        ByHand.made += 1
        self.number = ByHand.made

    def reached(self) -> bool:
        return self.number <= ByHand.reached_to


@pytest.fixture
def marks(monkeypatch):
    ByHand.made = ByHand.reached_to = 0
    monkeypatch.setattr(stream, "Mark", ByHand)
    return StreamMarks(MESH, torch.device("cpu"))


def test_the_first_mark_that_is_not_reached_says_where_the_device_is(marks):
    mesh = marks.watched(MESH)
    with marks.span("receive", "receive activation", 2, 5, 100):
        pass
    with marks.span("compute", "forward", 2, 5):
        begin = mesh.tensor.watch("all-reduce", None, 8)
        begin()
    seen = []
    for reached in range(ByHand.made + 1):
        ByHand.reached_to = reached
        seen.append(marks.at())
    operations = [(place.operation, place.waits_for) for place in seen if place is not None]
    assert ("receive activation", (3,)) in operations  # from chunk 1, which the other stage has
    assert ("all-reduce over tensor", (0,)) in operations
    assert ("compute what goes into the all-reduce over tensor", ()) in operations
    assert seen[-1] is None
    assert marks.poll() == ByHand.made
    assert all((place.chunk, place.microbatch) == (2, 5) for place in seen if place is not None)


def test_a_rank_whose_device_is_busy_never_arrived_though_its_host_has_handed_out_everything(marks):
    host = Doing(1, "wait for its device", stack="the host's")
    mesh = marks.watched(MESH)
    mesh.world.watch("all-reduce", None, 8)()
    ByHand.reached_to = 0
    assert read_stream(host, marks).waits_for == ()  # the kernel before the collective is what hangs
    ByHand.reached_to = 1
    waiting = read_stream(host, marks)
    assert waiting.operation == "all-reduce over world"
    assert waiting.waits_for == (0, 2, 3)
    assert waiting.stack == "the host's"
    ByHand.reached_to = 2
    assert read_stream(host, marks) is host
    assert read_stream(host, None) is host


def test_a_report_says_where_the_device_stands_and_which_collective_is_oldest(marks, monkeypatch, capfd):
    """The host's stack shows none of it: it has handed out everything, and waits for all of it at once."""
    made = Watchdog(MESH, Plan(tensor=2, pipeline=2), Phases())
    made.stream, made.store = marks, torch.distributed.HashStore()
    marks.watched(MESH).world.watch("all-reduce", None, 8)()
    ByHand.reached_to = 1
    entry = {"process_group": ["7"], "is_p2p": False, "collective_seq_id": 42, "state": "started"}
    entry |= {"profiling_name": "nccl:all_reduce", "record_id": 3}
    monkeypatch.setattr(watchdog, "pending_collectives", lambda: [entry | {"record_id": 9}, entry])
    monkeypatch.setattr(watchdog, "GRACE", 0.0)
    monkeypatch.setattr(watchdog.os, "_exit", lambda code: None)
    made._end()
    assert (
        "Rank 1 (data 0, pipeline 0, tensor 1): all-reduce over world; waits for rank 0, rank 2, rank 3 "
        "(oldest collective in flight: nccl:all_reduce number 42 over group 7, started)."
    ) in capfd.readouterr().err


def test_marks_that_were_reached_are_forgotten(marks, monkeypatch):
    monkeypatch.setattr(stream, "KEPT", 10)
    ByHand.reached_to = 10**9
    for _ in range(1000):
        with marks.span("compute", "forward", 0, 0):
            pass
    assert len(marks.marks) <= 11
    assert all_reduce(torch.ones(1), Axis()).item() == 1  # an axis of one tells nobody
