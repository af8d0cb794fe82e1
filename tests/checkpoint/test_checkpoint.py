from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
import time
import zlib
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heddle.checkpoint import checkpoint, storage
from heddle.checkpoint.checkpoint import Saver, checkpoints, newest_good
from heddle.checkpoint.contents import contents_of, verify
from heddle.checkpoint.index import read_index
from heddle.checkpoint.storage import check_file
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.parallel.parameter_layout import ParameterLayout
from heddle.parallel.shards import Piece, boxes_of, make_piece
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer
from tests.helpers.commands import REPOSITORY
from tests.helpers.launching import python

MODEL = ModelSpec(layers=1, hidden=16, heads=2, vocab=31, sequence=8)


def job(**train) -> Job:
    return Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=4, **train), plan=Plan(microbatch=2)).planned


def trainer(steps: int = 0) -> Trainer:
    made = Trainer(job(), np.arange(1000).astype("<u2") % 31)
    for _ in range(steps):
        made.train_step()
    return made


def saved(folder: Path, *steps: int, **keep) -> Trainer:
    """A trainer that wrote a checkpoint after each of these steps."""
    made, saver = trainer(), Saver(folder, Mesh(), **keep)
    for step in range(1, steps[-1] + 1):
        made.train_step()
        if step in steps:
            made.save(saver)
            saver.wait()
    return made


def names(folder: Path) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoints(folder)]


@given(st.data(), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=4))
def test_the_boxes_of_a_flat_range_are_that_range(data, dims):
    """Every number of a range stands in exactly one box, at its own place; padding in none."""
    local, offset = tuple(size for size, _ in dims), tuple(start for _, start in dims)
    size = prod(local)
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start + 1, size))
    padding = data.draw(st.integers(0, local[0] - 1))
    padded = tuple(begin + extent + 2 * (dim > 0) for dim, (extent, begin) in enumerate(dims))
    shape = (padded[0] - padding, *padded[1:])
    whole = torch.full(padded, -1.0)
    inside = whole[tuple(slice(begin, begin + extent) for extent, begin in dims)]
    inside[...] = torch.arange(float(size)).view(local)
    values = inside.flatten()[start:stop].clone()
    piece = Piece("w", ParameterLayout(torch.Size(shape), offset), torch.Size(local), start, values, None, True, True)
    found = []
    boxes = list(boxes_of(piece, values))
    assert len(boxes) <= 2 * len(dims) - 1
    for place, part in boxes:
        box = tuple(slice(a, a + n) for a, n in zip(place, part.shape, strict=True))
        assert torch.equal(whole[: shape[0]][box], part)
        found += part.flatten().tolist()
    real = whole[: shape[0]].flatten()
    assert sorted(found) == sorted(set(values.tolist()) & set(real[real >= 0].tolist()))


def test_a_checkpoint_holds_every_number_once_under_its_global_name(tmp_path):
    made = saved(tmp_path, 2)
    index = read_index(tmp_path / "step-00000002")
    parameters = {name: tensor for name, tensor in index.items() if ":" not in name}
    assert sum(np.prod(tensor.shape) for tensor in parameters.values()) == MODEL.parameters
    assert set(index) == {f"{name}{kind}" for name in parameters for kind in ("", ":exp_avg", ":exp_avg_sq")}
    assert {piece.name for piece in made.optimizer.pieces} == set(parameters)
    about = json.loads((tmp_path / "step-00000002" / "checkpoint.json").read_text())
    assert about["progress"] == {"step": 2, "samples": 8, "updates": 2, "loss_scale": 1.0, "quiet_steps": 0}
    assert about["plan_hash"] == made.plan.hash
    assert "[model]" in (tmp_path / "step-00000002" / "job.toml").read_text()


def test_nothing_in_a_checkpoint_is_a_pickle(tmp_path):
    saved(tmp_path, 1)
    for path in (tmp_path / "step-00000001").iterdir():
        assert path.suffix in (".json", ".toml", ".safetensors")
        assert not path.read_bytes().startswith((b"\x80", b"PK"))


