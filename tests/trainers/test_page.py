"""The manual's page on other trainers: what it shows works."""

from heddle.cli.exchange.trainers import EXPORTED
from heddle.planning.best import best
from heddle.planning.request import PlanRequest
from heddle.spec.shorthand import named_cluster
from heddle.trainers.registry import exported_plan, imported_settings
from tests.helpers.commands import REPOSITORY, blocks, run_commands
from tests.trainers.test_import import GPT3

PAGE = REPOSITORY / "docs" / "decide" / "other-trainers.md"


def test_its_commands_write_a_file_for_every_trainer(tmp_path):
    (tmp_path / "job.toml").write_text('[model]\npreset = "tiny"\n[cluster]\npreset = "dgx-h100"\n')
    ran = run_commands(PAGE, tmp_path)
    assert [command.split()[2] for command in ran if "export" in command] == list(EXPORTED)
    assert len(list(tmp_path.iterdir())) == 2 + len(EXPORTED)


def test_its_python_works():
    (code,) = blocks(PAGE, "python")
    exec(code, {})


def test_the_plans_that_it_names_are_found():
    made = imported_settings("megatron", GPT3).job(cluster=named_cluster("dgx-a100-80gb"), nodes=64)
    words = " ".join(PAGE.read_text(encoding="utf-8").split())
    now = made.plan
    assert f"| `now` | tensor {now.tensor} × pipeline {now.pipeline} × data {now.data}," in words
    found = best(made, PlanRequest(by_layer=False, top=20))
    better = next(each.plan for each in found.plans if not exported_plan(each.job, "megatron").plan_missing)
    assert (
        f"| `better` | tensor {better.tensor} × pipeline {better.pipeline} × data {better.data}, with sequence" in words
    )
    assert better.sequence
    assert (better.virtual > 1, better.zero) == (True, 1)
