"""Sites that die and join while the others train on: what counts, who waits, and who is let in."""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import torch
from safetensors.torch import load_file

from heddle.checkpoint.index import read_index
from heddle.errors import HeddleError
from heddle.parallel.codecs import CODECS
from heddle.parallel.mesh import Mesh
from heddle.spec.job import job_from_tables
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.sites import door, wire
from heddle.training.sites.door import Door
from heddle.training.sites.member import Member, exchange
from heddle.training.sites.place import MeetingPlace
from heddle.training.sites.secret import SECRET_FILE, new_secret, read_secret, shared_secret
from heddle.training.sites.site_step import settings
from heddle.training.sites.wire import Channel, LostError, StrangerError, connect
from heddle.training.step.trainer import Trainer
from tests.helpers.commands import ENVIRONMENT, REPOSITORY, call, write_job
from tests.helpers.launching import heddle, wait_for_steps, wait_until

WAIT = 15.0
TABLES = {
    "model": {"layers": 1, "hidden": 16, "heads": 2, "vocab": 32, "sequence": 16, "ffn": 32},
    "data": {"text": "-"},
    "plan": {"microbatch": 2},
}


@pytest.fixture(scope="module")
def secret_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("secret") / "site.pem"
    new_secret(path)
    return path


@pytest.fixture
def secret(secret_file, monkeypatch):
    """A secret that sites of this process have, and those that it starts."""
    monkeypatch.setenv(SECRET_FILE, str(secret_file))
    return read_secret(secret_file)


@contextmanager
def meeting_place(secret, host="127.0.0.1", wait=WAIT):
    """A meeting place for two sites at least, and what it says."""
    said: list[str] = []
    made = MeetingPlace((host, 0), secret, 2, wait, said.append)
    made.said, made.scripted = said, []  # type: ignore[attr-defined]
    serving = threading.Thread(target=made.serve, daemon=True)
    serving.start()
    try:
        yield made
    finally:
        for site in made.scripted:  # type: ignore[attr-defined]
            site.die()
        made.close()
        serving.join()


@pytest.fixture
def place(secret):
    with meeting_place(secret) as made:
        yield made


