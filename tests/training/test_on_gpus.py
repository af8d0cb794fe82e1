"""What a run does on GPUs and nowhere else, tried where there are none: what would be asked of them is written down."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode

from heddle.checkpoint import checkpoint
from heddle.checkpoint.checkpoint import Saver
from heddle.errors import HeddleError
from heddle.parallel.mesh import Axis, Mesh
from heddle.runtime import cuda, device
from heddle.runtime.recorder import NoRecorder
from heddle.runtime.stream import StreamMarks
from heddle.runtime.together import Together
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.layer_memory import LayerRun
from heddle.spec.shorthand import cluster_from_table
from heddle.training import loop, opening
from heddle.training.dry_run import out_of_memory
from heddle.training.outer.outer import Meetings, Reached
from heddle.training.peak import peak_of_run
from heddle.training.phases import Phases, RunPhase
from heddle.training.prove import prove
from heddle.training.step import compiled as compiling
from heddle.training.step import feed
from heddle.training.step import trainer as trainer_module
from heddle.training.step.trainer import Trainer
from heddle.training.watchdog import Watchdog

MODEL = ModelSpec(layers=2, hidden=16, heads=2, vocab=31, sequence=8)
TOKENS = np.arange(1000).astype("<u2") % 31


def job(**train: object) -> Job:
    return Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=4, **train), plan=Plan(microbatch=2))


@pytest.mark.parametrize(
    ("local", "started_by_heddle", "verifies"), [(0, False, True), (3, False, False), (0, True, False)]
)
def test_tokens_are_checked_by_one_rank_of_a_node(monkeypatch, local, started_by_heddle, verifies):
    """All would read all of a file of terabytes; who started its processes by itself has read it before."""
    asked = []

    def prepared_for(data: Data, **_: object) -> SimpleNamespace:
        asked.append(data.verify)
        return SimpleNamespace(meta=SimpleNamespace(chat=None, train=SimpleNamespace(sha256="0")))

    monkeypatch.setattr(opening, "prepared_for", prepared_for)
    monkeypatch.setattr(opening, "check_vocab", lambda *_: None)
    monkeypatch.setattr(opening, "local_place", lambda: (local, 8))
    monkeypatch.delenv(opening.NOTES, raising=False)
    if started_by_heddle:
        monkeypatch.setenv(opening.NOTES, "-")
    opening.prepare(job(), Together(Mesh()), Console(quiet=True))
    assert asked == [verifies]


def test_steps_are_handed_out_and_batches_read_ahead_into_page_locked_memory(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self.shape) or self)
    plain = Trainer(job(), TOKENS)
    plain.train_step()
    assert not pinned
    assert plain.in_flight == 0
    monkeypatch.setattr(trainer_module, "runs_ahead", lambda _: True)
    monkeypatch.setattr(feed, "on_gpu", lambda _: True)
    ahead = Trainer(job(), TOKENS)
    ahead.train_step()
    assert ahead.in_flight == 1
    assert ahead.batches.pending is not None
    ahead.batches.pending[1].result()
    assert pinned == 2 * 2 * 2 * [torch.Size([16])]  # steps, microbatches, inputs and targets
    waits = []
    plain_to = torch.Tensor.to

    def to(x: torch.Tensor, *where: object, **options: object) -> torch.Tensor:
        waits.extend([not options.get("non_blocking")] if x.dtype == torch.int64 and x.shape == (16,) else [])
        return plain_to(x, *where, **options)

    monkeypatch.setattr(torch.Tensor, "to", to)
    ahead.train_step()
    assert waits == 4 * [False]  # a copy that the host waits for would wait for all that the device was given before


class Copies(TorchDispatchMode):
    """Counts what copies masters into parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "copy_" in func._schema.name:
            self.seen.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_an_update_copies_all_pieces_at_once():
    """Hundreds of small copies would be hundreds of kernels."""
    trainer = Trainer(replace(job(), train=replace(job().train, precision="bf16")), TOKENS)
    trainer.train_step()
    for piece in trainer.optimizer.pieces:
        piece.master.grad = torch.zeros_like(piece.master)
    with Copies() as copies:
        trainer.optimizer.step(0.1, torch.ones((), dtype=torch.float64))
    assert len(trainer.optimizer.pieces) > 20
    assert [name for name in copies.seen if "foreach" in name] == ["aten::_foreach_copy_"]
    assert len(copies.seen) <= 3


class ReachedError(Exception):
    """As far as a test goes."""