def test_the_newest_and_the_chosen_ones_stay(tmp_path):
    saved(tmp_path, *range(1, 8), keep_last=2, keep_every=3)
    assert names(tmp_path) == [3, 6, 7]


def damaged_by(change) -> str:
    """What is said of a newest checkpoint after `change` was done to its folder; the one before it is used."""
    folder = Path("checkpoints")
    saved(folder, 1, 2)
    change(folder / "step-00000002")
    said: list[str] = []
    assert newest_good(folder, Mesh(), said.append) == folder / "step-00000001"
    (words,) = said
    return words


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("at", [-1, -500])
def test_a_flipped_bit_is_found(at):
    words = damaged_by(lambda folder: flip(folder / "part-00000.safetensors", at))
    assert "part-00000.safetensors is damaged" in words
    assert "checksum" in words


@pytest.mark.parametrize("size", [0, 5, 100, -8])
def test_a_file_cut_off_is_found(size):
    def cut(folder: Path) -> None:
        path = folder / "part-00000.safetensors"
        path.write_bytes(path.read_bytes()[:size])

    assert "part-00000.safetensors is damaged" in damaged_by(cut)


def test_a_missing_file_is_named():
    words = damaged_by(lambda folder: (folder / "part-00000.safetensors").unlink())
    assert "part-00000.safetensors is missing" in words


def test_a_part_of_an_older_checkpoint_is_found():
    def swap(folder: Path) -> None:
        shutil.copy(folder.with_name("step-00000001") / "part-00000.safetensors", folder)
        check_file(folder / "part-00000.safetensors")  # which is whole
        (problem,) = verify(contents_of(folder)).problems
        assert "belongs to another checkpoint" in problem

    assert "part-00000.safetensors belongs to another checkpoint" in damaged_by(swap)


def test_a_description_of_an_older_checkpoint_is_found():
    def swap(folder: Path) -> None:
        index = folder / "index.json"
        index.write_text(index.read_text() + " ")
        (problem,) = verify(contents_of(folder)).problems
        assert "index.json is damaged" in problem

    assert "index.json is damaged" in damaged_by(swap)


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path):
    """Which did not tie its parts to it."""
    saved(tmp_path, 1)
    folder = tmp_path / "step-00000001"
    about = json.loads((folder / "checkpoint.json").read_text())
    del about["parts"], about["checksum"]
    about["checksum"] = f"{zlib.crc32(json.dumps(about, sort_keys=True).encode()):08x}"
    (folder / "checkpoint.json").write_text(json.dumps(about))
    assert checkpoint.damage(folder, Mesh()) is None
    assert not verify(contents_of(folder)).problems


@pytest.mark.parametrize("name", ["index.json", "checkpoint.json"])
def test_a_missing_or_broken_description_is_named(name):
    assert name in damaged_by(lambda folder: (folder / name).write_text("{"))


def test_every_flipped_bit_of_a_description_or_a_header_is_found(tmp_path):
    """Not one byte may change unseen: a digit of the sampler's position would be trained on."""
    saved(tmp_path, 1)
    folder, rng = tmp_path / "step-00000001", np.random.default_rng(0)
    assert checkpoint.damage(folder, Mesh()) is None
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        size = len(whole) if path.suffix != ".safetensors" else 8 + int.from_bytes(whole[:8], "little")
        for at in rng.choice(size, min(size, 150), replace=False):
            content = bytearray(whole)
            content[at] ^= 1 << rng.integers(8)
            path.write_bytes(content)
            words = checkpoint.damage(folder, Mesh())
            assert words is not None, (path.name, at)
            assert path.name in words, (path.name, at, words)
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["index.json", "job.toml"])
def test_a_missing_description_is_named(name):
    assert name in damaged_by(lambda folder: (folder / name).unlink())


def test_an_index_that_points_outside_is_refused():
    def tamper(folder: Path) -> None:
        path = folder / "index.json"
        path.write_text(path.read_text().replace("part-00000", "../step-00000001/part-00000"))

    words = damaged_by(tamper)
    assert "names the file '../step-00000001/part-00000.safetensors'" in words


