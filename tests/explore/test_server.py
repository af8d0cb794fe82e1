"""Who may ask the server, and what it answers; without a browser."""

import http.client
import json
import multiprocessing.forkserver
import threading
import time
from typing import Any

import pytest

from heddle.explore.answers import answer, job_file, scaling
from heddle.explore.choices import PINNED
from heddle.explore.pages import FIRST, explore_site, watch_site
from heddle.explore.server import LARGEST, Server, WebSite
from heddle.explore.worker import CanceledError, Workers
from heddle.planning.best import best
from heddle.planning.request import PlanRequest
from heddle.runtime import forkserver
from heddle.spec.job import job_from_tables
from tests.helpers.commands import call
from tests.helpers.subjects import write_run

SMALL = {"model": "tiny", "cluster": "dgx-a100-80gb", "nodes": 1, "global_batch": 32}


@pytest.fixture(scope="module")
def server():
    made = Server(explore_site(None))
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield made
    made.shutdown()
    made.close()


def ask(server, method, path, body=b"", **headers):
    """The status, the headers and what was answered."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    given = {"Host": f"127.0.0.1:{server.server_port}"} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    connection.putrequest(method, path, skip_host=True)
    for key, value in given.items():
        connection.putheader(key, value)
    if method == "POST" and "Content-Length" not in given:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    found = connection.getresponse()
    text = found.read()
    connection.close()
    return found.status, dict(found.getheaders()), text


def test_the_page_and_its_answers_come_with_the_token_alone(server):
    question = json.dumps(SMALL).encode()
    status, headers, text = ask(server, "GET", f"/?token={server.token}")
    assert status == 200
    assert b"Explore plans" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert ask(server, "POST", "/plan", question, X_Heddle_Token=server.token)[0] == 200
    for path in ("/", "/?token=", f"/?token={server.token}x", "/events"):
        assert ask(server, "GET", path)[0] == 403
    assert ask(server, "POST", "/plan", question)[0] == 403
    assert ask(server, "POST", "/plan", question, X_Heddle_Token="guess")[0] == 403


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
    ids=str,
)
def test_other_pages_of_the_browser_are_refused(server, headers):
    assert ask(server, "GET", f"/?token={server.token}", **headers)[0] == 403
    assert ask(server, "POST", "/plan", b"{}", X_Heddle_Token=server.token, **headers)[0] == 403


@pytest.mark.parametrize(
    "name",
    ["../server.py", "..%2fserver.py", "/etc/passwd", "pages.py", ".html", "explore.html%00.js", "nothing.js", ""],
)
def test_no_file_beside_those_of_the_page_is_given(server, name):
    assert ask(server, "GET", f"/assets/{name}")[0] == 404


def test_what_is_no_question_is_refused_before_it_is_read(server):
    token = {"X_Heddle_Token": server.token}
    assert ask(server, "POST", "/plan", b"{", **token)[0] == 400
    assert ask(server, "POST", "/plan", b"[" * 60_000, **token)[0] == 400
    assert ask(server, "POST", "/plan", b"", Content_Length=str(LARGEST + 1), **token)[0] == 413
    assert ask(server, "POST", "/plan", b"", Content_Length="-1", **token)[0] == 413
    assert ask(server, "POST", "/nothing", b"{}", **token)[0] == 404


def test_the_page_is_small(server):
    names = ("style.css", "live.css", "spans.js", "picture.js", "timeline.js", "explore.js")
    sizes = [len(ask(server, "GET", f"/assets/{name}")[2]) for name in names]
    assert all(sizes)
    assert sum(sizes) + len(ask(server, "GET", f"/?token={server.token}")[2]) < 400_000


def test_numbers_are_those_of_the_command(tmp_path, capsys):
    found = answer(SMALL | {"pins": {"tensor": 2}, "price": "2.5", "tokens": "1e9"}, FIRST)
    (tmp_path / "job.toml").write_text(found["job"])
    options = ("--tensor", "2", "--price", "2.5", "--tokens", "1e9", "--top", "6", "--json")
    assert call("plan", tmp_path / "job.toml", "--free", *options) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each | {"seconds": 0} for each in found["facts"]["plans"]] == [
        each | {"seconds": 0} for each in told["plans"]
    ]
    assert call("simulate", tmp_path / "job.toml", "--json") == 0  # what is exported is a job
    assert json.loads(capsys.readouterr().out)["step_seconds"] == found["facts"]["plans"][0]["step_seconds"]


def test_a_pin_says_what_it_costs():
    free = answer(SMALL, FIRST)
    pinned = answer(SMALL | {"pins": {"tensor": 4}}, FIRST)
    assert free["pinned"] == ""
    steps = [found["facts"]["plans"][0]["step_seconds"] for found in (free, pinned)]
    assert steps[1] > steps[0]
    assert f"{steps[1] / steps[0] - 1:.1%} longer" in pinned["pinned"]


def test_a_plan_is_chosen_and_laid_beside_another():
    found = answer(SMALL | {"selected": 1, "other": 0}, FIRST)
    assert 'data-select="1" aria-pressed="true"' in found["table"]
    assert "second to first" in found["parts"]["compare"]
    assert answer(SMALL, FIRST)["parts"]["compare"] == ""


def test_scaling_has_its_own_best_plan_for_each_size():
    found = scaling(SMALL | {"nodes": 4}, FIRST)["points"]
    assert [each["nodes"] for each in found] == [1, 2, 4, 8, 16][: len(found)]
    job = job_from_tables({"model": {"preset": "tiny"}, "cluster": {"preset": "dgx-a100-80gb", "nodes": 2}} | {
        "train": {"global_batch": 32}
    })  # fmt: skip
    alone = best(job, PlanRequest(top=1, by_layer=False)).best
    assert found[1]["tokens_per_second"] == alone.tokens_per_second


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nodes": "many"}, "nodes"),
        ({"nodes": 0}, "nodes"),
        ({"nodes": 1.5}, "nodes"),
        ({"nodes": float("1e400")}, "nodes"),
        ({"global_batch": -1}, "global_batch"),
        ({"global_batch": [1]}, "global_batch"),
        ({"global_batch": 7, "pins": {"data": 8}}, "data"),
        ({"sequence": "1e30"}, "sequence"),
        ({"model": "gpt-5"}, "model"),
        ({"model": {"preset": "tiny"}}, "model"),
        ({"cluster": "../../secret.toml"}, "cluster"),
        ({"precision": "fp7"}, "precision"),
        ({"pins": {"tensor": 7}}, "tensor"),
        ({"pins": {"tensor": "x"}}, "tensor"),
        ({"pins": {"offload": ["weights:host"]}}, "pins"),
        ({"pins": [1]}, "pins"),
        ({"memory_gib": 0.001}, "memory_gib"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told_in_three_parts_beside_its_field(change, field):
    found = answer(SMALL | change, FIRST)
    told = found["error"]
    assert told["what"]
    assert told["why"]
    assert told["hint"]
    assert told["field"] == field or field == "memory_gib"


@pytest.mark.parametrize("question", [None, 3, "x", [], [[]]])
def test_what_is_no_table_is_told(question):
    assert "error" in answer(question, FIRST)
    assert "error" in scaling(question, FIRST)


def test_only_what_the_planner_chooses_can_be_pinned():
    assert {"tensor", "pipeline", "data", "zero", "microbatch", "recompute", "schedule"} <= set(PINNED)
    assert "offload" not in PINNED


@pytest.fixture
def server_of_a_training(monkeypatch):
    """Workers are forked from a server as a training starts it, which may have been before."""
    made: Any = multiprocessing.forkserver.ForkServer()
    monkeypatch.setattr(multiprocessing.forkserver, "connect_to_new_process", made.connect_to_new_process)
    with forkserver._ignore_hangups():
        made.ensure_running()
    yield
    made._stop()


@pytest.mark.parametrize("first", ["explore", "training"])
def test_a_new_question_of_a_page_ends_the_one_before(first, request):
    if first == "training":
        request.getfixturevalue("server_of_a_training")
    workers, ended = Workers(), []

    def ask_for_a_minute():
        try:
            workers.ask("page", time.sleep, 60)
        except CanceledError:
            ended.append(True)

    thread = threading.Thread(target=ask_for_a_minute)
    thread.start()
    while "page" not in workers.asked or workers.asked["page"].pid is None:
        time.sleep(0.01)
    assert workers.ask("page", dict, {"new": 1}) == {"new": 1}
    thread.join(30)
    assert ended == [True]
    assert workers.asked == {}


def test_runs_are_followed_from_their_folders(tmp_path):
    folder = write_run(tmp_path / "small")
    site = watch_site([folder])
    assert site.data["runs"][0]["name"] == "small"
    made = Server(site)
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", made.server_port, timeout=30)
    connection.request("GET", f"/events?token={made.token}")
    stream = connection.getresponse()

    def heard():
        kind, data = (stream.fp.readline().decode().partition(": ")[2].strip() for _ in range(2))
        stream.fp.readline()
        return kind, json.loads(data)

    kind, begun = heard()
    assert kind == "begin"
    assert begun["rows"][-1]["step"] == 45 or begun["rows"]
    assert heard()[0] == "state"
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(
            json.dumps({**json.loads((folder / "metrics.jsonl").read_text().splitlines()[0]), "step": 999}) + "\n"
        )
    kind, rows = heard()
    while kind != "rows":
        kind, rows = heard()
    assert [row["step"] for row in rows["rows"]] == [999]
    connection.close()
    made.shutdown()
    made.close()


def test_a_port_in_use_is_told(server):
    from heddle.errors import HeddleError

    with pytest.raises(HeddleError, match="Nothing can listen"):
        Server(WebSite("explore.html", {}), port=server.server_port)


def test_a_job_file_has_all_that_a_simulation_needs():
    job = job_from_tables(FIRST)
    found = best(job, PlanRequest(top=1))
    assert "[plan]" in job_file(found.best)
