"""A measured trace: all that was done, once, in the order of the schedule, on one clock; and `heddle trace`."""

import itertools
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import chdir
from dataclasses import replace

import pytest
import torch

from heddle.cost.measured import local_machine
from heddle.errors import HeddleError
from heddle.format import seconds_in_words
from heddle.parallel.mesh import Mesh
from heddle.reporting import difference
from heddle.reporting.subject import read_subject
from heddle.runs.folder import open_run
from heddle.runs.machine import read_machine
from heddle.runtime import recorder
from heddle.runtime.launch import run_processes
from heddle.runtime.recorder import STEPS, Clock, Recorder, in_turn
from heddle.schedule import Kind, build, incoming
from heddle.simulating.simulation import simulate
from heddle.spec.job import load_job
from heddle.spec.plan import Plan
from heddle.spec.shorthand import cluster_from_table
from heddle.trace import Span, Trace
from heddle.trace.steps import read_step, traced_steps, write_rank
from tests.helpers.cases import thinned
from tests.helpers.commands import (
    ENVIRONMENT,
    REPOSITORY,
    blocks,
    call,
    run_commands,
    steps_of,
    write_job,
    write_named_blocks,
)

PIPELINE = ("model.layers=8", "plan.pipeline=2", "plan.virtual=2", 'plan.schedule="interleaved"')
TENSOR = ("model.layers=2", "plan.tensor=2", "plan.sequence=true", "plan.data=2", "plan.zero=1", "train.eval_every=1")
LAYERS = 2  # of the tensor-parallel run
PARAMETERS = 34_208  # of its model


def traced(folder, name, *changes):
    options = [word for change in ("train.steps=3", *changes) for word in ("--set", change)]
    with chdir(folder):
        assert call("train", "job.toml", "--trace", "--name", name, *options) == 0
    return folder / "runs" / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorder")
    write_job(folder / "job")
    return folder / "job"


@pytest.fixture(scope="module")
def four_stages(folder):
    return traced(folder, "four-stages", "model.layers=4", "plan.pipeline=4", "train.global_batch=6")


@pytest.fixture(scope="module")
def interleaved(folder):
    return traced(folder, "interleaved", *PIPELINE)


@pytest.fixture(scope="module")
def tensor(folder):
    return traced(folder, "tensor", *TENSOR)


@pytest.fixture(scope="module")
def mixed(folder):
    return traced(folder, "mixed", "model.layers=2", "plan.tensor=2", "plan.pipeline=2", "train.steps=1")


@pytest.fixture(scope="module")
def replicas(folder):
    return traced(folder, "replicas", "plan.data=2", "train.steps=1")


RUNS = {"four_stages": build("1f1b", 4, 6), "interleaved": build("interleaved", 2, 4, 2)}


@pytest.fixture(params=RUNS)
def pipeline(request):
    """A run, and the schedule that it ran."""
    return request.getfixturevalue(request.param), RUNS[request.param]


def of_lane(trace, lane, rank=None):
    return [span for span in trace.spans if span.lane == lane and rank in (None, span.rank)]


@pytest.mark.dist
def test_every_action_is_done_once_and_in_the_order_of_the_schedule(pipeline):
    run, schedule = pipeline
    assert traced_steps(run / "traces") == [1, 2, 3]
    for step in (1, 2, 3):
        trace = read_step(run / "traces", step)
        for rank, actions in enumerate(schedule.ranks):
            spans = sorted(of_lane(trace, "compute", rank), key=lambda span: span.start)
            assert [(span.name, span.chunk, span.microbatch) for span in spans] == list(actions)


@pytest.mark.dist
@pytest.mark.parametrize(
    "name", thinned(("four_stages", "interleaved", "tensor", "mixed", "replicas"), slow=("tensor",))
)
def test_what_is_predicted_has_the_lanes_and_names_of_what_is_measured(request, name):
    run = request.getfixturevalue(name)
    job = replace(load_job(run / "job.toml"), cluster=cluster_from_table({"preset": "dgx-a100-80gb"}))
    predicted, measured = simulate(job).trace, read_step(run / "traces", traced_steps(run / "traces")[-1])
    found = [{(span.lane, span.name) for span in trace.spans} for trace in (predicted, measured)]
    assert found[0] == found[1]


