"""Training on Ray: two nodes of a real cluster on one machine, the losses of `heddle train`, a worker that dies."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

import heddle
from heddle.errors import HeddleError
from tests.helpers.commands import heddle as command
from tests.helpers.commands import losses, write_job
from tests.helpers.launching import wait_until

ray = pytest.importorskip("ray", reason="heddle.ray trains on Ray's clusters")
pytestmark = [pytest.mark.slow, pytest.mark.dist, pytest.mark.filterwarnings("ignore")]

CHANGES = {"plan.data": "2", "plan.zero": "1", "train.steps": "200", "train.save_every": "5"}


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    before = os.environ.get("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    path = str(Path(heddle.__file__).parents[1])
    ray.init(address=made.address, runtime_env={"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}})
    yield made
    ray.shutdown()
    made.shutdown()
    if before is None:
        del os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"]


def job(folder: Path, name: str, **more: str):
    from heddle.spec.changes import load_with_changes

    changes = [f"{key}={value}" for key, value in (CHANGES | more).items()]
    return load_with_changes(folder / "job.toml", changes, name)


def test_two_nodes_give_the_losses_of_heddle_train_though_a_worker_is_killed(cluster, tmp_path):
    write_job(tmp_path)
    words = [word for key, value in CHANGES.items() for word in ("--set", f"{key}={value}")]
    command("train", "job.toml", "--name", "whole", *words, cwd=tmp_path)
    whole = losses(tmp_path / "runs" / "whole")

    result = heddle.ray.train(job(tmp_path, "straight"), num_workers=2)
    assert (result.step, result.first_step) == (200, 0)
    assert losses(tmp_path / "runs" / "straight") == whole

    run = tmp_path / "runs" / "killed"

    def kill() -> None:
        wait_until(lambda: list(run.glob("checkpoints/step-*")), "no checkpoint was written")
        pid = json.loads((run / "processes" / "rank-00001.json").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    result = heddle.ray.train(job(tmp_path, "killed"), num_workers=2)
    killer.join()
    assert result.step == 200
    assert result.first_step > 0
    assert losses(run) == whole


def test_mistakes_are_told_as_everywhere(cluster, tmp_path):
    write_job(tmp_path)
    with pytest.raises(HeddleError, match="num_workers = 3, but the plan needs"):
        heddle.ray.train(job(tmp_path, "x"), num_workers=3)
    with pytest.raises(HeddleError, match="has room for 2 of 4 workers"):
        heddle.ray.train(job(tmp_path, "x", **{"plan.data": "4"}), patience=0.1)
    (tmp_path / "runs" / "there").mkdir(parents=True)
    (tmp_path / "runs" / "there" / "job.toml").write_text("")
    with pytest.raises(HeddleError, match="exists already"):
        heddle.ray.train(job(tmp_path, "there"))


def test_a_job_without_a_plan_is_planned_for_its_workers(cluster, tmp_path):
    write_job(tmp_path)
    text = (tmp_path / "job.toml").read_text()
    (tmp_path / "job.toml").write_text(text.replace(text[text.index("[plan]") : text.index("[train]")], ""))
    result = heddle.ray.train(tmp_path / "job.toml", num_workers=2)
    assert result.step == 6


def test_a_lost_node_leaves_the_run_going_on_with_the_other(cluster, tmp_path):
    write_job(tmp_path)
    run = tmp_path / "runs" / "fewer"
    extra = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def lose() -> None:
        wait_until(lambda: list(run.glob("checkpoints/step-*")), "no checkpoint was written")
        cluster.remove_node(extra, allow_graceful=False)

    loser = threading.Thread(target=lose)
    loser.start()
    result = heddle.ray.train(job(tmp_path, "fewer", **{"plan.data": "4"}), patience=20.0)
    loser.join()
    assert result.step == 200
    assert result.first_step > 0
    assert (run / "given-plan.json").is_file()
