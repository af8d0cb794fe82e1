"""The rules of the strict transport, one by one: what NCCL does with operations and what it refuses."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

import heddle.parallel.mesh
from heddle.parallel.mesh import Mesh
from heddle.runtime.tiers import Host
from heddle.spec import Plan
from tests.strict import Communicator, Launch, Load, Operation, Replay, StrictError, Wait, strict_ranks

PIPELINE = Plan(pipeline=2, microbatch=1)
DATA = Plan(data=2, microbatch=1)


def test_host_objects_need_gloo():
    def work(mesh: Mesh) -> list[int]:
        found = [0, 0]
        dist.all_gather_object(found, mesh.rank, group=mesh.host.group)
        return found

    assert strict_ranks(work, DATA).results == [[0, 1], [0, 1]]
    wrong = patch.object(heddle.parallel.mesh, "HOST_BACKENDS", ("gloo", "strict"))
    with wrong, pytest.raises(StrictError, match="host objects on world"):
        strict_ranks(work, DATA)


def test_tags_are_ignored_and_what_has_not_arrived_is_nan():
    def work(mesh: Mesh) -> list[float]:
        group = mesh.channels[0, 1]
        if mesh.rank == 0:
            works = [dist.isend(torch.tensor([float(tag)]), 1, group=group, tag=tag) for tag in (2, 1)]
            for work in works:
                work.wait()
            return []
        buffers = {tag: torch.zeros(1) for tag in (1, 2)}
        works = [dist.irecv(buffer, 0, group=group, tag=tag) for tag, buffer in buffers.items()]
        early = float(buffers[2].numpy()[0])
        works[1].wait()  # the later one: what came before it on its stream has come, too
        return [early, *(buffer.item() for buffer in buffers.values())]

    early, first, second = strict_ranks(work, PIPELINE).results[1]
    assert early != early
    assert (first, second) == (2.0, 1.0)


def test_sizes_must_match():
    def work(mesh: Mesh) -> None:
        dist.all_reduce(torch.zeros(2 + mesh.rank), group=mesh.data.group)

    with pytest.raises(StrictError, match=r"(?s)not alike.*2 × float32.*3 × float32|not alike.*3 × .*2 × "):
        strict_ranks(work, DATA)


# what rank 0 and rank 1 send to both, and what they expect of both; None: equal sizes
@pytest.mark.parametrize(
    ("sends", "expects", "fits"),
    [
        (([1, 2], [3, 4]), ([1, 3], [2, 4]), True),
        (([1, 2], [3, 4]), ([1, 3], [1, 5]), False),  # rank 1 expects less than rank 0 sends
        (([2, 2], None), ([2, 2], None), False),  # NCCL has one operation for each way to say it
    ],
)
def test_an_all_to_all_fits_between_every_two(sends, expects, fits):
    def work(mesh: Mesh) -> list[float]:
        mine, others = sends[mesh.rank], expects[mesh.rank]
        x, out = torch.arange(sum(mine or [4])) + 10.0 * mesh.rank, torch.zeros(sum(others or [4]))
        dist.all_to_all_single(out, x, others, mine, group=mesh.data.group)
        return out.tolist()

    if fits:
        assert strict_ranks(work, DATA).results == [[0, 10, 11, 12], [1, 2, 13, 14, 15, 16]]
    else:
        with pytest.raises(StrictError, match="not alike"):
            strict_ranks(work, DATA)


def test_what_has_left_the_device_cannot_be_sent():
    def work(mesh: Mesh) -> None:
        dist.all_reduce(Host().reserve(3), group=mesh.data.group)

    with pytest.raises(StrictError, match="of memory that is not the device's"):
        strict_ranks(work, DATA)


def test_a_replay_by_hand():
    """Rank 0 receives an answer that depends on what it sends."""
    there, back = Communicator("there", (0, 1)), Communicator("back", (0, 1))

    def message(rank: int, kind: str, channel: Communicator) -> Launch:
        return Launch(Operation(rank, channel, kind, torch.float32, 1, peer=1 - rank))

    connected = (
        [message(0, "send", there), message(0, "receive", back)],
        [message(1, "receive", there), message(1, "send", back)],
    )
    question, answer = message(0, "send", there), message(0, "receive", back)
    heard, reply = message(1, "receive", there), message(1, "send", back)
    replies = [heard, Wait(heard.operation), reply]
    with pytest.raises(StrictError, match=r"host: receive from rank 1 .* on back .*: first use"):
        Replay({0: [answer, question], 1: replies}).run()
    Replay({0: [*connected[0], answer, question], 1: [*connected[1], *replies]}).run()
    with pytest.raises(StrictError, match=r"rank 0, host: loads the kernel product"):
        Replay({0: [*connected[0], answer, Load("product"), question], 1: [*connected[1], *replies]}).run()
    Replay({0: [*connected[0], Load("product"), answer, question], 1: [*connected[1], *replies]}).run()