@pytest.mark.dist
def test_a_receive_ends_after_its_send_began(pipeline):
    run, schedule = pipeline
    trace = read_step(run / "traces", 3)
    kinds = {"activation": Kind.FORWARD, "gradient": Kind.BACKWARD}
    sends = {(span.name.split()[1], span.chunk, span.microbatch): span for span in of_lane(trace, "send")}
    expected = [message for actions in schedule.ranks for action in actions if (message := incoming(schedule, action))]
    assert len(sends) == len(expected) == len(of_lane(trace, "send"))
    assert len(of_lane(trace, "receive")) == len(expected)
    for span in of_lane(trace, "receive"):
        kind = span.name.split()[1]
        sender = span.chunk - (1 if kinds[kind] is Kind.FORWARD else -1)
        send = sends.pop((kind, sender, span.microbatch))
        assert send.rank == schedule.rank_of(sender) != span.rank
        assert send.bytes == span.bytes == 16 * 32 * 4  # tokens of a sample × hidden × fp32
        assert span.end > send.start


@pytest.mark.dist
@pytest.mark.parametrize("name", ["four_stages", "interleaved", "tensor"])
def test_spans_of_a_lane_do_not_overlap(request, name):
    run = request.getfixturevalue(name)
    for step in (1, 2, 3):
        spans = sorted(read_step(run / "traces", step).spans, key=lambda span: (span.rank, span.lane, span.start))
        for _, lane in itertools.groupby(spans, key=lambda span: (span.rank, span.lane)):
            for before, after in itertools.pairwise(lane):
                assert before.start <= before.end <= after.start


@pytest.mark.dist
@pytest.mark.parametrize("name", ["four_stages", "tensor"])
def test_the_bubble_that_was_shown_is_that_of_the_trace(request, name):
    run = request.getfixturevalue(name)
    shown = [row["bubble"] for row in steps_of(run)]
    assert shown == pytest.approx([read_step(run / "traces", step).bubble for step in (1, 2, 3)], rel=1e-9)
    assert min(shown) > 0


@pytest.mark.dist
def test_collectives_within_layers_belong_to_the_action_that_makes_them(tensor):
    # Two all-gathers and two reduce-scatters a layer and direction (arXiv 2205.05198 §4.2.2), and one all-gather more
    # a column-parallel product in the backward, whose input is gathered again. The output layer has all of its in the
    # forward, where the loss makes its gradients.
    forward = {"all-gather": 2 * LAYERS + 1, "reduce-scatter": 2 * LAYERS + 1, "all-reduce": 1 + 2}  # embedding; loss
    backward = {"all-gather": 4 * LAYERS + 1, "reduce-scatter": 2 * LAYERS}  # one gathers the embedding's slices
    traces = [read_step(tensor / "traces", step) for step in (1, 2, 3)]
    # the evaluation after each step leaves nothing behind for the next
    assert len({len(of_lane(trace, "tensor")) for trace in traces}) == 1
    for trace in traces:
        for rank, microbatch in itertools.product(range(4), range(2)):
            compute = [span for span in of_lane(trace, "compute", rank) if span.microbatch == microbatch]
            inside = [span for span in of_lane(trace, "tensor", rank) if span.microbatch == microbatch]
            for action, expected in zip(compute, (forward, backward), strict=True):
                found = [span for span in inside if action.start <= span.start and span.end <= action.end]
                assert Counter(span.name for span in found) == expected
            assert len(inside) == sum(forward.values()) + sum(backward.values())


@pytest.mark.dist
def test_sums_over_replicas_are_spans(tensor):
    trace = read_step(tensor / "traces", 3)
    for rank in range(4):
        spans = of_lane(trace, "data", rank)
        sums, shares = ([span for span in spans if span.name == name] for name in ("reduce-scatter", "all-gather"))
        assert len(sums) + len(shares) == len(spans)
        # every gradient once, and every parameter back: in fp32 the same bytes, about half the model's on each rank
        carried = sum(span.bytes for span in sums)
        assert carried == sum(span.bytes for span in shares)
        assert PARAMETERS / 2 * 4 < carried < 1.1 * PARAMETERS / 2 * 4
        first_update = min(span.start for span in of_lane(trace, "optimizer", rank) if span.name == "update")
        assert max(span.end for span in sums) <= first_update <= min(span.start for span in shares)


