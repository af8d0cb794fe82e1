"""Tiers: what is put away comes back bit by bit, takes no more room than it needs, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

import heddle.runtime.tiers.host
from heddle.errors import HeddleError
from heddle.runtime.device import CopyStream, Mark
from heddle.runtime.tiers import Disk, Host, Tier, tier_of
from heddle.runtime.tiers.disk import BLOCK


@pytest.fixture(params=["host", "disk"])
def tier(request, tmp_path) -> Tier:
    return Host() if request.param == "host" else Disk(tmp_path)


def noise(size: int) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8)


def test_what_is_put_away_comes_back(tier):
    values = [noise(size) for size in (1, 4095, 4096, 100_000)]
    slots = [tier.put(value) for value in values]
    for slot in slots:
        slot.wait()
    for slot in slots[::2]:
        tier.prefetch(slot)
    for value, slot in zip(values, slots, strict=True):
        assert torch.equal(tier.take(slot), value)
        assert tier.take(slot) is tier.take(slot), "several views share what was read once"


class LoggedStream:
    """Writes down what a GPU's stream is asked for."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: LoggedStream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, _event: object) -> None:
        self.log.append(f"{self.name} waits for the copy")

    def synchronize(self) -> None:
        self.log.append("the host waits")


def marked(event: object) -> Mark:
    """As a GPU's."""
    mark = Mark(torch.device("cpu"))
    mark.event = event
    return mark


def test_a_gpu_waits_for_its_copies_and_its_host_does_not():
    """Beside a GPU a layer's end only tells the device's stream to wait; until then the memory is held."""
    log: list[str] = []
    compute, copies, returns = (LoggedStream(name, log) for name in ("compute", "copies", "returns"))
    made = iter((copies, returns))
    tier, value = Host(), noise(5000)
    tier.spare[8192].append(torch.zeros(8192, dtype=torch.uint8))
    event = SimpleNamespace(record=lambda: None, synchronize=copies.synchronize)
    with (
        patch.object(torch.cuda, "Stream", lambda: next(made)),
        patch.object(torch.cuda, "current_stream", lambda _: compute),
        patch.object(torch.cuda, "stream", lambda _: nullcontext()),
        patch.object(heddle.runtime.tiers.host, "on_gpu", lambda _: True),
        patch.object(torch.Tensor, "record_stream", lambda _, s: log.append(f"the memory is held for {s.name}")),
        patch.object(heddle.runtime.tiers.host, "Mark", lambda _, timed: marked(event)),
    ):
        tier.copies, tier.returns = CopyStream(), CopyStream()
        slot = tier.put(value)
        assert log == ["copies waits for compute"]
        left, kept = weakref.ref(value), value.clone()
        del value
        assert left() is not None
        slot.wait()
        assert left() is None
        assert torch.equal(tier.take(slot), kept)
    assert log[1:] == [
        "compute waits for the copy",
        "returns waits for compute",
        "returns waits for the copy",
        "the memory is held for returns",
        "compute waits for the copy",
    ]


def test_room_is_used_again(tmp_path):
    disk = Disk(tmp_path)
    for _ in range(10):
        slots = [disk.put(noise(10_000)) for _ in range(3)]
        for slot in slots:
            slot.wait()
        del slots, slot
    assert disk.end == 3 * 12_288


def test_what_has_its_home_there_is_zero_at_first_and_keeps_what_is_written(tier):
    home = tier.reserve(5000)
    assert home.dtype == torch.float32
    assert not home.any()
    home += torch.arange(5000)
    tier.leave(home)
    tier.expect(home)
    assert torch.equal(home, torch.arange(5000.0))
    assert tier_of(home) is tier_of(home[3:7]) is tier
    assert tier_of(torch.zeros(3)) is None


def test_all_that_is_reserved_takes_few_descriptors_and_no_more_room_than_it_needs(tmp_path):
    """A large model has thousands of tensors, and most systems allow a process 1,024 descriptors."""
    descriptors = Path("/proc/self/fd")
    disk, before = Disk(tmp_path), len(list(descriptors.iterdir()))
    homes = [disk.reserve(3000) for _ in range(300)]
    for number, home in enumerate(homes):
        home.fill_(number)
        disk.leave(home)
    large = disk.reserve(BLOCK // 4 + 1)  # more than what is mapped at once
    assert len(list(descriptors.iterdir())) - before <= 3
    assert all((home == number).all() for number, home in enumerate(homes))
    assert os.fstat(disk.file).st_blocks * 512 < 1.01 * (300 * 12_288 + large.nbytes)


def test_the_file_has_no_name(tmp_path):
    """So that nothing is left of it whoever is killed."""
    disk = Disk(tmp_path)
    slot = disk.put(noise(10_000))
    home = disk.reserve(1000)
    slot.wait()
    home.fill_(1)
    assert not list(tmp_path.iterdir())
    assert os.fstat(disk.file).st_nlink == 0


def test_a_failed_read_is_told(tmp_path):
    disk = Disk(tmp_path)
    slot = disk.put(noise(10_000))
    slot.wait()
    os.ftruncate(disk.file, 100)
    with pytest.raises(HeddleError) as caught:
        disk.take(slot)
    assert "could not give activations back" in caught.value.what
    assert "ends too early" in caught.value.why
    assert "last checkpoint is untouched" in caught.value.hint


def test_a_failed_write_is_told(tmp_path):
    disk = Disk(tmp_path)
    disk.put(noise(100)).wait()
    kept, disk.file = disk.file, os.open("/dev/null", os.O_RDONLY)
    slot = disk.put(noise(100))
    with pytest.raises(HeddleError, match="could not take"):
        slot.wait()
    os.close(disk.file)
    disk.file = kept


FULL = """
import torch
from heddle.runtime.tiers import Disk
disk = Disk({folder!r})
disk.reserve(1000)
try:
    disk.reserve(1_000_000)
except Exception as error:
    print(type(error).__name__, error.what, error.why)
"""


def test_a_full_disk_is_found_out_before_anything_is_lost(tmp_path):
    """Not when a page is written, which would be the end of the process without a word."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    code = FULL.format(folder=str(tmp_path))
    told = subprocess.run([sys.executable, "-c", code], preexec_fn=limit, capture_output=True, text=True, timeout=60)
    assert told.stdout.startswith("HeddleError The file that offload uses in"), told
    assert "too large" in told.stdout


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(HeddleError, match="could not take what leaves the device") as caught:
        Disk(tmp_path / "nowhere").reserve(10)
    assert "train.offload_folder" in caught.value.hint
    assert not (Path(tmp_path) / "nowhere").exists()
