"""Runs of one's own modules: resumed under other plans, tried without memory, never made of code that weights bring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from heddle.checkpoint.checkpoint import Saver
from heddle.checkpoint.contents import contents_of
from heddle.checkpoint.exchange.convert import export_huggingface
from heddle.checkpoint.source import find_source
from heddle.cli.decide.job_paths import moved
from heddle.data import samples_of
from heddle.errors import HeddleError
from heddle.models.own.build import build
from heddle.models.own.files import OwnBatch, read_file
from heddle.models.own.initial import InitialWeights
from heddle.parallel.mesh import Mesh
from heddle.planning.best import with_best_plan
from heddle.simulating.simulation import simulate
from heddle.spec import Job, Plan
from heddle.spec.job import dumps_job, job_from_tables, load_job
from heddle.spec.own import OwnModel
from heddle.spec.tune import Lora, Tune
from heddle.training.dry_run.dry_run import dry_run
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.choose import make_trainer
from tests.helpers.commands import REPOSITORY
from tests.helpers.world import World
from tests.models.own.files import job, write
from tests.strict.run import strict_run

WHOLE = Plan(microbatch=4)


def train(mesh: Mesh, tried: Job, steps: int, start: Path | None = None, save: Path | None = None) -> list[float]:
    trainer = make_trainer(tried, synthetic_tokens(tried), mesh)
    if start is not None:
        trainer.load(start)
    losses = [trainer.train_step().loss for _ in range(steps)]
    if save is not None:
        saver = Saver(save, mesh, 1)
        trainer.save(saver)
        saver.wait()
    losses.append(trainer.evaluate(synthetic_tokens(tried)) or 0.0)
    return losses


@pytest.mark.dist
@pytest.mark.slow
def test_a_run_goes_on_under_another_plan(world: World, tmp_path):
    tried = job(write(tmp_path, "research"), WHOLE)
    through = train(Mesh(), tried, 4)
    first, second = Plan(tensor=2, pipeline=2, microbatch=2, stages=(2, 3)), Plan(data=2, zero=3, microbatch=1)
    saved = tmp_path / "checkpoints"
    before = world.run(train, first, replace(tried, plan=first), 2, None, saved)[0]
    (checkpoint,) = saved.glob("step-*")
    after = world.run(train, second, replace(tried, plan=second), 2, checkpoint)[0]
    assert [*before[:2], *after] == pytest.approx(through, rel=1e-5)
    held = {tensor.name for tensor in contents_of(checkpoint).tensors}
    assert {"words.weight", "body.stack.4.o.bias", "words.weight:exp_avg"} <= held  # the module's own names
    export_huggingface(find_source(checkpoint, Mesh(), print), tmp_path / "out", None, 1 << 30)
    module = read_file(tried.model.module).make()  # type: ignore[attr-defined]
    loaded = module.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=False)
    assert not loaded.unexpected_keys
    assert loaded.missing_keys == []


def test_published_weights_are_read_by_the_modules_own_names(tmp_path):
    address = write(tmp_path, "opt")
    torch.manual_seed(5)
    published = read_file(address).make()
    published.save_pretrained(tmp_path / "published")  # type: ignore[operator]
    tried = job(address, WHOLE)
    trainer = make_trainer(tried, synthetic_tokens(tried), Mesh())
    trainer.start_from(find_source(tmp_path / "published", Mesh(), print, tried.model))
    samples = samples_of(synthetic_tokens(tried), tried.sequence, tried.train.seed)
    ids, targets = map(torch.from_numpy, samples.batch(0, tried.train.global_batch))
    total, count = read_file(address).loss(published, OwnBatch(ids, targets))
    assert trainer.train_step().loss == pytest.approx((total / count).item(), rel=1e-6)
    other = job(write(tmp_path, "bloom"), WHOLE)
    with pytest.raises(HeddleError, match="does not hold the weights of this module"):
        find_source(tmp_path / "published", Mesh(), print, other.model)


def test_a_job_says_all_of_its_module_and_runs_no_code_to_be_read(tmp_path, capsys):
    tried = job(write(tmp_path, "opt"), Plan())
    (tmp_path / "job.toml").write_text(dumps_job(tried), encoding="utf-8")
    Path(tried.model.module.rpartition(":")[0]).unlink()  # type: ignore[attr-defined]
    capsys.readouterr()
    assert load_job(tmp_path / "job.toml").model == tried.model
    assert "Running the code" not in capsys.readouterr().err


def test_code_that_weights_name_is_not_run(tmp_path):
    run = tmp_path / "runs"
    run.mkdir()
    (run / "job.toml").write_text(dumps_job(job(write(tmp_path, "opt"), Plan())), encoding="utf-8")
    with pytest.raises(HeddleError, match="made by code that they name") as told:
        job_from_tables({"train": {"from": str(run)}})
    assert "module = " in told.value.hint


def test_a_job_that_moves_takes_its_module_along(tmp_path):
    document = {"model": {"module": "mine.py:make"}}
    assert moved(document, tmp_path / "one", tmp_path / "two")["model"]["module"] == "../one/mine.py:make"


def test_a_plan_is_tried_without_memory(tmp_path):
    plan = Plan(pipeline=2, data=2, zero=3, microbatch=2, stages=(3, 2))
    found = dry_run(job(write(tmp_path, "research"), plan))
    assert [kind.layers for kind in found.kinds] == [(3,), (2,)]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(pipeline=2, microbatch=1),
        Plan(tensor=2, microbatch=2),
        *(
            pytest.param(plan, marks=pytest.mark.slow)
            for plan in (
                Plan(microbatch=2),
                Plan(data=2, zero=3, microbatch=4),
                Plan(data=2, microbatch=2, recompute="full"),
            )
        ),
    ],
    ids=["pipeline2", "tensor2", "one", "zero3", "recompute"],
)
def test_predicted_memory_is_what_the_trainer_holds(plan):
    tried = replace(load_job(REPOSITORY / "examples" / "own" / "job.toml"), plan=plan).planned
    held = max(kind.bytes for kind in dry_run(tried).kinds)
    slack = max(breakdown.slack for breakdown in simulate(tried).memory)
    predicted = max(breakdown.total for breakdown in simulate(tried).memory) - slack
    assert predicted == pytest.approx(held, rel=0.08)


def test_a_job_without_a_plan_gets_one(tmp_path):
    planned, _ = with_best_plan(replace(job(write(tmp_path, "bloom"), Plan()), plan=None), devices=2)
    assert planned.plan is not None
    assert planned.plan.tensor == 1  # nobody says how to split it
    assert planned.predicted is not None


@pytest.mark.dist
@pytest.mark.parametrize(
    ("name", "plan", "reads"),
    [
        ("opt", Plan(tensor=2, pipeline=2, microbatch=2), 1),
        pytest.param("opt", Plan(data=2, zero=3, microbatch=2), 1, marks=pytest.mark.slow),
        # its loss reads what it has counted
        pytest.param("research", Plan(tensor=2, pipeline=2, microbatch=2), 20, marks=pytest.mark.slow),
    ],
    ids=["tensor-pipeline", "zero3", "research"],
)
def test_exchanges_follow_the_rules_of_gpus(tmp_path, name, plan, reads):
    strict_run(job(write(tmp_path, name), plan), reads=reads)


def test_initial_weights_do_not_depend_on_the_plan(tmp_path):
    """A large module is filled part by part: every box is a part of the same whole."""
    file = read_file(write(tmp_path, "opt"))
    module = build(file)
    assert all(parameter.is_meta for parameter in module.parameters())
    parts, again = (InitialWeights(file, module, 3, moderate=0) for _ in range(2))
    for name, parameter in module.named_parameters():
        whole, half = torch.empty(parameter.shape), torch.empty(parameter.shape[0] // 2, *parameter.shape[1:])
        parts.fill(whole, name, parameter.shape, (0,) * parameter.dim())
        offset = (len(whole) // 2, *[0] * (parameter.dim() - 1))
        again.fill(half, name, parameter.shape, offset)
        torch.testing.assert_close(half, whole[len(whole) // 2 :][: len(half)], rtol=0, atol=0)
        if "norm.weight" in name:
            assert (whole == 1).all()
        elif name.endswith("weight"):
            assert whole.std() == pytest.approx(0.02, rel=0.3)


def test_buffers_keep_their_values(tmp_path):
    module = build(read_file(write(tmp_path, "research")))
    assert torch.equal(module.mask, read_file(write(tmp_path, "research")).make().mask)


def test_what_is_random_depends_on_samples_and_not_on_what_was_before(tmp_path):
    path = tmp_path / "drops.py"
    text = Path(write(tmp_path, "opt").rpartition(":")[0]).read_text(encoding="utf-8")
    path.write_text(
        text.replace("opt as make", "opt") + "def make():\n    module = opt()\n"
        "    for each in module.modules():\n        if hasattr(each, 'dropout'):\n            each.dropout = 0.2\n"
        "    return module\n",
        encoding="utf-8",
    )
    tried = job(f"{path}:make", WHOLE)
    through = train(Mesh(), tried, 4)
    train(Mesh(), tried, 2, None, tmp_path / "saved")
    (checkpoint,) = (tmp_path / "saved").glob("step-*")
    torch.manual_seed(123)
    resumed = train(Mesh(), tried, 2, checkpoint)
    assert resumed == through[2:]
    assert through != train(Mesh(), job(write(tmp_path, "opt"), WHOLE), 4)


def test_what_a_module_cannot_do_is_refused(tmp_path):
    address = write(tmp_path, "research")
    for plan, word in (
        (Plan(tensor=2, sequence=True), "sequence = true"),
        (Plan(recompute="selective"), 'recompute = "selective"'),
        (Plan(pipeline=2, schedule="zb-h1"), 'schedule = "zb-h1"'),
        (Plan(tensor=8), "tensor = 8 does not divide"),
    ):
        with pytest.raises(HeddleError, match=word):
            job(address, plan)
    with pytest.raises(HeddleError, match=r"train\.optimizer = .muon. cannot"):
        job(address, Plan(), optimizer="muon")
    with pytest.raises(HeddleError, match="\\[tune\\] cannot be combined"):
        replace(job(address, Plan()), tune=Tune(lora=Lora()))
    with pytest.raises(HeddleError, match="5 layers cannot fill"):
        job(address, Plan(pipeline=6))


def test_what_is_wrong_with_a_file_is_told(tmp_path):
    path = tmp_path / "mine.py"
    for text, word in (
        ("1 +", "cannot be run: SyntaxError"),
        ("def loss(m, b): ...", "has no function 'make'"),
        ("def make(): return 3\ndef loss(m, b): ...", "gives a int"),
        ("def make(): return 1 / 0\ndef loss(m, b): ...", "cannot make its module: make.*ZeroDivisionError"),
        (
            "from torch import nn\ndef make(): return nn.Embedding(4, 4)\ndef loss(m, b): return m(b.ids).sum()",
            "loss.* gives Tensor",
        ),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(HeddleError, match=word):
            job(f"{path}:make", Plan())
    with pytest.raises(HeddleError, match="does not name a function of a Python file"):
        job_from_tables({"model": {"module": "mine"}})
    with pytest.raises(HeddleError, match="has 'module' and also 'layers'"):
        job_from_tables({"model": {"module": "mine.py:make", "layers": 3}}, tmp_path)


def test_a_module_without_blocks_is_one(tmp_path):
    address = write(tmp_path, "bloom", {})
    model = job(address, Plan()).model
    assert isinstance(model, OwnModel)
    assert (model.layers, model.blocks) == (1, "")
    assert model.parameters == sum(p.numel() for p in read_file(address).make().parameters())
    with pytest.raises(HeddleError, match="1 layers cannot fill"):
        job(address, Plan(pipeline=2))