def test_a_run_is_only_traced_where_that_is_asked_for(folder):
    with chdir(folder):
        assert call("train", "job.toml", "--name", "untraced", "--set", "train.steps=1") == 0
    assert not (folder / "runs/untraced/traces").exists()
    assert "bubble" not in steps_of(folder / "runs/untraced")[0]


def test_only_the_first_steps_are_kept(tmp_path):
    mine = Recorder(Mesh(), torch.device("cpu"))
    for step in range(1, STEPS + 3):
        with mine.span("compute", "forward", 0, 0):
            pass
        assert [span.name for span in mine.write(tmp_path / "traces", step)] == ["forward"]
    assert traced_steps(tmp_path / "traces") == list(range(1, STEPS + 1))


def test_what_was_begun_during_another_transfer_begins_after_it():
    def span(lane, start, end):
        return Span(0, lane, "sum", start, end)

    spans = [span("data", 0.0, 4.0), span("data", 1.0, 3.0), span("data", 5.0, 6.0), span("compute", 0.5, 2.0)]
    turns = in_turn(iter(spans))
    assert [(turn.lane, turn.start, turn.end) for turn in turns] == [
        ("compute", 0.5, 2.0),
        ("data", 1.0, 3.0),  # the first to end was the first to go
        ("data", 3.0, 4.0),
        ("data", 5.0, 6.0),
    ]


BEHIND = 1000.0


def offset_of_a_clock_that_is_behind(mesh, machines):
    if mesh.rank == 1:
        recorder.time = type("Behind", (), {"perf_counter": lambda: time.perf_counter() - BEHIND})
    recorder.machine = lambda: machines[mesh.rank]
    clock = Clock(mesh, torch.device("cpu"))
    offsets = [0.0, 0.0]
    torch.distributed.all_gather_object(offsets, clock.offset, group=mesh.world.group)
    return offsets


@pytest.mark.dist
def test_clocks_of_two_machines_are_aligned_and_those_of_one_are_left_alone():
    first, second = run_processes(Plan(data=2), offset_of_a_clock_that_is_behind, ("here", "there"))
    assert first == 0
    assert second == pytest.approx(BEHIND, abs=0.5)
    assert run_processes(Plan(data=2), offset_of_a_clock_that_is_behind, ("here", "here")) == [0.0, 0.0]


# --- The files of a step, and the command that shows them


def test_files_of_a_larger_plan_are_left_out(tmp_path):
    for rank in range(4):
        write_rank(tmp_path, 1, rank, Trace(4, [Span(rank, "compute", "forward", 0.0, 9.0)]))
    for rank in range(2):
        write_rank(tmp_path, 1, rank, Trace(2, [Span(rank, "compute", "forward", 0.0, 1.0)]))
    trace = read_step(tmp_path, 1)
    assert (trace.ranks, len(trace.spans), trace.duration) == (2, 2, 1.0)


def test_a_missing_step_or_rank_is_told(tmp_path):
    with pytest.raises(HeddleError, match=r"no trace of step 1 in(.|\n)*--trace"):
        read_step(tmp_path, 1)
    write_rank(tmp_path, 4, 0, Trace(2, []))
    with pytest.raises(HeddleError, match=r"no trace of step 1 in(.|\n)*Traced steps: 4\."):
        read_step(tmp_path, 1)
    with pytest.raises(HeddleError, match="rank-00001"):
        read_step(tmp_path, 4)


