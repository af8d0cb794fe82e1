"""Checkpoints in object stores: whole or not there, read by any plan, and enough to go on where a disk is lost."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import fsspec
import pytest
import torch
from safetensors import safe_open

from heddle.checkpoint.checkpoint import Saver, checkpoints, damage, newest_good, state_of, step_of
from heddle.checkpoint.object_store import ObjectStore, StoreError
from heddle.checkpoint.places import CheckpointStore
from heddle.checkpoint.remote import RemoteTensors
from heddle.checkpoint.storage import write_file
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.spec import Train
from tests.checkpoint.test_checkpoint import trainer
from tests.helpers.commands import REPOSITORY, call, finish, heddle, losses, write_job
from tests.helpers.launching import free_port, python
from tests.helpers.launching import heddle as launch

URL = "memory://bucket/runs"
SAVES = ("--set", "train.save_every=2", "--set", "train.steps=8")
IN_STORE = ("--set", f"train.checkpoints={URL}", *SAVES)


@pytest.fixture(autouse=True)
def _empty_store():
    fsspec.filesystem("memory").store.clear()
    fsspec.filesystem("memory").pseudo_dirs[:] = [""]


def stored(url: str = f"{URL}/small") -> dict[str, list[str]]:
    store = ObjectStore(url)
    return {name: store.names(name) for name in store.names() if name.startswith("step-")}


def test_only_what_is_asked_for_is_read_and_it_is_what_the_library_reads(tmp_path):
    whole = {
        "a": torch.arange(24.0).view(4, 3, 2),
        "b": torch.tensor(7.0),
        "c": torch.arange(5).to(torch.bfloat16),
        "d": torch.arange(6),
    }
    write_file(tmp_path / "x.safetensors", whole.items())
    with (
        safe_open(tmp_path / "x.safetensors", "pt") as own,
        RemoteTensors(ObjectStore(f"file://{tmp_path}"), "x.safetensors") as remote,
    ):
        assert set(remote.keys()) == set(own.keys())
        assert remote.metadata() == own.metadata()
        for key in whole:
            assert remote.get_slice(key).get_shape() == list(own.get_slice(key).get_shape())
            assert remote.get_slice(key).get_dtype() == own.get_slice(key).get_dtype()
            assert torch.equal(remote.get_tensor(key), own.get_tensor(key))
        for part in (
            (slice(1, 3),),
            (slice(1, 3), slice(0, 2)),
            (slice(0, 4), slice(1, 3), slice(1, 2)),
            (slice(2, 2),),
        ):
            assert torch.equal(remote.get_slice("a")[part], own.get_slice("a")[part])


def test_a_run_in_a_store_goes_on_though_its_folder_is_lost(tmp_path, capsys):
    write_job(tmp_path)
    assert call("train", "job.toml", "--name", "whole", *SAVES) == 0
    assert call("train", "job.toml", *IN_STORE, "--set", "train.steps=5", "--set", "train.schedule=constant") == 0
    assert list(stored()) == ["step-00000004", "step-00000005"]
    assert call("inspect", "runs/small", "--verify") == 0
    assert "all" in capsys.readouterr().out
    assert not list(Path("runs/small/checkpoints").rglob("*.safetensors"))
    shutil.rmtree("runs/small")
    assert call("train", "job.toml", *IN_STORE) == 2
    assert f"The run {URL}/small exists already." in capsys.readouterr().err
    assert call("train", "job.toml", *IN_STORE, "--resume", "--allow-changes") == 0
    assert len(losses(Path("runs/small"))) == 8
    assert list(stored()) == ["step-00000006", "step-00000008"]
    assert call("generate", "runs/small", "--prompt", "a", "--tokens", "2") == 0


def test_the_same_command_starts_a_run_and_continues_it(tmp_path, capsys):
    """As launchers repeat it: before there is a folder, before there is a checkpoint, and after the disk is lost."""
    write_job(tmp_path)
    assert call("train", "job.toml", "--name", "whole", *SAVES) == 0
    command = ("train", "job.toml", *IN_STORE, "--auto-resume")
    Path("runs/small").mkdir(parents=True)
    assert call(*command) == 0
    assert losses(Path("runs/small")) == losses(Path("runs/whole"))
    shutil.rmtree("runs/small/checkpoints")  # killed before the first one was written
    for name in stored():
        CheckpointStore(Path("nowhere"), f"{URL}/small")._delete(name)
    assert call(*command) == 0
    assert losses(Path("runs/small")) == losses(Path("runs/whole"))
    shutil.rmtree("runs")
    capsys.readouterr()
    assert call(*command) == 0
    assert "has already done its 8 steps" in capsys.readouterr().out


def test_a_run_that_goes_on_from_a_store_has_the_losses_of_one_that_never_stopped(tmp_path):
    write_job(tmp_path)
    assert call("train", "job.toml", "--name", "whole", *SAVES) == 0
    store = CheckpointStore(tmp_path / "runs/small/checkpoints", f"{URL}/small")
    assert call("train", "job.toml", *IN_STORE) == 0
    store.remove(checkpoints(store.local.folder)[-1])
    assert call("train", "job.toml", *IN_STORE, "--resume") == 0
    assert losses(Path("runs/small")) == losses(Path("runs/whole"))


def saved(folder: Path, *steps: int, **keep: int) -> CheckpointStore:
    place = CheckpointStore(folder, f"{URL}/small")
    made, saver = trainer(), Saver(folder, Mesh(), place=place, **keep)
    for step in range(1, steps[-1] + 1):
        made.train_step()
        if step in steps:
            made.save(saver)
            saver.wait()
    return place


def names(folder: Path) -> list[int]:
    return [step_of(path) for path in checkpoints(folder)]


def test_the_newest_and_the_chosen_ones_stay(tmp_path):
    saved(tmp_path / "checkpoints", *range(1, 8), keep_last=2, keep_every=3)
    assert names(tmp_path / "checkpoints") == [3, 6, 7]
    assert list(stored()) == ["step-00000003", "step-00000006", "step-00000007"]


def test_what_has_no_description_is_no_checkpoint_and_is_cleared_by_the_next_save(tmp_path):
    folder = tmp_path / "checkpoints"
    place = saved(folder, 1, 2)
    place.store.delete("step-00000002/checkpoint.json")  # as whoever is killed before it is written leaves it
    other = CheckpointStore(tmp_path / "elsewhere", place.store.url)
    other.fetch()
    assert names(other.local.folder) == [1]
    place.fetch()
    assert names(folder) == [1]
    place.begin(3)
    assert list(stored()) == ["step-00000001"]


def flipped(store: ObjectStore, name: str, at: int) -> None:
    content = bytearray(store.read(name))
    content[at] ^= 1
    store.write(name, [bytes(content)])


def as_s3_reads(self: object, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
    """S3 refuses a range of an object that has no bytes."""
    content = bytes(self.store[self._strip_protocol(path)].getbuffer())  # type: ignore[attr-defined]
    if start is not None and start >= len(content):
        raise OSError(22, "The requested range is not satisfiable")
    return content[start:end]


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "missing", "other", "index"])
def test_damage_in_a_store_is_found_and_the_one_before_is_used(tmp_path, change, monkeypatch):
    if change == "empty":
        monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", as_s3_reads)
    folder = tmp_path / "checkpoints"
    place = saved(folder, 1, 2)
    there = place.store.within("step-00000002")
    (part,) = (name for name in there.names() if name.startswith("part"))
    if change == "flip":
        flipped(there, part, -9)
    elif change == "cut":
        there.write(part, [there.read(part)[:-8]])
    elif change == "empty":
        there.write(part, [])
    elif change == "missing":
        there.delete(part)
    elif change == "other":  # whole, but of another step
        first = place.store.within("step-00000001")
        there.write(part, [first.read(next(name for name in first.names() if name.startswith("part")))])
    else:
        flipped(there, "index.json", 40)
        shutil.rmtree(folder / "step-00000002")
        place.fetch()
    said: list[str] = []
    assert newest_good(folder, Mesh(), said.append).name == "step-00000001"
    expected = {"missing": "is missing", "other": "belongs to another checkpoint", "index": "is not valid JSON"}
    assert expected.get(change, "is damaged") in said[0]


def test_a_late_writer_of_a_save_that_was_given_up_changes_nothing(tmp_path):
    """A process on a node that was lost may come back and write on."""
    folder = tmp_path / "checkpoints"
    place = saved(folder, 1)
    made = trainer(1)
    state = state_of(made.optimizer.pieces, made.optimizer.adam, owned=True)
    place.write((1, "00000000"), 0, state, lambda: None)
    assert damage(folder / "step-00000001", Mesh()) is None


def test_a_store_that_cannot_be_reached_is_not_taken_for_damage(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    saved(folder, 1, 2)

    def gone(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", gone)
    with pytest.raises(StoreError, match="cannot be read") as caught:
        newest_good(folder, Mesh(), lambda words: pytest.fail(words))
    assert "no route to host" in caught.value.why


def test_a_store_that_takes_nothing_is_told_before_the_first_step(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)

    def no_bucket(self: object, path: str, mode: str = "rb", **_: object) -> None:
        raise FileNotFoundError(2, "The specified bucket does not exist", path)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "_open", no_bucket)
    assert call("train", "job.toml", *IN_STORE) == 2
    told = capsys.readouterr()
    assert "cannot be written" in told.err
    assert "The specified bucket does not exist" in told.err
    assert "Make the bucket first" in told.err
    assert "step " not in told.out  # nothing was trained in vain


@pytest.mark.parametrize("url", ["bucket/runs", "s3://", "/mnt/x", "s3://a b"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(HeddleError, match="not the URL of an object store"):
        Train(checkpoints=url)


@pytest.mark.parametrize(("url", "word"), [("nonsense://x", "not the URL"), ("simplecache::s3://x", "not the URL")])
def test_protocols_that_nobody_knows_are_refused(url, word):
    with pytest.raises(HeddleError, match=word):
        ObjectStore(url)


KILLED = """
import sys
sys.path.insert(0, {repository!r})
from tests.checkpoint.test_object_store import *
place = CheckpointStore(Path("checkpoints"), {url!r})
made, saver = trainer(), Saver(Path("checkpoints"), Mesh(), place=place)
while True:
    made.train_step()
    made.save(saver)
    saver.wait()
    print(made.step, flush=True)
