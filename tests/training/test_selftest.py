"""`heddle selftest` passes here, however it is launched; what fails in it is told and does not end it."""

import json
import re
import sys
from pathlib import Path

import pytest

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.training import selftest, selftest_parts
from heddle.training.loop import RunOptions, train_rank
from heddle.training.selftest import Part, SelftestVerdict, read_verdict, selftest_job, selftest_rank
from heddle.training.selftest_plans import SCHEDULES
from tests.helpers.commands import call, finish, write_job
from tests.helpers.commands import start as heddle
from tests.helpers.launching import free_port, start

MECHANISMS = ["tensor", *SCHEDULES, "zero 1", "zero 2", "zero 3", "context", "offload", "int8", "fp8"]
PROVED = [f"prove {name}" for name in MECHANISMS]
LAST = ["profile", "layer", "train", "resume", "kill"]
AFTER = ["buses", *LAST]
PARTS = ["machine", "prove", *LAST]  # of one process


def verdict_in(folder: Path) -> dict:
    return json.loads((folder / "selftest/selftest.json").read_text())


@pytest.mark.dist
@pytest.mark.slow
def test_it_passes_with_processes_of_its_own(tmp_path):
    write_job(tmp_path)
    (tmp_path / "own.toml").write_text((tmp_path / "job.toml").read_text().replace("data = 1", "data = 4"))
    said = finish(heddle("selftest", "--plan", "own.toml", "--quick", cwd=tmp_path))
    found = verdict_in(tmp_path)
    assert found["passed"], said
    assert [part["name"] for part in found["parts"]] == ["machine", "prove", "your plan", *AFTER]
    (own,) = (part["words"] for part in found["parts"] if part["name"] == "your plan")
    assert "data" in own  # it had to shrink, and says so
    page = (tmp_path / "selftest/selftest.html").read_text()
    told = re.search(r'<script type="application/json" id="verdict">(.*?)</script>', page)[1]
    assert json.loads(told) == found
    assert list((tmp_path / "selftest").glob("node-*.json"))
    assert found["parts"][-1]["numbers"] == {"restart": 1, "went_on_from": 8}
    assert found["about"]["launcher"] == "heddle"
    assert len(found["about"]["devices"]) == 2
    assert {"heddle", "torch", "python", "system", "backend", "settings", "plan"} <= found["about"].keys()
    assert found["about"]["precision"] == "fp32"
    assert "Everything works. The verdict is in selftest/selftest.html." in said
    again = finish(heddle("selftest", cwd=tmp_path), code=2)
    assert "holds the verdict of an earlier self-test" in again


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_every_mechanism_that_the_processes_allow_is_proved(tmp_path, processes):
    said = finish(heddle("selftest", "--processes", str(processes), cwd=tmp_path))
    found = verdict_in(tmp_path)
    assert found["passed"], said
    assert [part["name"] for part in found["parts"]] == ["machine", "prove", *PROVED, *AFTER]


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("meeting", ["c10d", "static"])
def test_it_passes_under_two_agents_of_torchrun(tmp_path, meeting):
    port = free_port()
    agents = []
    for node in range(2):
        where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host={1 - node}"]
        if meeting == "static":
            where = ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", port]
        options = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "1", "--monitor-interval", "0.5", *where]
        command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "heddle", "selftest"]
        agents.append(start(*command, cwd=tmp_path))
    said = ["".join(agent.communicate(timeout=300)) for agent in agents]
    found = verdict_in(tmp_path)
    assert found["passed"], said
    assert found["about"]["launcher"] == "torchrun"
    assert found["parts"][-1]["numbers"] == {"restart": 1, "went_on_from": 8}
    assert sum("Everything works" in each for each in said) == 1


def test_a_part_that_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def broken(*_, **__):
        raise HeddleError("The loom is broken.")

    monkeypatch.setattr(selftest_parts, "measure_once", broken)
    assert call("selftest", "--processes", "1") == 1
    found = verdict_in(tmp_path)
    assert [part["name"] for part in found["parts"] if not part["passed"]] == ["profile"]
    assert "The loom is broken." in found["parts"][2]["words"]
    said = capsys.readouterr().out
    assert "Please send selftest/selftest.html and selftest/selftest.log" in said
    assert "The loom is broken" in Path("selftest/selftest.log").read_text()


def test_another_start_goes_on_where_the_last_one_was(tmp_path):
    done = tuple(Part(name, True, 1.0, "before") for name in PARTS[:5])
    SelftestVerdict({}, done, running="resume").write(tmp_path)
    job = selftest_job(tmp_path, 1, 1)
    for name in ("straight",):  # what the part before left
        train_rank(Mesh(), selftest.replace(job, train=selftest.replace(job.train, name=name)), RunOptions())
    verdict = selftest_rank(Mesh(), job, tmp_path)
    assert verdict.passed
    assert [part.words for part in verdict.parts[:5]] == ["before"] * 5
    assert read_verdict(tmp_path) == verdict


@pytest.mark.parametrize(
    ("world", "local", "degrees"),
    [(1, 1, (1, 1, 1)), (2, 2, (2, 1, 1)), (2, 1, (1, 2, 1)), (4, 4, (2, 2, 1)), (8, 8, (2, 2, 2)), (3, 3, (1, 1, 3))],
)
def test_the_plan_uses_every_axis_that_the_processes_allow(tmp_path, world, local, degrees):
    plan = selftest_job(tmp_path, world, local).plan
    assert (plan.tensor, plan.pipeline, plan.data) == degrees
