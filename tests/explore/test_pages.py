"""The pages in a real browser: knobs are turned, answers follow, and nothing outside the machine is asked."""

import json
import os
import signal
import threading
import tomllib
from pathlib import Path

import pytest

from heddle.explore.pages import explore_site, watch_site
from heddle.explore.server import Server
from heddle.planning.best import best
from heddle.planning.request import PlanRequest
from heddle.spec.job import job_from_tables
from heddle.spec.rules.context import PLAN_EXCHANGES
from tests.helpers.commands import BROWSER, finish, write_job
from tests.helpers.launching import heddle, under, wait_for_steps
from tests.helpers.subjects import write_run

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
    pytest.mark.skipif(sync_playwright is None, reason="playwright is not installed"),
]
TABLES = {
    "model": {"preset": "tiny"},
    "cluster": {"preset": "dgx-a100-80gb", "nodes": 2},
    "train": {"global_batch": 64},
}


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser):
    """Serve a site and open it; at the end it must have complained of nothing, and asked nobody else."""
    said, asked, closing = [], [], []

    def open_site(site, fragment="", width=1280, scheme="light"):
        server = Server(site)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        closing.extend([context.close, server.shutdown, server.close])
        page.goto(server.link + fragment)
        return page, server

    yield open_site
    for close in closing:
        close()
    assert said == []
    assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []


def answered(page, number):
    page.wait_for_selector(f"html[data-answered='{number}']")  # not by a function: the page allows no `eval`


def expected(fixed=None, **changes):
    tables = {name: table | changes.get(name, {}) for name, table in TABLES.items()}
    return best(job_from_tables(tables), PlanRequest(top=6, fixed=fixed or {}))


def first_step(page):
    return page.locator("#table tbody tr").first.locator("td").nth(1).inner_text()


def test_every_knob_is_answered_with_the_numbers_of_the_planner(opened):
    page, _ = opened(explore_site(TABLES))
    answered(page, 1)
    number = 1
    for knob, value, found in (
        ("#global_batch", "128", expected(train={"global_batch": 128})),
        ("#nodes", "1", expected(train={"global_batch": 128}, cluster={"nodes": 1})),
    ):
        page.fill(knob, value)
        number += 1
        answered(page, number)
        shown = page.locator(".cards dd").first.inner_text().split()[0]
        assert float(shown) == pytest.approx(_in_unit(page, found.best.step_seconds), rel=2e-3)
    page.select_option("#pin-tensor", "2")
    answered(page, number + 1)
    assert "tensor = 2" in page.inner_text("#pinned")
    assert "tensor 2" in page.locator("#table tbody tr").first.inner_text()


def _in_unit(page, seconds):
    unit = page.locator(".cards dd").first.inner_text().split()[1]
    return seconds * {"s": 1, "ms": 1e3, "µs": 1e6}[unit]


def test_what_cannot_be_is_shown_beside_its_knob(opened):
    page, _ = opened(explore_site(TABLES))
    answered(page, 1)
    page.fill("#nodes", "none")
    answered(page, 2)
    assert page.get_attribute("#nodes", "aria-invalid") == "true"
    assert "whole number" in page.inner_text("#error")
    page.fill("#nodes", "2")
    answered(page, 3)
    assert page.get_attribute("#nodes", "aria-invalid") is None
    assert not page.is_visible("#error")


def test_the_back_button_and_a_link_bring_a_state_back(opened):
    page, server = opened(explore_site(TABLES))
    answered(page, 1)
    page.select_option("#pin-zero", "1")
    answered(page, 2)
    state = page.evaluate("location.hash")
    page.go_back()
    answered(page, 3)
    assert page.input_value("#pin-zero") == ""
    other = page.context.new_page()
    other.set_default_timeout(120_000)
    other.goto(server.link + state)
    answered(other, 1)
    assert other.input_value("#pin-zero") == "1"


def test_a_plan_is_picked_compared_and_saved(opened, tmp_path):
    page, _ = opened(explore_site(TABLES))
    answered(page, 1)
    page.click("[data-select='1']")
    answered(page, 2)
    page.check("[data-other='0']")
    answered(page, 3)
    assert page.is_visible("text=second to first")
    shown = tomllib.loads(saved(page, "job file", tmp_path))["plan"]
    number, _, words = page.locator("#table tbody tr").nth(1).inner_text().partition("\t")
    assert number.strip() == "2"
    assert f"tensor {shown['tensor']} × pipeline {shown['pipeline']} × data {shown['data']}" in words
    script = saved(page, "Megatron-LM", tmp_path)
    assert f"--tensor-model-parallel-size {shown['tensor']}\n" in script
    assert json.loads(saved(page, "DeepSpeed", tmp_path))["train_batch_size"] == 64
    assert "the script names them" in page.inner_text("#missing")


def saved(page, form, folder):
    """What the page saves for a trainer."""
    page.select_option("#form", form)
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(folder / "saved")
    return (folder / "saved").read_text()