class Run:
    """Processes of some sites; none is left when the test is over."""

    def __init__(self, place: MeetingPlace, steps: int, every: int, code: str = "int8", pause: float = 0.0) -> None:
        train = {"steps": steps, "global_batch": 2, "meet_every": every, "meeting": f"127.0.0.1:{place.port}"}
        plan = TABLES["plan"] | {"compress_gradients": code}
        self.tables, self.pause = TABLES | {"train": train, "plan": plan}, pause
        self.processes: dict[str, subprocess.Popen] = {}
        self.told: dict[str, list[dict]] = {}

    def start(self, name: str) -> None:
        tables = self.tables | {"train": self.tables["train"] | {"site": name}}
        command = [
            sys.executable,
            "-m",
            "tests.helpers.site_of_a_run",
            json.dumps({"job": tables, "pause": self.pause}),
        ]
        environment = ENVIRONMENT | {SECRET_FILE: os.environ[SECRET_FILE], "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, **pipes)
        self.processes[name], told = process, self.told.setdefault(name, [])

        def read() -> None:
            told.extend(json.loads(line) for line in process.stdout)

        threading.Thread(target=read, daemon=True).start()

    def go(self, *names: str) -> None:
        """Let sites that have been started begin, or join."""
        self.until(lambda: all(self.told[name] for name in names))
        for name in names:
            self.processes[name].stdin.write("go\n")
            self.processes[name].stdin.flush()

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def meetings(self, name: str) -> list[dict]:
        return [each for each in self.told[name] if "step" in each]

    def until(self, what, seconds: float = 240.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, self.told
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.communicate()


def agree(run: Run) -> None:
    """Whoever was at a meeting has the weights of all others who were."""
    by_step: dict[int, set[str]] = {}
    for name in run.told:
        for each in run.meetings(name):
            by_step.setdefault(each["step"], set()).add(each["weights"])
    assert all(len(weights) == 1 for weights in by_step.values()), by_step


def train_here(place: MeetingPlace, name: str, told: dict, begin, dies_at=None, host="127.0.0.1") -> None:
    """A site in a thread; one that dies lets go of its sockets, as a process that is killed does."""
    if begin is not None:
        begin.wait(60)
    train = {"steps": 60, "global_batch": 2, "meet_every": 5, "meeting": f"{host}:{place.port}", "site": name}
    job = job_from_tables(TABLES | {"train": train, "plan": TABLES["plan"] | {"compress_gradients": "int8"}})
    trainer = Trainer(job, synthetic_tokens(job), Mesh())
    while trainer.step < 60:
        trainer.train_step()
        if dies_at is not None and trainer.step >= dies_at:
            trainer.outer.close()  # type: ignore[attr-defined]
            return
        if trainer.outer.due(trainer.step):  # type: ignore[attr-defined]
            weights = b"".join(piece.master.detach().numpy().tobytes() for piece in trainer.optimizer.pieces)
            told[name].append((trainer.step, weights))


def test_sites_go_on_when_one_dies_and_a_new_one_takes_their_state(place):
    told: dict[str, list] = {name: [] for name in "abcd"}
    now, later = threading.Event(), threading.Event()
    now.set()
    sites = {"a": (now, None), "b": (now, None), "c": (now, 13), "d": (later, None)}
    threads = [
        threading.Thread(target=train_here, args=(place, name, told, begin, dies), daemon=True)
        for name, (begin, dies) in sites.items()
    ]
    for thread in threads[:3]:
        thread.start()
    while len(told["a"]) < 3 and any(thread.is_alive() for thread in threads[:3]):
        time.sleep(0.002)
    later.set()
    threads[3].start()
    for thread in threads:
        thread.join(60)
    met = {step: {each[1] for name in "abcd" for each in told[name] if each[0] == step} for step in range(5, 65, 5)}
    assert all(len(weights) == 1 for weights in met.values())  # the same bits wherever they met
    assert told["d"][-1][0] == 60
    assert told["c"][-1][0] == 10


@pytest.mark.slow
@pytest.mark.dist
def test_one_is_killed_another_joins_and_all_end_alike(place):
    with Run(place, steps=150, every=5, pause=0.02) as run:
        for name in "abcd":
            run.start(name)
        run.until(lambda: all(run.told[name] for name in "abcd"))
        run.go("a", "b", "c")
        run.until(lambda: run.meetings("a") and run.meetings("b"))
        run.kill("c")
        before = len(run.meetings("a"))
        run.until(lambda: len(run.meetings("a")) > before)
        run.go("d")
        run.until(lambda: all(process.poll() is not None for name, process in run.processes.items() if name != "c"))
        assert [run.processes[name].returncode for name in "abd"] == [0, 0, 0]
        agree(run)
        ends = {run.told[name][-1]["weights"] for name in "abd"}
        assert len(ends) == 1
        assert run.meetings("d"), "the new site was at a meeting"
        losses = [each["loss"] for each in run.meetings("a")]
        assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.dist
def test_ten_leave_and_join_and_the_run_never_stops(place):
    with Run(place, steps=600, every=5, pause=0.02) as run:
        names = ["a", "b", *(f"new{number}" for number in range(6))]
        for name in names:
            run.start(name)
        run.until(lambda: all(run.told[name] for name in names))
        run.go("a", "b")
        alive, new = ["b"], names[2:]
        for event in range(12):
            seen = len(run.told["a"])
            run.until(lambda seen=seen: len(run.told["a"]) > seen)
            if event % 2 == 0:
                alive.append(new.pop(0))
                run.go(alive[-1])
                run.until(lambda: run.meetings(alive[-1]), 200)
            else:
                began, seen = time.monotonic(), len(run.told["a"])
                run.kill(alive.pop(0))
                run.until(lambda seen=seen: len(run.told["a"]) > seen + 1)
                assert time.monotonic() - began < WAIT + 60
        run.until(lambda: all(run.processes[name].poll() is not None for name in ["a", *alive]), 300)
        assert all(run.processes[name].returncode == 0 for name in ["a", *alive])
        agree(run)
        assert len({run.told[name][-1]["weights"] for name in ["a", *alive]}) == 1


class Scripted:
    """A site that only talks."""

    def __init__(self, place: MeetingPlace, name: str, step=0, at=0, history="", **settings) -> None:
        self.channel = connect("127.0.0.1", place.port, place.door.secret, 5.0).within(20.0)
        facts = {"site": name, "step": step, "place": at, "history": history, "settings": settings}
        self.channel.say(facts | {"addresses": [name]})
        place.scripted.append(self)  # type: ignore[attr-defined]

    def hear(self) -> dict:
        return self.channel.hear()

    def ready(self, step: int) -> None:
        self.channel.say({"ready": step, "last": 1000})

    def die(self) -> None:
        self.channel.close()


def met(sites: list[Scripted], step: int) -> list[dict]:
    """Let sites meet after a step; what each hears then."""
    for site in sites:
        site.ready(step)
    for site in sites:
        site.channel.say({"done": site.hear()["meet"], "well": True})
    return [site.hear() for site in sites]


def test_a_run_that_lost_its_quorum_goes_on_where_its_sites_resume(secret):
    with meeting_place(secret, wait=0.3) as place:
        a, b = Scripted(place, "a"), Scripted(place, "b")
        assert [site.hear()["place"] for site in (a, b)] == [0, 1]
        assert [word["place"] for word in met([a, b], 5)] == [2, 3]
        a.die()
        b.ready(10)
        assert "1 of at least 2" in b.hear()["refused"]
        b.die()
        a, b = Scripted(place, "a", 5, 2, "same"), Scripted(place, "b", 5, 3, "same")
        words = [a.hear(), b.hear()]
        assert all("start" in word for word in words)
        assert sorted(word["place"] for word in words) == [4, 5]
        assert {word["place"] for word in met([a, b], 10)} == {6, 7}


def test_who_waits_for_a_state_begins_when_the_last_site_that_had_it_is_gone(secret):
    with meeting_place(secret) as place:
        a, b = Scripted(place, "a"), Scripted(place, "b")
        a.hear(), b.hear()
        met([a, b], 5)
        new = [Scripted(place, "c"), Scripted(place, "d")]
        wait_until(lambda: len(place.sites) == 4, "they are not there")
        a.die(), b.die()
        wait_until(lambda: any("start one with --resume" in line for line in place.said), place.said)
        again = Scripted(place, "a", 5, 2, "what a has")  # nobody starts over where somebody has come further
        assert again.hear()["give"] == [["c"], ["d"]]
        assert all(site.hear()["take"] for site in new)


def test_sites_that_resume_with_different_states_agree_on_one_before_they_train(secret):
    with meeting_place(secret) as place:
        place.quorum = 4
        sites = [
            Scripted(place, name, step, 7, history)
            for name, step, history in (("a", 10, "x"), ("b", 10, "y"), ("c", 5, "x"), ("d", 10, "y"))
        ]
        words = [site.hear() for site in sites]
        assert ["start" in word for word in words] == [False, True, False, True]
        assert sorted(str(each) for word in words for each in word.get("give", ())) == ["['a']", "['c']"]
        # the meeting place knows of no sample that was trained on; the sites do
        assert sorted(word["place"] for word in words) == [7, 8, 9, 10]


def test_a_site_with_other_settings_is_refused_by_name(place):
    Scripted(place, "a", **{"train.seed": 0, "model.hidden": 16})
    wait_until(lambda: place.sites, "it is not there")
    assert (
        "train.seed is 1 there and 0 at the others"
        in Scripted(place, "b", **{"train.seed": 1, "model.hidden": 16}).hear()["refused"]
    )


def test_all_that_changes_numbers_is_compared_and_nothing_else():
    tables = TABLES | {"train": {"meeting": "127.0.0.1:1", "steps": 10}}
    plain = settings(job_from_tables(tables).planned)
    others = {
        "seed": 1,
        "outer_learning_rate": 0.5,
        "outer_momentum": 0.5,
        "precision": "bf16",
        "global_batch": 16,
        "meet_every": 50,
        "steps": 20,
        "learning_rate": 1e-3,
        "clip": 0.5,
    }
    for key, value in others.items():
        changed = settings(job_from_tables(tables | {"train": tables["train"] | {key: value}}).planned)
        assert [name for name in plain | changed if plain.get(name) != changed.get(name)] == [f"train.{key}"]
    for key, value in {"site": "b", "name": "b", "meeting": "127.0.0.1:2", "log_every": 1, "restarts": 0}.items():
        assert settings(job_from_tables(tables | {"train": tables["train"] | {key: value}}).planned) == plain


@pytest.mark.dist
def test_killed_sites_resume_as_the_manual_says(secret, tmp_path):
    """One is killed, the other ends for want of a quorum; both resume, from different steps, and end alike."""
    write_job(tmp_path)
    with meeting_place(secret, wait=1.0) as place:
        train = {"meeting": f"127.0.0.1:{place.port}", "meet_every": 5, "steps": 40, "eval_batches": 0}

        def started(name: str, save: int, *more: str):
            changes = [f"train.{key}={value}" for key, value in train.items()]
            changes += [f"train.site={name}", f"train.save_every={save}", "plan.compress_gradients=int8"]
            words = [word for change in changes for word in ("--set", change)]
            return heddle("train", "job.toml", "--name", name, *words, *more, cwd=tmp_path, **here)

        here = {SECRET_FILE: os.environ[SECRET_FILE]}
        sites = started("a", 5), started("b", 10)
        wait_for_steps(tmp_path / "runs/b", 16)
        sites[1].kill()
        out, errors = sites[0].communicate(timeout=60)
        assert sites[0].returncode == 2, out + errors
        assert "1 of at least 2 sites are left" in errors
        again = started("a", 5, "--resume"), started("b", 10, "--resume")
        for process in again:
            out, errors = process.communicate(timeout=60)
            assert process.returncode == 0, out + errors
    ends = [tmp_path / f"runs/{name}/checkpoints/step-00000040" for name in "ab"]
    one, two = (load_file(folder / "part-00000.safetensors") for folder in ends)
    kept = {name: tensor.boxes[0].key for name, tensor in read_index(ends[0]).items()}
    shared = [key for name, key in kept.items() if ":" not in name or name.endswith(":outer_momentum")]
    assert len(shared) > len(kept) / 4
    assert all(torch.equal(one[key], two[key]) for key in shared)


def test_a_dry_run_of_a_site_needs_no_others(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(SECRET_FILE, raising=False)
    write_job(tmp_path)
    changes = ["train.meeting=127.0.0.1:1", "train.meet_every=1", "train.steps=1"]
    assert call("train", tmp_path / "job.toml", "--dry-run", *(f"--set={change}" for change in changes)) == 0
    assert "Every kind of rank took its step" in capsys.readouterr().out


def test_strangers_are_not_let_in(place, tmp_path):
    new_secret(tmp_path / "other.pem")
    with pytest.raises(StrangerError):
        connect("127.0.0.1", place.port, read_secret(tmp_path / "other.pem"), 5.0)
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    nobody = anybody.wrap_socket(socket.create_connection(("127.0.0.1", place.port)))
    with nobody, pytest.raises(ssl.SSLError):  # it has shown no certificate
        nobody.recv(1)
    with socket.create_connection(("127.0.0.1", place.port)) as noise:
        noise.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
        noise.settimeout(15)
        with suppress(ConnectionResetError):
            while noise.recv(1000):
                pass
    assert not place.sites
    assert any("refused" in line for line in place.said)


def test_strangers_who_trickle_keep_nobody_out(secret, monkeypatch):
    """More of them than may wait at once; and one alone, whose bytes come before any of them is late."""
    come: queue.Queue[Channel] = queue.Queue()
    refused: list[str] = []
    entrance = Door(("127.0.0.1", 0), secret, come.put, lambda _, why: refused.append(str(why)))
    strangers = [socket.create_connection(("127.0.0.1", entrance.port)) for _ in range(door.MOST + 40)]
    for stranger in strangers:
        stranger.sendall(b"\x16")
    for _ in range(3):
        friend = connect("127.0.0.1", entrance.port, secret, 5.0)
        friend.say({"here": True})
        channel = come.get(timeout=20)
        assert channel.hear() == {"here": True}
        channel.close(), friend.close()
    assert len(entrance.waiting) <= door.MOST
    for stranger in strangers:
        stranger.close()
    monkeypatch.setattr(wire, "SHAKE", 0.5)
    with socket.create_connection(("127.0.0.1", entrance.port)) as slow, suppress(OSError):
        for byte in b"\x16\x03\x01\x02\x00" + bytes(500):
            slow.sendall(bytes([byte]))
            time.sleep(0.05)
        raise AssertionError("it was let talk for as long as it liked")
    wait_until(lambda: "the other end has not proven itself within 0 s" in refused or "timed out" in refused, refused)
    entrance.close()


def test_a_door_stays_open_when_descriptors_have_run_out(secret):
    come: queue.Queue[Channel] = queue.Queue()
    entrance = Door(("127.0.0.1", 0), secret, come.put)
    hoard = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    friend, stranger = socket.socket(), socket.socket()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(friend.fileno() + 20, 64), limits[1]))
        with suppress(OSError):
            while True:
                hoard.append(os.open(os.devnull, os.O_RDONLY))
        stranger.connect(("127.0.0.1", entrance.port))
        friend.connect(("127.0.0.1", entrance.port))
        time.sleep(3 * door.PAUSE)  # in which nobody can be let in
    finally:
        for descriptor in hoard:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    channel = Channel(friend, secret, server=False)
    come.get(timeout=20).close()
    channel.close()
    stranger.close()
    entrance.close()


def pair(secret) -> tuple[Channel, Channel]:
    one, two = socket.socketpair()
    made: list[Channel] = []
    thread = threading.Thread(target=lambda: made.append(Channel(two, secret, server=True)))
    thread.start()
    client = Channel(one, secret, server=False)
    thread.join()
    return client, made[0]


def test_what_travels_cannot_be_read_or_changed(secret):
    client, server = pair(secret)
    client.say({"all": "well"})
    seen = server.connection.recv(1000, socket.MSG_PEEK)
    assert b"well" not in seen
    assert server.hear() == {"all": "well"}
    client.say({"all": "well"})
    coded = bytearray(server.connection.recv(1000))
    coded[-1] ^= 1
    server._coming.write(coded)
    with pytest.raises(LostError, match="changed"):
        server.hear()
    for end in (client, server):
        end.close()
    client, server = pair(secret)
    client.send(b"[1, 2]")
    with pytest.raises(LostError, match="not a table"):
        server.hear()
    client.send(bytes(100))
    with pytest.raises(LostError, match="at most 10"):
        server.receive(10)
    client.close()
    server.close()


def test_both_ends_may_send_and_receive_at_once(secret):
    ends = pair(secret)
    frame = os.urandom(1 << 22)
    senders = [threading.Thread(target=end.send, args=(frame,)) for end in ends]
    for sender in senders:
        sender.start()
    found: list[bytearray] = []
    receivers = [threading.Thread(target=lambda end=end: found.append(end.receive(len(frame)))) for end in ends]
    for thread in receivers:
        thread.start()
    for thread in (*senders, *receivers):
        thread.join(60)
    assert found == [frame, frame]
    for end in ends:
        end.close()


@pytest.mark.parametrize("code", ["none", "int8", "int4"])
def test_all_members_get_the_same_mean_and_nothing_is_lost(code, secret):
    """With what codes could not say added to the next: the sum of what was sent is that of what was meant."""
    members = [Member("127.0.0.1:1", name, Mesh()) for name in "abc"]
    addresses = [[member.address] for member in members]
    torch.manual_seed(0)
    count, codec = 1000, CODECS.get(code)
    left = [torch.zeros(count) for _ in members]
    meant, said = torch.zeros(count), torch.zeros(count)
    for attempt in range(5):
        brought = [torch.randn(count) for _ in members]
        meant += torch.stack(brought).mean(0)
        found: dict[int, tuple] = {}

        def take_part(number: int, attempt=attempt, brought=brought, found=found, left=left) -> None:
            word = {"meet": attempt, "number": number, "members": addresses}
            found[number] = exchange(members[number], word, brought[number] + left[number], codec)

        threads = [threading.Thread(target=take_part, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        means = [found[number][0] for number in range(3)]
        assert torch.equal(means[0], means[1])
        assert torch.equal(means[0], means[2])
        said += means[0]
        left = [found[number][1] for number in range(3)]
    torch.testing.assert_close(said + torch.stack(left).mean(0), meant, rtol=1e-4, atol=1e-5)
    for member in members:
        member.close()


def test_sites_meet_over_ipv6(secret):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    with meeting_place(secret, "::1") as place:
        told: dict[str, list] = {"a": [], "b": []}
        threads = [
            threading.Thread(target=train_here, args=(place, name, told, None), kwargs={"host": "[::1]"}, daemon=True)
            for name in told
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert told["a"] == told["b"]
        assert told["a"][-1][0] == 60


def test_a_secret_is_a_regular_file_with_a_key_and_its_certificate(secret_file, tmp_path, monkeypatch):
    assert secret_file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(HeddleError, match="cannot be written"):
        new_secret(secret_file)
    monkeypatch.delenv(SECRET_FILE, raising=False)
    with pytest.raises(HeddleError, match="is not set"):
        shared_secret()
    os.mkfifo(tmp_path / "pipe")
    whole = secret_file.read_text()
    key, certificate = whole.split("-----BEGIN CERTIFICATE")
    bad = {
        "nothing": b"",
        "old": b"0123456789abcdef" * 4,
        "latin": "gehe\xefm".encode("latin-1") * 8,
        "key": key.encode(),
        "certificate": f"-----BEGIN CERTIFICATE{certificate}".encode(),
        "cut": whole[: len(whole) // 2].encode(),
        "long": whole.encode() * 1000,
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    for path in (*(tmp_path / name for name in bad), tmp_path / "pipe", tmp_path, "/dev/zero", tmp_path / "none"):
        monkeypatch.setenv(SECRET_FILE, str(path))
        with pytest.raises(HeddleError, match="secret cannot be read"):
            shared_secret()
