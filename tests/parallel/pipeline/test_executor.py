"""The executor: any schedule gives the gradients of plain autograd, and holds no more than it must."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from heddle.models import Microbatch
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.pipeline.executor import forward_only
from heddle.parallel.pipeline.inbox import AHEAD, Inbox, most_under_way, receives_ahead
from heddle.parallel.pipeline.transformer import MicrobatchInput, Pipeline, Shape
from heddle.parallel.tensor.deferred import DeferredGradients
from heddle.parallel.tensor.linear import ColumnParallelLinear
from heddle.runtime.recorder import NoRecorder
from heddle.schedule import Action, Kind, build, outgoing, rule_of, verify
from heddle.spec import Plan

pytestmark = pytest.mark.dist

TOKENS, HIDDEN = 4, 6
CPU = torch.device("cpu")


class Chunk(nn.Module):
    """Something that does not commute with the next one. The first chunk gets token ids."""

    def __init__(self, number: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(number)
        linear = nn.Linear(HIDDEN, HIDDEN)
        linear.weight = nn.Parameter(torch.randn(HIDDEN, HIDDEN, generator=generator) / 2)
        linear.bias = nn.Parameter(torch.randn(HIDDEN, generator=generator))
        self.linear = ColumnParallelLinear(linear, Axis(), sequence=False)
        self.table = nn.Parameter(torch.randn(TOKENS, HIDDEN, generator=generator)) if number == 0 else None
        self.wait = 0.0

    def forward(self, x: Tensor, batch: Microbatch) -> Tensor:
        time.sleep(self.wait)
        y = torch.tanh(self.linear(x if self.table is None else self.table[x]))
        return y if batch.targets is None else loss_of(y, batch.targets)


def loss_of(y: Tensor, targets: Tensor) -> Tensor:
    return ((y - targets[:, None]) ** 2).mean()


class Counting(Pipeline):
    """Notes how many sent tensors and open receives it holds at most."""

    peak_sent = peak_posted = 0

    def _send(self, *arguments: object) -> None:
        super()._send(*arguments)  # type: ignore[arg-type]
        self.peak_sent = max(self.peak_sent, len(self.sent))
        self.peak_posted = max([self.peak_posted, *(len(inbox.posted) for inbox in self.inboxes.values())])


class Told:
    """A listener that writes down how many microbatches it hears of, and counts the gradients that come."""

    def __init__(self, chunks: dict[int, Chunk]) -> None:
        self.heard: list[int] = []
        self.done = dict.fromkeys(chunks, 0)
        for number, chunk in chunks.items():
            chunk.linear.weight.register_post_accumulate_grad_hook(lambda _, number=number: self._count(number))

    def _count(self, number: int) -> None:
        self.done[number] += 1

    def expect(self, microbatches: int) -> None:
        self.heard.append(microbatches)


def works_of(microbatches: int) -> list[MicrobatchInput]:
    generator = torch.Generator().manual_seed(7)
    batch = Microbatch(sequence=TOKENS)
    return [
        MicrobatchInput(torch.randperm(TOKENS, generator=generator), torch.randn(TOKENS, generator=generator), batch)
        for _ in range(microbatches)
    ]


def executor(mesh: Mesh, name: str, microbatches: int, virtual: int) -> tuple[Counting, dict[int, Chunk]]:
    schedule = build(name, mesh.pipeline.size, microbatches, virtual)
    verify(schedule)
    chunks = {number: Chunk(number) for number in schedule.chunks_of(mesh.pipeline.rank)}
    shape, deferred = Shape(TOKENS, HIDDEN, torch.float32, CPU, sliced=False), DeferredGradients()
    for chunk in chunks.values():
        chunk.linear.deferred = deferred
    return Counting(schedule, chunks, mesh, shape, NoRecorder(), deferred), chunks


def plain(chunks: int, microbatches: int, scale: float) -> tuple[float, dict[int, Chunk]]:
    """The loss, and the model with its gradients, by autograd alone."""
    model = [Chunk(number) for number in range(chunks)]
    losses = []
    for work in works_of(microbatches):
        x = work.ids
        for chunk in model:
            x = chunk(x, work.batch)
        losses.append(loss_of(x, work.targets))
    loss = torch.stack(losses).mean()
    (scale * loss).backward()
    return loss.item(), dict(enumerate(model))


def run(mesh: Mesh, name: str, microbatches: int, virtual: int, slow: int | None = None) -> None:
    pipeline, chunks = executor(mesh, name, microbatches, virtual)
    expected, reference = plain(pipeline.schedule.chunks, microbatches, scale=0.5)
    if slow is not None and mesh.pipeline.rank == slow:
        for chunk in chunks.values():
            chunk.wait = 0.003
    listener = Told(chunks)
    for _ in range(2):  # the second step must not find anything of the first
        loss = pipeline.run(works_of(microbatches), 0.5, listener)
        last = mesh.pipeline.rank == pipeline.schedule.rank_of(pipeline.schedule.chunks - 1)
        assert float(loss) == pytest.approx(expected if last else 0.0, rel=1e-6)
        for number, chunk in chunks.items():
            for ours, theirs in zip(chunk.parameters(), reference[number].parameters(), strict=True):
                torch.testing.assert_close(ours.grad, theirs.grad)
                ours.grad = None
        assert not pipeline.sent
        assert not any(inbox.posted or inbox.expected for inbox in pipeline.inboxes.values())
        assert not pipeline.handed
    assert listener.heard == [microbatches] * 2
    assert set(listener.done.values()) == {2 * microbatches}


@pytest.mark.parametrize("microbatches", [1, 3, 4, 7])
@pytest.mark.parametrize(
    ("name", "pipeline", "virtual"),
    [
        ("gpipe", 2, 1),
        ("gpipe", 2, 3),
        ("1f1b", 2, 1),
        ("1f1b", 4, 1),
        ("deep-1f1b", 3, 1),
        ("interleaved", 2, 2),
        ("interleaved", 2, 3),
        ("interleaved", 3, 2),
        ("zb-h1", 3, 1),
        ("zb-h2", 3, 1),
        ("zb-v", 2, 2),
        ("zb-v", 3, 2),
        ("dualpipev", 3, 2),
    ],
)
def test_gradients_are_those_of_plain_autograd(world, name, pipeline, virtual, microbatches):
    microbatches = max(microbatches, rule_of(name).least_microbatches(pipeline))
    world.run(run, Plan(pipeline=pipeline, virtual=virtual, schedule=name), name, microbatches, virtual)


@pytest.mark.parametrize("slow", [0, 1])
def test_a_slow_stage_changes_nothing(world, slow):
    """Messages pile up before or behind it, and still none is taken for another."""
    world.run(run, Plan(pipeline=2, virtual=2, schedule="interleaved"), "interleaved", 5, 2, slow)


def test_tensor_ranks_send_slices(world):
    """Each tensor rank sends its slice of the tokens, and the receivers put them together again."""
    world.run(run, Plan(tensor=2, pipeline=2), "1f1b", 3, 1)


def test_one_rank_needs_no_messages(world):
    world.run(run, Plan(), "gpipe", 3, 1)


def peaks(mesh: Mesh, name: str, microbatches: int, virtual: int) -> tuple[int, int]:
    pipeline, _ = executor(mesh, name, microbatches, virtual)
    pipeline.run(works_of(microbatches))
    return pipeline.peak_sent, pipeline.peak_posted


@pytest.mark.parametrize(("name", "pipeline", "virtual"), [("1f1b", 4, 1), ("interleaved", 2, 2)])
def test_what_was_sent_is_let_go(world, name, pipeline, virtual):
    """However many microbatches a step has, no more is held than can be on its way."""
    plan = Plan(pipeline=pipeline, virtual=virtual, schedule=name)
    few = world.run(peaks, plan, name, 8, virtual)
    many = world.run(peaks, plan, name, 48, virtual)
    for (sent, _), (sent_of_many, posted) in zip(few, many, strict=True):
        assert sent_of_many <= sent < 8 * virtual
        assert posted <= AHEAD
    assert max(sent for sent, _ in few) <= 2 * verify(build(name, pipeline, 8, virtual)).peak_stash[0]


def test_all_that_a_deep_schedule_sends_ahead_is_expected():
    hops = [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)]
    for microbatches in (8, 48, 100):
        deep, gpipe, usual = (build(name, 4, microbatches, 1) for name in ("deep-1f1b", "gpipe", "1f1b"))
        assert [receives_ahead(gpipe, *hop) for hop in hops] == [min(64, microbatches)] * 6
        assert [receives_ahead(deep, *hop) for hop in hops] == [most_under_way(deep, *hop) for hop in hops]
        assert [receives_ahead(usual, *hop) for hop in hops] == [AHEAD] * 6


def evaluate(mesh: Mesh) -> float:
    pipeline, chunks = executor(mesh, "interleaved", 5, 2)
    shape = Shape(TOKENS, HIDDEN, torch.float32, CPU, sliced=False)
    evaluation = Pipeline(forward_only(pipeline.schedule), chunks, mesh, shape, NoRecorder())
    with torch.no_grad():
        loss = evaluation.run(works_of(5))
    assert all(parameter.grad is None for chunk in chunks.values() for parameter in chunk.parameters())
    return float(loss)


def test_forwards_alone_give_the_loss(world):
    _, loss = world.run(evaluate, Plan(pipeline=2))
    assert loss == pytest.approx(plain(4, 5, 1.0)[0], rel=1e-6)


def exchange(mesh: Mesh) -> list[float]:
    """Receive what rank 0 sent in another order than it was sent."""
    schedule = build("gpipe", 2, 4)
    messages = [outgoing(schedule, Action(Kind.FORWARD, 0, i)) for i in range(4)]
    group = mesh.channels[0, 1]
    if mesh.rank == 0:
        tensors = [torch.full((1,), float(message.microbatch)) for message in messages]
        for sending in [dist.isend(t, 1, group=group, tag=m.tag) for t, m in zip(tensors, messages, strict=True)]:
            sending.wait()
        return []
    inbox = Inbox(messages, group, 0, lambda _: torch.empty(1))
    return [inbox.take(messages[i]).item() for i in (2, 0, 3, 1)]


def test_messages_are_found_by_what_they_are(world):
    assert world.run(exchange, Plan(pipeline=2))[1] == [2.0, 0.0, 3.0, 1.0]