"""


def killed_while_saving(url: str, delays: list[float], **environment: str) -> None:
    """What another machine finds after each kill is whole, and not older than what was said to be saved."""
    script = KILLED.format(repository=str(REPOSITORY), url=url)
    for number, delay in enumerate(delays):
        process = python("-c", script, cwd=Path.cwd(), **environment)
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(3)]
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        elsewhere = CheckpointStore(Path(f"elsewhere-{number}"), url)
        elsewhere.fetch()
        newest = newest_good(elsewhere.local.folder, Mesh(), lambda words: pytest.fail(words))
        assert step_of(newest) >= seen[-1]
        found = checkpoints(elsewhere.local.folder)
        assert all(damage(each, Mesh()) is None for each in found)
        shutil.rmtree("checkpoints")
        for each in elsewhere._steps():
            elsewhere._delete(each)


@pytest.mark.dist
def test_a_kill_at_any_instant_leaves_nothing_half_visible(tmp_path):
    killed_while_saving(f"file://{tmp_path}/bucket", [0.002, 0.009])


@pytest.fixture
def s3(monkeypatch):
    """A server on this machine that speaks S3; gives the URL of a bucket, and what processes need to know."""
    pytest.importorskip("s3fs", reason="S3 is reached by s3fs")
    server = pytest.importorskip("moto.server", reason="moto is the S3 server of these tests")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "weaver",
        "AWS_SECRET_ACCESS_KEY": "thread",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("bucket")
    yield "s3://bucket/runs", environment
    running.stop()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.dist
def test_two_nodes_without_a_shared_disk_train_through_s3(tmp_path, s3):
    """Each has a folder of its own; after the loss of both, others go on with the same losses."""
    url, environment = s3
    plan = ("--set", "plan.data=2", "--set", "plan.zero=1", *SAVES)
    write_job(tmp_path / "one")
    heddle("train", "job.toml", "--name", "whole", *plan, cwd=tmp_path / "one")

    def both(folders: list[str], *more: str) -> None:
        port = free_port()
        nodes = []
        for rank, folder in enumerate(folders):
            if not (tmp_path / folder).exists():
                write_job(tmp_path / folder)
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            given = ("--set", f"train.checkpoints={url}", *plan, *more)
            nodes.append(launch("train", "job.toml", *given, cwd=tmp_path / folder, **environment, **place))
        for node in nodes:
            finish(node)

    both(["one", "two"])
    store = ObjectStore(f"{url}/small")
    for name in store.names("step-00000008"):  # as if the last had not been written
        store.delete(f"step-00000008/{name}")
    both(["three", "four"], "--resume")
    assert losses(tmp_path / "three/runs/small") == losses(tmp_path / "one/runs/whole")
    assert len([name for name in store.names("step-00000008") if name.startswith("part-")]) == 2


@pytest.mark.slow
@pytest.mark.dist
def test_ten_kills_while_saving_to_s3_leave_nothing_half_visible(s3):
    url, environment = s3
    killed_while_saving(f"{url}/killed", [0.003 * number for number in range(10)], **environment)
