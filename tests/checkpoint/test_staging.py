"""Copies beside the computation. There is no GPU here: what would be asked of one is written down instead."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from heddle.checkpoint.checkpoint import Boxes, Saver
from heddle.checkpoint.staging import Prefetch, host_like
from heddle.parallel.mesh import Mesh
from heddle.runtime.device import Mark, SideStream, pick_device
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer

MODEL = ModelSpec(layers=1, hidden=16, heads=2, vocab=31, sequence=8, dropout=0.1)


def test_what_was_foreseen_is_made_beside_and_once():
    threads = []

    def make(key: int) -> int:
        threads.append((key, threading.current_thread() is threading.main_thread()))
        return 10 * key

    ahead = Prefetch(make, ahead=True)
    assert [ahead.take(key, key + 1) for key in (0, 1, 2)] == [0, 10, 20]
    assert ahead.take(7, 8) == 70  # not what was foreseen
    assert threads[:3] == [(0, True), (1, False), (2, False)]
    assert (7, True) in threads
    plain = Prefetch(make, ahead=False)
    assert [plain.take(key, key + 1) for key in (0, 1)] == [0, 10]
    assert plain.pending is None


def test_a_mistake_while_reading_ahead_is_told_when_it_is_asked_for():
    def make(key: int) -> int:
        return 1 // (1 - key)

    ahead = Prefetch(make, ahead=True)
    assert ahead.take(0, 1) == 1
    with pytest.raises(ZeroDivisionError):
        ahead.take(1, 2)


def test_reading_ahead_changes_nothing():
    job = Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=4), plan=Plan(microbatch=2))
    plain, ahead = (Trainer(job, np.arange(1000).astype("<u2") % 31) for _ in range(2))
    ahead.batches = Prefetch(ahead.batches.make, ahead=True)
    assert [plain.train_step() for _ in range(3)] == [ahead.train_step() for _ in range(3)]


class FakeEvent:
    """A moment that is only written down."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record(self) -> None:
        self.log.append("mark")


class FakeStream:
    """Writes down what it is asked to do."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def wait_event(self, event: FakeEvent) -> None:
        assert event.log is self.log
        self.log.append("wait for the mark")

    def synchronize(self) -> None:
        self.log.append("synchronize")


def test_a_gpu_copies_on_a_stream_of_its_own_behind_the_state():
    log: list[str] = []

    @contextmanager
    def on(_stream):
        log.append("enter")
        yield
        log.append("leave")

    gpu, side = torch.device("cuda", 0), SideStream()
    with (
        patch.object(torch.cuda, "Event", lambda enable_timing: FakeEvent(log)),
        patch.object(torch.cuda, "Stream", lambda _: FakeStream(log)),
        patch.object(torch.cuda, "stream", on),
        side.copying(gpu, Mark(gpu, timed=False)) as overlapped,
    ):
        log.append(f"copy {overlapped}")
    assert log == ["mark", "wait for the mark", "enter", "copy True", "leave", "synchronize"]


class Copies(TorchDispatchMode):
    """Notes where copies are made, and whether the host waits for them."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.copy_.default:
            self.log.append(f"copy {args[2]}")
        return func(*args, **(kwargs or {}))


def test_a_checkpoint_is_copied_beside_the_computation(tmp_path):
    log: list[str] = []

    @contextmanager
    def copying(device: torch.device, ready: Mark):
        log.append(f"beside {device}, behind a mark: {ready.reached()}")
        yield True
        log.append("done")

    cpu, saver = torch.device("cpu"), Saver(tmp_path, Mesh())
    saver.side.copying = copying
    state = {"w": Boxes((4,), [((0,), torch.ones(2)), ((2,), torch.zeros(2))])}
    saver._reserve(state)
    with Copies(log):
        copy = saver._stage(state, {cpu: Mark(cpu)})
    assert log == ["beside cpu, behind a mark: True", "copy True", "copy True", "done"]
    assert [values.tolist() for _, values in copy["w"].boxes] == [[1, 1], [0, 0]]


def test_host_memory_is_locked_for_gpus_only():
    asked = []
    with patch.object(torch, "empty_like", lambda _, **options: asked.append(options)):
        for device in ("cpu", "cuda"):
            host_like(type("Values", (), {"device": torch.device(device), "untyped_storage": lambda _: None})())
    assert [options["pin_memory"] for options in asked] == [False, True]
    cpu = torch.device("cpu")
    with SideStream().copying(cpu, Mark(cpu)) as overlapped:
        assert not overlapped


def test_fp32_on_a_gpu_uses_tf32():
    before = torch.get_float32_matmul_precision()
    with patch.multiple(torch.cuda, is_available=lambda: True, device_count=lambda: 1, set_device=lambda _: None):
        assert pick_device().type == "cuda"
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision(before)
