"""Every layout of the equality grid over a transport with NCCL's rules: what would hang or race on GPUs fails here."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
import torch

from heddle.checkpoint.checkpoint import Saver, newest_good
from heddle.parallel.mesh import Mesh
from heddle.runtime.recorder import Recorder
from heddle.spec import Job, ModelSpec, Plan
from heddle.training.probe.links import measure_links
from heddle.training.profile.clock import SharedClock
from heddle.training.profile.messages import messages
from heddle.training.prove.collect import gather_boxes, local_boxes, weights
from heddle.training.prove.prove import observe_serial, synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import covering, thinned
from tests.helpers.small_models import gpt
from tests.numerics.test_equality_grid import CELLS, LOW_PRECISION, job
from tests.numerics.test_muon import CELLS as MUON
from tests.numerics.test_muon import job as muon_job
from tests.numerics.test_preference import CELLS as PREFERRED
from tests.numerics.test_preference import job as preferred_job
from tests.numerics.test_searched_orders import searched
from tests.parallel.replicas.test_compressed import BY_LINK
from tests.parallel.replicas.test_compressed import CELLS as COMPRESSED
from tests.strict import Run, strict_ranks, strict_run
from tests.strict.program import Launch
from tests.training.outer.test_outer_step import CELLS as APART

STEPS = 2  # the first, in which all is new, and one like all others


def short(model: ModelSpec, plan: Plan | None, batch: int, precision: str = "fp32") -> Job:
    a_job = job(model, plan, batch, precision)
    return replace(a_job, train=replace(a_job.train, steps=STEPS, eval_batches=1))


@cache
def serial(model: ModelSpec, batch: int) -> list[float]:
    return observe_serial(short(model, None, batch)).losses


@pytest.mark.parametrize("name", thinned(CELLS, slow=CELLS.keys() - covering(CELLS, pairs=False)))
def test_a_plan_runs_by_the_rules_of_nccl(name):
    model, plan, batch = CELLS[name]
    run = strict_run(short(model, plan, batch), STEPS)
    for losses in run.results:
        assert losses == run.results[0]
    assert run.results[0][:STEPS] == pytest.approx(serial(model, batch), rel=1e-5)


@pytest.mark.parametrize("name", LOW_PRECISION)
def test_low_precision_runs_by_the_rules_of_nccl(name):
    model, plan, batch = LOW_PRECISION[name]
    run = strict_run(short(model, plan, batch, "bf16"), STEPS)
    assert all(math.isfinite(loss) for losses in run.results for loss in losses)


def test_slices_gathered_in_8_bits_run_by_the_rules_of_nccl():
    model, plan, batch = LOW_PRECISION["tensor2-seq"]
    run = strict_run(short(model, plan, batch, "fp8"), STEPS)
    sent = [event.operation for event in run.programs[0] if isinstance(event, Launch)]
    gathered = [each.dtype for each in sent if each.kind == "all-gather"]
    assert gathered.count(torch.uint8) == (STEPS + 1) * 2 * model.layers  # forwards of attention and MLP
    assert all(math.isfinite(loss) for losses in run.results for loss in losses)


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_exchanges_run_by_the_rules_of_nccl(name):
    model, plan, _ = COMPRESSED[name]
    run = strict_run(short(model, plan, 4), STEPS)
    assert all(losses == run.results[0] for losses in run.results)
    assert run.results[0][:STEPS] == pytest.approx(serial(model, 4), rel=0.01)


@pytest.mark.parametrize("name", BY_LINK)
def test_codes_by_link_run_by_the_rules_of_nccl(name):
    """Sums whose parts have other sizes for each two replicas, and messages in codes between some stages only."""
    model, plan, network = BY_LINK[name]
    run = strict_run(replace(short(model, plan, 4), network=network), STEPS)
    assert all(losses == run.results[0] for losses in run.results)
    assert run.results[0][:STEPS] == pytest.approx(serial(model, 4), rel=0.01)


@pytest.mark.parametrize("name", APART)
def test_replicas_that_learn_by_themselves_meet_by_the_rules_of_nccl(name):
    """Between two meetings each replica goes its own way; after one, all have the same weights."""
    model, plan = APART[name]
    run = strict_run(short(model, replace(plan, local_steps=STEPS), 4), STEPS)
    *_, met, evaluated = run.results[0]
    assert all(losses[-2:] == [met, evaluated] for losses in run.results)
    assert len({losses[0] for losses in run.results}) == plan.data


@pytest.mark.parametrize("virtual", [1, 2])
def test_a_searched_order_runs_by_the_rules_of_nccl(virtual):
    """An order that no name has, with backwards in two where that helps."""
    plan = Plan(pipeline=3, virtual=virtual, microbatch=1, schedule="searched", order=searched(3, 4, virtual))
    assert plan.order_of_work(4).split
    run = strict_run(short(gpt(layers=6), plan, 4), STEPS)
    assert run.results[0][:STEPS] == pytest.approx(serial(gpt(layers=6), 4), rel=1e-5)


ALL = Plan(tensor=2, sequence=True, pipeline=2, virtual=2, data=2, zero=1, microbatch=1, schedule="interleaved")


@pytest.mark.parametrize("plan", [ALL, Plan(tensor=2, data=2, zero=3, microbatch=1)], ids=["all", "zero3"])
def test_saving_and_resuming_run_by_the_rules_of_nccl(tmp_path, plan):
    """What was saved in the background of a step, and taken up again, learns on as if nothing had been."""
    a_job = short(gpt(layers=4, dropout=0.1), plan, 4)

    def work(mesh: Mesh) -> tuple[list[float], list[float], int]:
        tokens = synthetic_tokens(a_job)
        first, saver = Trainer(a_job, tokens, mesh), Saver(tmp_path, mesh)
        first.train_step()
        first.save(saver)
        before = [first.train_step().loss for _ in range(STEPS)]
        saver.wait()
        second = Trainer(a_job, tokens, mesh)
        second.load(newest_good(tmp_path, mesh, pytest.fail))
        after = [second.train_step().loss for _ in range(STEPS)]
        return before, after, len(gather_boxes(local_boxes(second.optimizer.pieces, weights), mesh))

    run: Run = strict_ranks(work, plan)
    run.replay()
    before, after, boxes = run.results[0]
    assert before == after
    assert boxes > 0
    assert all(result[0] == before for result in run.results)


def test_measuring_runs_by_the_rules_of_nccl(tmp_path):
    """A recorder watches every exchange, and asks the others for their clocks."""
    a_job = short(gpt(layers=4), ALL, 4)

    def work(mesh: Mesh) -> int:
        trainer = Trainer(a_job, synthetic_tokens(a_job), mesh)
        recorder = Recorder(mesh, trainer.device)
        recorder.clock.several = True
        recorder.clock.compare()
        return len(recorder.write(tmp_path, 1))

    strict_ranks(work, ALL).replay()


def test_probes_and_profiles_run_by_the_rules_of_nccl(monkeypatch):
    """What a first day on GPUs measures: links between all ranks, and messages over the axes of training."""
    monkeypatch.setattr("heddle.training.probe.links.PINGS", 1)
    monkeypatch.setattr("heddle.training.profile.messages.SIZES", (1 << 10,))
    plan, cpu = Plan(data=3), torch.device("cpu")

    def work(mesh: Mesh) -> tuple[list[float], list[str]]:
        links = measure_links(mesh, cpu, enough=1e-4)
        timed = [each.kind for each in messages(SharedClock(mesh, cpu, 1e-4), mesh, cpu, quick=True)]
        return links.bandwidth, timed

    run = strict_ranks(work, plan)
    run.replay()
    for rank, (bandwidth, timed) in enumerate(run.results):
        assert [other for other in range(3) if bandwidth[other] == 0] == [rank]
        assert timed == ["all-reduce", "all-gather", "reduce-scatter", "send"]


@pytest.mark.parametrize("name", thinned(MUON, slow=MUON.keys() - {"tensor2-data4-zero1", "all", "data3-zero2"}))
def test_whole_matrices_travel_by_the_rules_of_nccl(name):
    """All-to-alls of other sizes for each two ranks, and some ranks with nothing to send."""
    model, plan, tune = MUON[name]
    a_job = muon_job(model, plan, tune, steps=STEPS)
    run = strict_run(replace(a_job, train=replace(a_job.train, eval_batches=1)), STEPS)
    assert all(losses == run.results[0] for losses in run.results)
    serial = observe_serial(muon_job(model, Plan(), tune, steps=STEPS)).losses if tune is None else None
    assert serial is None or run.results[0][:STEPS] == pytest.approx(serial, rel=1e-5)


@pytest.mark.parametrize("name", thinned(PREFERRED, slow=PREFERRED.keys() - {"lora-all", "data4-zero3", "context2"}))
def test_references_are_asked_by_the_rules_of_nccl(name):
    model, plan, tune = PREFERRED[name]
    a_job = preferred_job(model, plan, tune)
    run = strict_run(replace(a_job, train=replace(a_job.train, steps=STEPS, eval_batches=1)), STEPS)
    assert all(losses == run.results[0] for losses in run.results)