def test_what_a_run_was_given_is_looked_at_before_it_reads_its_data(monkeypatch):
    """On GPUs that do not fit the plan, or with folders that not all see, nothing is tokenized in vain."""
    looked = []

    def prepare(*_: object) -> None:
        raise ReachedError

    monkeypatch.setattr(opening, "check_folder", lambda *_: None)
    monkeypatch.setattr(opening, "check_allotment", lambda *_: looked.append("devices"))
    monkeypatch.setattr(opening, "check_shared", lambda folders, _: looked.extend(path.name for path in folders))
    monkeypatch.setattr(opening, "prepare", prepare)
    with pytest.raises(ReachedError):
        loop.train_rank(Mesh(), job(), opening.RunOptions())
    assert looked == ["devices", "runs", "prepared"]


def test_the_start_says_which_devices_precision_and_settings(monkeypatch, capsys):
    monkeypatch.setattr(opening, "on_gpu", lambda _: True)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    data = SimpleNamespace(train=range(1000), meta=SimpleNamespace(tokenizer="bpe:31", vocab=31, chat=None))
    peak = peak_of_run(job().planned, cluster_from_table({"preset": "dgx-h100"}), torch.device("cpu"))
    known = {"job": job().planned, "peak": peak, "data": data, "allotted": "8 × NVIDIA H100 on 1 node"}
    opening.introduce(SimpleNamespace(**known, console=Console(width=200)), torch.device("cpu"))
    said = capsys.readouterr().out
    assert "1,000 tokens to train on, tokenizer bpe:31 (31 tokens), vocabulary 31" in said
    assert f"{job().precision} (chosen for {job()._device.name})" in said
    assert "Found 8 × NVIDIA H100 on 1 node; layers are not compiled" in said
    assert said.count("NCCL_SOCKET_IFNAME=ib0") == 1


def test_a_device_that_runs_ahead_is_marked_for_the_watchdog(monkeypatch):
    mesh, given = Mesh(world=Axis(0, (0, 1))), []
    monkeypatch.setattr(loop, "runs_ahead", lambda _: True)
    monkeypatch.setattr(loop, "make_trainer", lambda _job, _tokens, _mesh, recorder: given.append(recorder))
    watchdog, plan = Watchdog(mesh, Plan(data=2), Phases()), Plan(data=2, microbatch=1)
    adapter = loop.Adapter(replace(job(), plan=plan).planned, Together(Mesh()), torch.device("cpu"))
    loop._made(adapter, SimpleNamespace(train=TOKENS), mesh, watchdog, trace=False)
    assert isinstance(watchdog.stream, StreamMarks)
    assert given == [watchdog.stream]


class OnDevice(torch.Tensor):
    """A number that the host may only read once it has waited for it."""

    def cpu(self, *_: object, **__: object) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def test_the_host_waits_for_the_clip_factor_before_it_updates_what_was_offloaded(monkeypatch):
    """Torch's own copy does not wait: the host's kernel would read what the memory held before."""
    kinds = LayerRun(layers="0", offload=("optimizer:host",))
    trainer = Trainer(replace(job(), plan=Plan(microbatch=2, layers=(kinds,))), TOKENS)
    optimizer = trainer.optimizer
    given = []
    monkeypatch.setattr(optimizer.mending, "step", lambda adam: given.append((adam.grad_scale, adam.found_inf)))
    optimizer.step(0.1, torch.ones((), dtype=torch.float64).as_subclass(OnDevice))
    apart = [turn[0].tier is not None for turn in optimizer.turns]
    assert set(apart) == {True, False}
    for away, numbers in zip(apart, given, strict=True):
        assert all(isinstance(number, OnDevice) != away for number in numbers)


def test_what_codes_could_not_say_is_copied_before_a_backward_changes_it(monkeypatch):
    trainer, order = Trainer(job(), TOKENS), []
    trainer.saver = SimpleNamespace(copied=lambda: order.append("copied"))
    run = trainer.pipeline.run
    monkeypatch.setattr(trainer.pipeline, "run", lambda *given: (order.append("run"), run(*given))[1])
    monkeypatch.setattr(trainer.gradients, "kept", [object()])
    trainer.train_step()
    assert order[:2] == ["copied", "run"]


def test_a_meeting_has_its_own_limit():
    """Over a slow link it takes longer than many steps, and is no hang."""
    phases, seen = Phases(), []

    class Met(Meetings):
        def due(self, _step):
            return True

        def meet(self):
            seen.append(phases.phase)

        def agree(self, loss):
            return loss, loss

    met = Met(NoRecorder(), torch.device("cpu"))
    met.meeting = partial(phases.during, RunPhase.MEETING)
    phases.enter(RunPhase.STEP)
    met.after_step(Reached(1, 4), torch.zeros(()), torch.zeros(()))
    assert seen == [RunPhase.MEETING]
    assert phases.phase is RunPhase.STEP