def test_the_first_picture_comes_before_the_ranking_and_points_can_be_clicked(opened):
    page, _ = opened(explore_site(TABLES))
    page.wait_for_selector("html[data-pictured^='1 ']")
    answered(page, 1)
    assert "similar runs lie within" in page.inner_text("[data-part=cards]")
    assert "take them as equal" in page.inner_text("#table")
    points = page.locator(".front .point")
    last = points.nth(points.count() - 1)
    last.focus()
    words = page.inner_text("[data-part=front] .status")
    assert "per step" in words
    last.click()
    answered(page, 2)
    assert words.split(",")[0] in page.inner_text("[data-part=words]")


def test_lists_have_the_values_that_are_legal(opened):
    page, _ = opened(explore_site(TABLES))
    answered(page, 1)
    heads = [option for option in page.locator("#pin-tensor option").all_inner_texts() if option != "free"]
    assert heads == ["1", "2", "4"]  # it has four heads
    assert page.locator("#pin-context_exchange option").all_inner_texts() == ["free", *PLAN_EXCHANGES]
    page.fill("#model", "gpt2")
    answered(page, 2)
    assert page.locator("#pin-tensor option").all_inner_texts() == ["free", "1", "2", "4"]  # of twelve, on sixteen
    page.select_option("#pin-context", "4")
    answered(page, 3)
    assert "context = 4" in page.inner_text("#pinned")


AXE = Path(os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js"))


@pytest.mark.skipif(not AXE.is_file(), reason="AXE_CORE does not name axe-core's axe.min.js: npm install axe-core")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_axe_finds_no_serious_fault(opened, tmp_path, width, scheme):
    explored, _ = opened(explore_site(TABLES), width=width, scheme=scheme)
    answered(explored, 1)
    watched, _ = opened(watch_site([write_run(tmp_path / "small")]), width=width, scheme=scheme)
    watched.wait_for_selector("canvas.live[data-points]:not([data-points='0'])")
    for page in (explored, watched):
        page.evaluate(AXE.read_text() + ";0")
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        assert [(each["id"], each["impact"]) for each in found if each["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_the_page_fits_its_screen(opened, width, scheme):
    page, _ = opened(explore_site(TABLES), width=width, scheme=scheme)
    answered(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    labels = page.evaluate(
        "[...document.querySelectorAll('input,select')].filter((e) => !e.labels?.length && !e.ariaLabel).length"
    )
    assert labels == 0


def test_a_run_is_watched_while_it_goes_on(opened, tmp_path):
    folder = write_run(tmp_path / "small")
    path = folder / "metrics.jsonl"
    page, _ = opened(watch_site([folder, write_run(tmp_path / "other")]))
    page.wait_for_selector("html[data-begun='yes']")
    page.wait_for_selector("canvas.live[data-points]:not([data-points='0'])")
    more = "count => Number(document.querySelector('canvas.live').dataset.points) > count"  # runs come one by one
    before = int(page.get_attribute("canvas.live", "data-points"))
    row = json.loads(path.read_text().splitlines()[0])
    with path.open("a") as file:
        file.write(json.dumps(row | {"step": 1000, "loss": 50.0}) + "\n")
    page.wait_for_function(more, arg=before)
    page.wait_for_selector("#alarms li:has-text('jumped to 50')")
    after = page.get_attribute("canvas.live", "data-points")
    path.write_text("\n".join(path.read_text().splitlines()[:5]) + "\n")  # resumed from an earlier checkpoint
    page.wait_for_selector(f"canvas.live:not([data-points='{after}'])")
    assert "small" in page.inner_text("#runs")


def test_a_curve_is_read_with_the_pointer_and_with_keys(opened, tmp_path):
    folder = write_run(tmp_path / "small")
    page, _ = opened(watch_site([folder]))
    curve = page.locator("canvas.live").first
    page.wait_for_selector("canvas.live[data-points]:not([data-points='0'])")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if "loss" in row}
    curve.hover(position={"x": 64, "y": 90})
    said = page.locator("canvas.live + .status").first
    said.filter(has_text=f"step {min(losses)}:").wait_for()
    assert float(said.inner_text().rsplit(" ", 1)[1]) == pytest.approx(losses[min(losses)], rel=1e-3)
    page.mouse.move(0, 0)
    curve.focus()
    page.keyboard.press("ArrowLeft")
    said.filter(has_text=f"step {max(losses)}:").wait_for()
    assert page.inner_text("#log").startswith(f"step {rows[-1]['step']}  ")


def test_a_run_that_is_killed_and_resumed_is_watched_to_its_end(opened, tmp_path):
    write_job(tmp_path / "job")
    arguments = under({}, "watched", "train.steps=60", "train.save_every=10", "train.log_every=60")
    process = heddle(*arguments, cwd=tmp_path / "job")
    folder = tmp_path / "job" / "runs" / "watched"
    wait_for_steps(folder, 15)
    page, _ = opened(watch_site([folder]))
    page.wait_for_selector("html[data-begun='yes']")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finish(heddle(*arguments, "--resume", cwd=tmp_path / "job"))
    page.wait_for_selector("#runs td:has-text('60 of 60')")
    page.wait_for_selector("#runs td:has-text('done')")
    page.wait_for_selector("canvas.live[data-points='60']")  # each step once, though some were taken back
