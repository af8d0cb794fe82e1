"""Files are read by the trainers' own code, where that is installed."""

import json
import sys

import pytest

from heddle.trainers.registry import exported_plan
from tests.trainers.cases import JOBS


@pytest.mark.parametrize("name", JOBS)
def test_accelerate_reads_its_files(name, tmp_path):
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    path = tmp_path / "accelerate.yaml"
    path.write_text(exported_plan(JOBS[name](), "accelerate").text)
    found = config_args.load_config_from_file(str(path))
    assert found.num_processes == JOBS[name]().plan.world
    launch = pytest.importorskip("accelerate.commands.launch")
    known = {action.dest for action in launch.launch_command_parser()._actions}
    words = {**found.fsdp_config, **found.megatron_lm_config, **found.parallelism_config}
    assert {*words} <= known


@pytest.mark.parametrize("name", JOBS)
def test_torchtitan_reads_its_files(name, tmp_path, monkeypatch):
    config = pytest.importorskip("torchtitan.config", exc_type=ImportError)
    if not hasattr(config, "JobConfig"):
        pytest.skip("this torchtitan takes no files")
    path = tmp_path / "torchtitan.toml"
    made = JOBS[name]()
    path.write_text(exported_plan(made, "torchtitan").text)
    monkeypatch.setattr(sys, "argv", ["train"])
    found = config.ConfigManager().parse_args(["--job.config-file", str(path)])
    assert found.parallelism.tensor_parallel_degree == made.plan.tensor
    assert found.training.global_batch_size == made.train.global_batch


@pytest.mark.parametrize("name", JOBS)
def test_deepspeed_reads_its_files(name, monkeypatch):
    config = pytest.importorskip("deepspeed.runtime.config", exc_type=ImportError)
    monkeypatch.setattr(config.dist, "get_rank", lambda: 0)  # else it takes itself to be alone
    made = JOBS[name]()
    document = json.loads(exported_plan(made, "deepspeed").text)
    found = config.DeepSpeedConfig(document, mpu=_Ranks(made.plan.data))
    assert found.zero_optimization_stage == (made.plan.zero if made.plan.replicas > 1 else 0)
    assert found.train_batch_size == made.train.global_batch


class _Ranks:
    """As much of a model-parallel unit as the configuration asks for."""

    def __init__(self, data):
        self.data = data

    def get_data_parallel_world_size(self):
        return self.data
