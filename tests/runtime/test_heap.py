"""A process that trains does not grow by holes in its heap."""

import ctypes

import pytest
import torch

from heddle.format import MIB
from heddle.parallel.mesh import Mesh
from heddle.runtime import heap
from heddle.runtime.device import memory_in_use
from heddle.runtime.heap import Heap
from heddle.spec.job import load_job
from heddle.training.loop import train_rank
from heddle.training.opening import RunOptions
from tests.helpers.commands import steps_of, write_job

pytestmark = pytest.mark.skipif(heap._malloc_trim() is None, reason="the C library is not glibc")

BLOCK = 100_000  # bytes: too little for pages of its own
KEPT = 5_000  # bytes: too many for most holes that are there already
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]


def make_holes(size: float) -> list[int]:
    """Free blocks that are so many bytes together, each before one that stays: these are given."""
    freed, kept = [], []
    for _ in range(int(size / BLOCK)):
        freed.append(libc.malloc(BLOCK))
        ctypes.memset(freed[-1], 1, BLOCK)
        kept.append(libc.malloc(KEPT))
    for block in freed:
        libc.free(block)
    return kept


def test_holes_go_back_to_the_system_once_they_are_a_quarter():
    watched, before = Heap(torch.device("cpu")), memory_in_use()
    watched.after_step()
    kept = make_holes(0.5 * before)
    grown = memory_in_use()
    assert grown > 1.3 * before, "the heap of this system has no holes"
    watched.after_step()
    assert memory_in_use() < before + 0.5 * (grown - before)
    for block in kept:
        libc.free(block)


def test_little_growth_is_left_alone(monkeypatch):
    trimmed = []
    watched = Heap(torch.device("cpu"))
    watched.trim = trimmed.append
    for size in (1000, 1010, 1240, 1100, 1260, 1240, 1241):
        monkeypatch.setattr(heap, "memory_in_use", lambda size=size: size * MIB)
        watched.after_step()
    assert len(trimmed) == 1  # at 1260; then 1240 is usual


def test_a_run_does_not_keep_the_holes_of_its_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = load_job(write_job(tmp_path))
    kept, size = [], 0.5 * memory_in_use()

    def after_step(step):
        if step == 1:
            kept.extend(make_holes(size))

    train_rank(Mesh(), job, RunOptions(), after_step=after_step)
    held = [row["memory_gib"] for row in steps_of(tmp_path / "runs/small")]
    assert len(held) == 6
    assert max(held[1:3]) > 1.4 * held[0], "the heap of this system has no holes"
    assert held[-1] < 1.25 * held[0]
    for block in kept:
        libc.free(block)
