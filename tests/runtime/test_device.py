"""The one place that knows of GPUs, held against facts that a test makes up; and that it is the only one."""

import os
import re
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from heddle.errors import HeddleError
from heddle.runtime import cuda, device
from heddle.runtime.device import HostCopy, Mark
from heddle.runtime.environment import local_place
from tests.helpers.commands import REPOSITORY


def test_no_other_file_knows_of_cuda():
    known = re.compile(r"torch\.cuda|[\"']cuda[\"']|[\"']nccl[\"']")
    files = [path for path in (REPOSITORY / "heddle").rglob("*.py") if known.search(path.read_text(encoding="utf-8"))]
    assert [path.relative_to(REPOSITORY / "heddle").as_posix() for path in files] == ["runtime/device.py"]


@pytest.fixture
def gpus(monkeypatch, environment):
    """As many GPUs as a test says, and the variables of a launcher."""

    def show(count: int, **variables: str) -> None:
        environment(**variables)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)

    return show


@pytest.mark.parametrize(("count", "local", "index"), [(8, "3", 3), (1, "0", 0), (1, "3", 0)])
def test_a_process_takes_its_gpu_whether_it_sees_all_or_only_its_own(gpus, count, local, index):
    gpus(count, LOCAL_RANK=local, LOCAL_WORLD_SIZE="8")
    assert device.pick_device() == torch.device("cuda", index)
    assert device.backend() == "nccl"


def test_too_few_gpus_are_told_in_words(gpus):
    gpus(4, LOCAL_RANK="5", LOCAL_WORLD_SIZE="8", CUDA_VISIBLE_DEVICES="0,1,2,3")
    with pytest.raises(HeddleError) as error:
        device.pick_device()
    assert error.value.what == "This node has 4 GPUs for 8 processes."
    assert "process 5" in error.value.why
    assert "Start 4 processes" in error.value.hint


def test_processes_of_a_node_are_counted_as_slurm_writes_them(environment):
    environment(LOCAL_RANK="2", SLURM_STEP_TASKS_PER_NODE="8(x4)")
    assert local_place() == (2, 8)
    environment(LOCAL_WORLD_SIZE="4")
    assert local_place() == (2, 4)


def test_settings_are_made_before_cuda_starts_and_what_the_user_says_stays(gpus, monkeypatch):
    for name in [*cuda.settings(), *cuda.DEFAULTS]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.version, "cuda", None)
    device.has_gpus()
    assert cuda.settings() == {}  # a PyTorch without CUDA reads none of them
    gpus(1, NCCL_DEBUG="INFO")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda.QUEUES in os.environ)
    assert device.has_gpus()
    assert cuda.settings() == cuda.DEFAULTS | {"NCCL_DEBUG": "INFO"}


def test_the_users_environment_stands():
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "16", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
    cuda.set_defaults(environment)
    assert environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "16"
    assert "PYTORCH_ALLOC_CONF" not in environment
    cuda.set_defaults(fresh := {})
    assert fresh == cuda.DEFAULTS
    manual = (REPOSITORY / "docs/train/launching.md").read_text(encoding="utf-8")
    said = (
        manual.partition("On GPUs Heddle sets six variables")[2].partition("\n\n")[0].partition("A pipeline needs")[0]
    )
    (silenced,) = {name for name in cuda.DEFAULTS if name.endswith("_WARNING")}
    assert dict(re.findall(r"`(\w+)=(\S+)`", said)) | {silenced: "false"} == cuda.DEFAULTS
    assert len(cuda.DEFAULTS) == 6


class Event:
    """What a CUDA event shows, by hand: reached when a test says so, at the time that it says."""

    made: ClassVar[list["Event"]] = []

    def __init__(self, enable_timing: bool = False) -> None:
        self.timed, self.done, self.at, self.waited = enable_timing, False, 0.0, False
        Event.made.append(self)

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, later: "Event") -> float:
        return 1000 * (later.at - self.at)


@pytest.fixture
def events(monkeypatch):
    Event.made = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return Event.made


def test_marks_on_a_gpu_are_its_events(events):
    here = torch.device("cuda", 0)
    begun, ended = Mark(here), Mark(here)
    assert not begun.reached()
    events[0].done, events[1].at = True, 2.5
    assert begun.reached()
    assert ended.since(begun) == 2.5
    ended.wait()
    assert events[1].waited


def test_numbers_are_copied_without_waiting_and_read_after_it(events, monkeypatch):
    copied = SimpleNamespace(copy_=lambda x, non_blocking: copied.__dict__.update(source=x, async_=non_blocking))
    copied.tolist = lambda: [1.0, 2.0]
    monkeypatch.setattr(torch, "empty", lambda *_, pin_memory, **__: copied if pin_memory else None)
    numbers = HostCopy(SimpleNamespace(device=torch.device("cuda", 0), shape=(2,), dtype=torch.float64))
    assert copied.async_
    assert not events[0].waited
    assert numbers.read() == [1.0, 2.0]
    assert events[0].waited


def test_on_a_cpu_all_is_done_at_once():
    here = torch.device("cpu")
    begun = Mark(here)
    assert begun.reached()
    assert Mark(here).since(begun) >= 0
    assert HostCopy(torch.tensor([1.0, 2.0])).read() == [1.0, 2.0]
