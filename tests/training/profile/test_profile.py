"""Measuring this machine: a file that predictions take, from one process and from several."""

import json

import pytest
import torch

from heddle.cost.measured.local_machine import DISTURBED
from heddle.spec.shorthand import cluster_from_table
from heddle.training.profile.kernels import worth_it
from heddle.training.profile.profile import machine
from tests.helpers.commands import call, heddle, write_job

MEASURED = ("matmul", "half_dim", "attention", "memory", "launch_us", "gelu_ns")


def read(path):
    return cluster_from_table({"file": str(path)})


def test_one_process_gives_a_cluster_that_simulate_takes(tmp_path, capsys):
    job = write_job(tmp_path)
    assert call("profile", "-o", tmp_path / "this.toml", "--processes", "1", "--quick") == 0
    found = read(tmp_path / "this.toml")
    assert (found.world, found.links, found.cores) == (1, (), None)
    assert found.device.tflops.fp32 > 0
    assert found.device.memory_gbs > 0
    assert "heddle profile with 1 process running" in found.efficiency.source
    capsys.readouterr()
    assert call("simulate", job, "--set", f"cluster.file={tmp_path / 'this.toml'}", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step_seconds"] > 0


@pytest.mark.dist
@pytest.mark.slow
def test_three_processes_measure_messages(tmp_path):
    said = heddle("profile", "-o", "this.toml", "--processes", "3", "--quick", "--json", cwd=tmp_path)
    table, found = json.loads(said), read(tmp_path / "this.toml")
    assert table["devices"] == found.world == 3
    (link,) = found.links
    assert link.gbs > 0
    assert all(getattr(found.efficiency, name) == table["efficiency"][name] for name in MEASURED)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has its own cores")
def test_more_processes_than_cores_share_them(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert machine(2).cores is None
    four = machine(4)
    assert (four.devices, four.cores, four.device.host) == (4, 2, True)
    assert four.device.memory_gib == pytest.approx(machine(2).device.memory_gib / 2)


def test_full_precision_is_always_worth_it():
    assert worth_it(torch.device("cpu"))[0] == "fp32"


def test_a_folder_that_is_not_there_is_told_before_measuring(tmp_path, capsys):
    assert call("profile", "-o", tmp_path / "nowhere" / "this.toml") == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_machine_that_nobody_profiled_gets_a_quick_look(tmp_path, capsys):
    assert call("simulate", write_job(tmp_path)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "`heddle profile` is more accurate" in said or DISTURBED in said  # by whatever else this machine does