def test_no_checkpoint_at_all_and_none_that_is_whole(tmp_path):
    with pytest.raises(HeddleError, match="There is no checkpoint"):
        newest_good(tmp_path, Mesh(), print)
    saved(tmp_path, 1)
    flip(tmp_path / "step-00000001" / "part-00000.safetensors", -1)
    with pytest.raises(HeddleError, match=r"No checkpoint in .* is intact"):
        newest_good(tmp_path, Mesh(), lambda words: None)


def test_another_model_is_refused_with_the_first_three_differences(tmp_path):
    saved(tmp_path, 1)
    other = Job(
        model=ModelSpec(layers=2, hidden=16, heads=2, vocab=33, sequence=8),
        data=Data(text="-"),
        train=Train(global_batch=4),
        plan=Plan(microbatch=2),
    )
    with pytest.raises(HeddleError) as caught:
        Trainer(other, np.zeros(100, "<u2")).load(tmp_path / "step-00000001")
    assert "embed.tokens.weight is 31 × 16, wanted 33 × 16" in caught.value.why
    assert "layers.1.attention.out.bias is not there, wanted 16" in caught.value.why
    assert caught.value.why.count("wanted") == 3


def test_a_full_disk_is_told_and_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    made = saved(tmp_path, 1)
    saver = Saver(tmp_path, Mesh())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage.os, "fsync", full)
    made.train_step()
    made.save(saver)
    with pytest.raises(HeddleError, match="could not be written") as caught:
        saver.wait()
    assert "No space left on device" in caught.value.why
    monkeypatch.undo()
    assert names(tmp_path) == [1]
    made.save(saver)  # there is room again
    saver.wait()
    assert names(tmp_path) == [1, 2]


class SlowlyCopying(Saver):
    def _staged(self, name: str, boxes: storage.Boxes) -> storage.Boxes:
        time.sleep(0.01)
        return super()._staged(name, boxes)


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    """What is saved is the state when it was asked for, whatever training does meanwhile."""
    write, trained = storage.write_file, threading.Event()

    def write_later(*arguments: object, **options: object) -> None:
        assert trained.wait(120), "training waits for the disk"
        write(*arguments, **options)

    monkeypatch.setattr(storage, "write_file", write_later)
    made, saver = trainer(2), SlowlyCopying(tmp_path, Mesh())
    expected = {piece.name: piece.master.clone() for piece in made.optimizer.pieces}
    made.save(saver)
    assert names(tmp_path) == []
    made.train_step()
    trained.set()
    saver.wait()
    again = trainer()
    again.load(tmp_path / "step-00000002")
    assert all(torch.equal(piece.master, expected[piece.name]) for piece in again.optimizer.pieces)


KILLED = """
import sys, time
sys.path.insert(0, {repository!r})
from tests.checkpoint.test_checkpoint import *
made, saver = trainer(), Saver(Path("checkpoints"), Mesh())
while True:
    made.train_step()
    made.save(saver)
    saver.wait()
    print(made.step, flush=True)
"""


def test_a_kill_at_any_instant_leaves_a_whole_checkpoint():
    folder = Path("checkpoints")
    for delay in (0.003, 0.011):
        script = KILLED.format(repository=str(REPOSITORY))
        process = python("-c", script, cwd=Path.cwd())
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(3)]
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        newest = newest_good(folder, Mesh(), lambda words: pytest.fail(words))
        assert checkpoint.step_of(newest) >= seen[-1]


def test_optimizer_state_lies_on_the_device_of_its_master():
    """Fused AdamW on a GPU refuses a step counter in host memory: a resumed run would end at its first update."""
    piece = make_piece("w", nn.Parameter(torch.empty(3, 4, device="meta")), 0, 12, Mesh(), sharded=False)
    adam = torch.optim.AdamW([piece.master])
    checkpoint.state_of([piece], adam, owned=False)
    assert {kind: values.device.type for kind, values in adam.state[piece.master].items()} == dict.fromkeys(
        ("step", "exp_avg", "exp_avg_sq"), "meta"
    )