@pytest.mark.dist
def test_the_command_draws_a_typical_step_and_writes_it_for_perfetto(four_stages, tmp_path, capsys):
    assert call("trace", four_stages, "-o", "trace.json") == 0
    said = capsys.readouterr().out
    rows = steps_of(four_stages)
    step = sorted((row["seconds"], row["step"]) for row in rows[1:])[1][1]  # of the second and the third the longer
    trace = read_step(four_stages / "traces", step)
    assert [line.split()[:2] for line in said.splitlines()[:4]] == [["rank", str(rank)] for rank in range(4)]
    took = seconds_in_words(rows[step - 1]["seconds"])
    assert f"step {step}: {took}, bubble {trace.bubble:.1%} of the ideal time" in said
    assert "24 forward, 24 backward" in said
    assert "several may be busy at once, so shares can exceed 100 %" in said
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == len(trace.spans)
    assert call("trace", four_stages, "--step", "1") == 0
    assert "step 1: " in capsys.readouterr().out
    assert call("trace", four_stages, "--step", "9") == 2
    assert "Traced steps: 1, 2 and 3." in capsys.readouterr().err


@pytest.mark.dist
def test_log_trace_and_page_tell_the_same_of_a_run(four_stages, monkeypatch, capsys):
    """Whatever the machine does when they are made: the run keeps what it knew of it."""
    kept = read_machine(open_run(four_stages))
    slow = (local_machine.Look(10.0), local_machine.Look(10.0))
    monkeypatch.setattr(local_machine, "looked", lambda: slow)  # as if others had the cores now
    subject, rows = read_subject(four_stages), steps_of(four_stages)
    assert subject.prediction.cluster == kept != local_machine.machine_for(None, 4)
    for row in rows:  # of the log: the page's bubble is that of the trace, its MFU has the prediction's peak
        trace = read_step(four_stages / "traces", row["step"])
        assert row["bubble"] == pytest.approx(trace.bubble)
        assert row["mfu"] == pytest.approx(subject.job.mfu(row["seconds"], subject.prediction.peak))
    ratio = subject.prediction.step_seconds / rows[2]["seconds"]
    assert rows[2]["mfu"] / subject.prediction.mfu == pytest.approx(ratio)  # slower means less utilization
    shown = difference.measured_items(subject.measured, subject.job)
    assert sum(shown.values()) == pytest.approx(rows[subject.measured.traced - 1]["seconds"])
    assert call("trace", four_stages) == 0
    median = statistics.median(row["seconds"] for row in rows[1:])
    assert f"median of the run: {seconds_in_words(median)}, bubble " in capsys.readouterr().out
    assert subject.measured.step_seconds == median


@pytest.mark.dist
def test_a_trace_with_chunks_that_the_plan_lacks_is_written_without_its_memory(four_stages, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(four_stages, folder)
    path = folder / "traces" / "step-00000002-rank-00000.jsonl"
    lines = path.read_text().splitlines()
    spans = [json.loads(line) for line in lines[1:]]
    path.write_text("\n".join([lines[0], *(json.dumps([*span[:6], 10**6, span[7]]) for span in spans)]) + "\n")
    assert call("trace", folder, "--step", "2", "-o", "trace.json") == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert not any(event["ph"] == "C" for event in events)
    assert "resumed under another plan" in str(read_subject(folder, 2).notices[0])


@pytest.mark.dist
def test_the_commands_of_the_documentation_run_in_order(tmp_path, capsys):
    page = REPOSITORY / "docs" / "train/tracing.md"
    write_named_blocks(page, tmp_path)
    assert [command.split()[1] for command in run_commands(page, tmp_path)] == ["train", "trace", "trace"]
    capsys.readouterr()
    (program,) = blocks(page, "python")
    exec(program)
    trace = read_step(tmp_path / "runs/traced/traces", 2)
    assert capsys.readouterr().out.split() == [str(trace.bubble), str(trace.busy(0)), str(len(trace.spans))]
    lanes = set(re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert (
        {span.lane for span in trace.spans}
        < lanes
        == {"compute", "receive", "send", "tensor", "data"}
        | {
            "embedding",
            "optimizer",
        }
    )


@pytest.mark.dist
def test_the_command_needs_no_torch(four_stages):
    script = "import sys; sys.modules['torch'] = None; from heddle.cli import main; main()"
    command = [sys.executable, "-c", script, "trace", str(four_stages)]
    shown = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "bubble" in shown.stdout
