"""What strangers and broken clients send: answered or cut off in bounded time, and the server says nothing of it."""

import json
import socket
import threading
import time
from contextlib import suppress

import pytest

from heddle.errors import HeddleError
from heddle.explore import server as serving
from heddle.explore.answers import answer, show
from heddle.explore.pages import FIRST
from heddle.explore.server import Server, WebSite
from heddle.explore.watch import Follower
from heddle.explore.worker import CanceledError, Workers
from tests.helpers.subjects import write_run


@pytest.fixture
def server():
    made = Server(WebSite("explore.html", {}))
    made.site.answers = {"/plan": dict}
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield made
    made.shutdown()
    made.close()


def connect(server):
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=30)


def said(connection):
    """All that the server says until it closes; nothing where it is cut off."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def raw(server, request):
    with connect(server) as connection:
        with suppress(OSError):  # it may have been sent away already
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        return said(connection)


def head(server, first, **headers):
    lines = [first, f"Host: 127.0.0.1:{server.server_port}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("first", "status"),
    [
        ("GET http://[ HTTP/1.1", 400),
        ("POST http://[::1/plan HTTP/1.1", 400),
        (f"GET /assets/{'x' * 5000}.js HTTP/1.1", 404),
        ("GET /assets/\xff\xfe.js HTTP/1.1", 404),
        ("GET /assets/%2e%2e%2fserver.py HTTP/1.1", 404),
        ("GET /?token=%ff%00&token=é HTTP/1.1", 403),
        ("BREW / HTTP/1.1", 501),
        ("GET / HTTP/9.9", 505),
        ("GET /", "Forbidden"),  # of HTTP 0.9, which has no status
        ("\x16\x03\x01\x02", 400),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_strange_request_is_answered_without_a_word_on_the_terminal(server, first, status, capfd):
    assert str(status).encode() in raw(server, head(server, first))[:700]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("size", ["9" * 5000, "²", "-1", "1e3", "", "0x10", "99999999"])
def test_a_strange_length_is_refused(server, size, capfd):
    asked = head(server, "POST /plan HTTP/1.1", X_Heddle_Token=server.token, Content_Length=size)
    assert b" 413 " in raw(server, asked)
    assert capfd.readouterr().err == ""


def test_a_trickle_is_cut_off_by_one_limit_for_the_whole_request(server, monkeypatch):
    monkeypatch.setattr(serving, "PATIENCE", 1.0)
    with connect(server) as connection:
        cut = []

        def listen():
            said(connection)
            cut.append(True)

        listener = threading.Thread(target=listen)
        listener.start()
        for sent in range(200):  # one byte every tenth of a second would take twenty
            if cut:
                break
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nX: y"[sent : sent + 1] or b"y")
            except OSError:
                break
            time.sleep(0.1)
        listener.join(30)
        assert sent < 150


def test_the_number_of_connections_is_bounded_and_the_server_goes_on(server, monkeypatch):
    server.free = threading.BoundedSemaphore(3)
    held = [connect(server) for _ in range(3)]
    while server.free.acquire(blocking=False):  # not all are accepted yet
        server.free.release()
        time.sleep(0.01)
    with connect(server) as fourth:
        assert said(fourth) == b""  # sent away at once
    for connection in held:
        connection.close()
    deadline = time.monotonic() + 30
    while b" 403 " not in raw(server, head(server, "GET / HTTP/1.1")):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("host", ["", "a..b", "a" * 300, "no-such-host.invalid", "203.0.113.1", "[::1]"])
def test_a_strange_host_is_told_in_three_parts(host):
    with pytest.raises(HeddleError) as found:
        Server(WebSite("explore.html", {}), host)
    assert found.value.what
    assert found.value.why
    assert found.value.hint


@pytest.mark.parametrize("name", ["nodes", "sequence", "global_batch", "memory_gib", "tokens", "price"])
def test_a_whole_number_that_no_float_holds_is_told(name):
    assert answer({"model": "tiny", name: 10**400}, FIRST)["error"]["field"] == name


@pytest.mark.parametrize("plans", [5, True, "x", {"tensor": 2}, [], [3], None])
def test_plans_that_are_none_are_told(plans):
    assert show({"plans": plans}, FIRST)["error"]["what"] == "No plan was sent."


def test_a_question_that_waits_for_its_turn_is_canceled_too():
    workers, ended = Workers(), []
    workers.slots = threading.BoundedSemaphore(1)
    workers.slots.acquire()

    def first():
        try:
            workers.ask("page", dict, {"old": 1})
        except CanceledError:
            ended.append(True)

    waiting = threading.Thread(target=first)
    waiting.start()
    while "page" not in workers.asked:
        time.sleep(0.01)
    found = []
    second = threading.Thread(target=lambda: found.append(workers.ask("page", dict, {"new": 1})))
    old = workers.asked["page"]
    second.start()
    while workers.asked["page"] is old:
        time.sleep(0.01)
    workers.slots.release()
    for thread in (waiting, second):
        thread.join(60)
    assert ended == [True]
    assert found == [{"new": 1}]


def test_metrics_that_become_something_else_do_not_end_the_watch(tmp_path):
    folder = write_run(tmp_path / "small")
    follower = Follower(folder)
    assert follower.look()[1]
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").mkdir()
    assert follower.look() == (False, [])
    (folder / "metrics.jsonl").rmdir()
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 2.0}) + "\n")
    assert follower.look()[1] == [{"step": 1, "loss": 2.0}]
