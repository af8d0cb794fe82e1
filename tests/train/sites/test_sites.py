"""Sites that die and join while the others train on: what counts, who waits, and who is let in."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
import torch

from heddle.errors import HeddleError
from heddle.parallel.codecs import CODECS
from heddle.parallel.mesh import Mesh
from heddle.spec.job import job_from_tables
from heddle.train.prove.prove import synthetic_tokens
from heddle.train.sites.member import Member, exchange
from heddle.train.sites.place import MeetingPlace
from heddle.train.sites.wire import Channel, LostError, connect, parsed_address, shared_secret
from heddle.train.step.trainer import Trainer
from tests.helpers.commands import ENVIRONMENT, REPOSITORY

SECRET = "a secret of these tests alone"
WAIT = 15.0
TABLES = {
    "model": {"layers": 1, "hidden": 16, "heads": 2, "vocab": 32, "sequence": 16, "ffn": 32},
    "data": {"text": "-"},
    "plan": {"microbatch": 2},
}


@pytest.fixture
def place():
    """A meeting place on loopback, for two sites at least, and what it says."""
    said: list[str] = []
    made = MeetingPlace(("127.0.0.1", 0), SECRET.encode(), 2, WAIT, said.append)
    made.said = said
    serving = threading.Thread(target=made.serve, daemon=True)
    serving.start()
    yield made
    made.close()
    serving.join()


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
        environment = ENVIRONMENT | {"HEDDLE_SECRET": SECRET, "OMP_NUM_THREADS": "1"}
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


def train_here(place: MeetingPlace, name: str, told: dict, begin: threading.Event, dies_at: int | None = None) -> None:
    """A site in a thread; one that dies lets go of its sockets, as a process that is killed does."""
    begin.wait(60)
    train = {"steps": 60, "global_batch": 2, "meet_every": 5, "meeting": f"127.0.0.1:{place.port}", "site": name}
    job = job_from_tables(TABLES | {"train": train, "plan": TABLES["plan"] | {"compress_gradients": "int8"}})
    trainer = Trainer(job, synthetic_tokens(job), Mesh())
    while trainer.step < 60:
        trainer.train_step()
        if dies_at is not None and trainer.step >= dies_at:
            trainer.outer.close()
            return
        if trainer.outer.due(trainer.step):
            weights = b"".join(piece.master.detach().numpy().tobytes() for piece in trainer.optimizer.pieces)
            told[name].append((trainer.step, weights))


def test_sites_go_on_when_one_dies_and_a_new_one_takes_their_state(place, monkeypatch):
    monkeypatch.setenv("HEDDLE_SECRET", SECRET)
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


def test_strangers_are_not_let_in(place):
    with pytest.raises(LostError):
        connect("127.0.0.1", place.port, b"another secret, as long as it is", 5.0)
    with socket.create_connection(("127.0.0.1", place.port)) as noise:
        noise.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
        noise.settimeout(15)
        with suppress(ConnectionResetError):
            while noise.recv(1000):
                pass
    assert not place.sites
    assert any("refused" in line for line in place.said)


def pair() -> tuple[Channel, Channel]:
    one, two = socket.socketpair()
    made: list[Channel] = []
    thread = threading.Thread(target=lambda: made.append(Channel(_tcp(two), SECRET.encode(), server=True)))
    thread.start()
    client = Channel(_tcp(one), SECRET.encode(), server=False)
    thread.join()
    return client, made[0]


class _tcp:  # noqa: N801 (stands in for a socket)
    """A socket of a pair, which has no options of TCP."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner

    def setsockopt(self, *_):
        pass

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_a_frame_that_was_changed_ends_the_connection():
    client, server = pair()
    client.say({"all": "well"})
    assert server.hear() == {"all": "well"}
    client._sends = bytes(32)
    client.say({"all": "well"})
    with pytest.raises(LostError, match="changed"):
        server.hear()
    for end in (client, server):
        end.close()
    client, server = pair()
    client.send(b"[1, 2]")
    with pytest.raises(LostError, match="not a table"):
        server.hear()
    client.send(bytes(100))
    with pytest.raises(LostError, match="at most 10"):
        server.receive(10)
    client.close()
    server.close()


@pytest.mark.parametrize("code", ["none", "int8", "int4"])
def test_all_members_get_the_same_mean_and_nothing_is_lost(code, monkeypatch):
    """With what codes could not say added to the next: the sum of what was sent is that of what was meant."""
    monkeypatch.setenv("HEDDLE_SECRET", SECRET)
    members = [Member("127.0.0.1:1", name, "", Mesh()) for name in "abc"]
    addresses = [[f"127.0.0.1:{member.listener.getsockname()[1]}"] for member in members]
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


def test_secrets_and_addresses_are_asked_for(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(HeddleError, match="no shared secret"):
        shared_secret()
    assert parsed_address("10.0.0.1:29700") == ("10.0.0.1", 29700)
    with pytest.raises(HeddleError, match="is not an address"):
        parsed_address("somewhere")