@pytest.mark.parametrize(("gpus", "processes", "on_cpus"), [(0, 16, False), (1, 16, True), (8, 8, False)])
def test_a_proof_starts_no_more_ranks_than_there_are_gpus(environment, monkeypatch, gpus, processes, on_cpus):
    monkeypatch.setattr(prove, "has_gpus", lambda: gpus > 0)
    monkeypatch.setattr(prove, "gpu_count", lambda: gpus)
    assert prove._most_processes() == processes
    assert (os.environ.get("HEDDLE_DEVICE") == "cpu") == on_cpus


def test_page_locked_memory_is_taken_before_a_save_goes_on_beside_training(tmp_path, monkeypatch):
    """Taking it in the background would wait for the device, and a large state would look like a hang."""
    made: list[tuple[bool, int]] = []
    host_like, ticks = checkpoint.host_like, []

    def noted(values: torch.Tensor) -> torch.Tensor:
        made.append((threading.current_thread() is threading.main_thread(), len(ticks)))
        return host_like(values)

    monkeypatch.setattr(checkpoint, "host_like", noted)
    trainer, saver = Trainer(job(), TOKENS), Saver(tmp_path, Mesh(), tick=lambda: ticks.append(1))
    trainer.train_step()
    trainer.save(saver)
    saver.wait()
    assert all(main for main, _ in made)
    assert made[-1][1] > 20  # the watchdog heard of every tensor
    assert "pinned_max_round_threshold_mb:1" in cuda.DEFAULTS["PYTORCH_ALLOC_CONF"]  # else up to twice as much


def test_a_run_that_is_to_repeat_asks_for_deterministic_kernels(monkeypatch):
    environment = {}
    monkeypatch.setattr(device.os, "environ", environment)
    assert not torch.are_deterministic_algorithms_enabled()
    with device.repeatable(wanted=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert environment["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    seen = []
    monkeypatch.setattr(loop, "opened", lambda *_: seen.append(torch.are_deterministic_algorithms_enabled()) or stop())
    for wanted in (True, False):
        with pytest.raises(ReachedError):
            loop.train_rank(Mesh(), job(deterministic=wanted), opening.RunOptions())
    assert seen == [True, False]


def stop() -> None:
    raise ReachedError


def test_what_cuda_and_nccl_take_is_in_the_breakdown(monkeypatch):
    """Contexts and communicators are no tensors: what they take is not there for these."""
    monkeypatch.setattr(device, "has_gpus", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 66 << 30)
    assert device.memory_outside() == 4 << 30
    monkeypatch.undo()
    monkeypatch.setattr(out_of_memory, "memory_outside", lambda: 4 << 30)
    monkeypatch.setattr(out_of_memory, "memory_limit", lambda: 80 << 30)
    said = out_of_memory.out_of_memory(job(), Mesh(), 0).why
    assert "76.00 GiB are available, beside 4.00 GiB that CUDA and the groups of ranks take" in said


@pytest.mark.parametrize(
    ("said", "plan", "gpu", "tools", "compiled"),
    [
        (None, Plan(microbatch=2), True, True, True),
        (None, Plan(microbatch=2), True, False, False),
        (None, Plan(microbatch=2), False, True, False),
        (None, Plan(tensor=2, microbatch=2), True, True, False),
        (None, Plan(context=2, microbatch=2), True, True, False),
        (False, Plan(microbatch=2), True, True, False),
        (True, Plan(tensor=2), False, False, True),
    ],
)
def test_layers_are_compiled_where_it_pays_and_holds(monkeypatch, said, plan, gpu, tools, compiled):
    monkeypatch.setattr(compiling, "can_compile", lambda: tools)
    where = torch.device("cuda" if gpu else "cpu")
    some = replace(job(compile=said), plan=plan).planned
    assert compiling.compiles(some, where) == compiled
    words = compiling.compiling_in_words(some, where)
    assert "compile = " in words
    assert said is not None or ("not compiled" in words) != compiled


def test_nodes_that_prepared_other_tokens_are_told():
    opening.refuse_other_tokens(["a" * 64] * 3)
    with pytest.raises(HeddleError, match="Rank 2 has other tokens than rank 0"):
        opening.refuse_other_tokens(["a" * 64, "a" * 64, "b" * 64])
