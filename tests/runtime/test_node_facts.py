"""What is said of a node before its GPUs talk: facts as commands and the system tell them, and what is wrong there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heddle.runtime import node_facts as module
from heddle.runtime.node_facts import GIB, UNLIMITED, compared, findings, node_facts

GPU = {"index": "0", "uuid": "GPU-1", "name": "NVIDIA H100 80GB HBM3", "driver_version": "580.65"}
GOOD: dict[str, Any] = {
    "node": "n1",
    "versions": {"heddle": "1", "torch": "2.13"},
    "built_for": "CUDA 13.0",
    "usable": 2,
    "gpus": [GPU, GPU | {"index": "1", "uuid": "GPU-2"}],
    "xid": [],
    "adapters": [
        {"name": "mlx5_0", "port": "1", "state": "4: ACTIVE", "rate": "400 Gb/sec", "link_layer": "InfiniBand"}
    ],
    "shared_memory": 64 * GIB,
    "locked_memory": UNLIMITED,
    "open_files": 1 << 20,
}


def wrong(facts: dict) -> list[str]:
    return [each.name for each in findings(facts) if not each.good]


def test_a_good_node_is_good():
    assert wrong(GOOD) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"shared_memory": 64 << 20}, "/dev/shm"),
        ({"open_files": 1024}, "open files"),
        ({"locked_memory": 64 << 10}, "locked memory"),
        ({"adapters": [GOOD["adapters"][0] | {"state": "1: DOWN"}]}, "network adapters"),
        ({"xid": ["NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus."]}, "Xid errors"),
        ({"usable": 0, "built_for": "no CUDA"}, "driver"),
        ({"gpus": [GPU | {"ecc.errors.uncorrected.volatile.total": "2"}]}, "GPU 0"),
        ({"gpus": [GPU | {"remapped_rows.failure": "Yes"}]}, "GPU 0"),
        ({"gpus": [GPU | {"remapped_rows.pending": "Yes"}]}, "GPU 0"),
        ({"gpus": [GPU | {"clocks_event_reasons.hw_slowdown": "Active"}]}, "GPU 0"),
        ({"gpus": [GPU | {"pcie.link.width.current": "8", "pcie.link.width.max": "16"}]}, "GPU 0"),
    ],
)
def test_each_fault_is_named_with_what_to_do(change, name):
    (found,) = (each for each in findings(GOOD | change) if not each.good)
    assert found.name == name
    assert found.words
    assert found.hint


@pytest.mark.parametrize(
    ("other", "clock", "names"),
    [
        ({}, 0.001, []),
        ({}, 3.0, ["clocks"]),
        ({"versions": GOOD["versions"] | {"torch": "2.12"}}, 0.0, ["versions of torch"]),
        ({"gpus": [GPU | {"driver_version": "535.1"}]}, 0.0, ["drivers"]),
        ({"gpus": [GPU | {"name": "NVIDIA A100"}]}, 0.0, ["kinds of GPUs"]),
    ],
)
def test_nodes_that_differ_are_told(other, clock, names):
    found = compared([GOOD, GOOD | other], [100.0, 100.0 + clock])
    assert [each.name for each in found if not each.good] == names


NVIDIA = """#!/bin/sh
case "$*" in
*index,uuid*) printf '0, GPU-1, NVIDIA H100, 580.1, 81559\\n1, GPU-2, NVIDIA H100, 580.1, 81559\\n';;
*ecc.errors*) printf '0\\n3\\n';;
*remapped-rows*) printf 'GPU-1, No, No\\nGPU-2, No, Yes\\n';;
*topo*) echo 'GPU0 X NV18';;
*nvlink*) echo '  Link 0: 26.562 GB/s';;
*) exit 2;;
esac
"""


def test_facts_are_what_the_commands_say(tmp_path, monkeypatch):
    commands, port = tmp_path / "bin", tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    commands.mkdir()
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    for name, text in {"nvidia-smi": NVIDIA, "dmesg": "#!/bin/sh\necho 'NVRM: Xid (PCI): 63'\n"}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    facts = node_facts(adapters=tmp_path / "infiniband")
    assert json.loads(json.dumps(facts)) == facts
    assert [gpu["uuid"] for gpu in facts["gpus"]] == ["GPU-1", "GPU-2"]
    assert facts["gpus"][1]["remapped_rows.failure"] == "Yes"
    assert facts["topology"].startswith("GPU0")
    assert facts["nvlink"] == ["26.562 GB/s"]
    assert facts["adapters"][0]["rate"] == "400 Gb/sec (4X NDR)"
    assert {"GPU 1", "Xid errors", "driver"} <= set(wrong(facts))


def test_facts_of_this_machine_need_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    facts = node_facts(adapters=Path("nowhere"))
    assert facts["gpus"] == facts["adapters"] == []
    assert [each.name for each in findings(facts)] == ["/dev/shm", "open files"]
    assert Path("/dev/shm") == module.SHARED
