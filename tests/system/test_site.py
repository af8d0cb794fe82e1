"""The manual as a site: it builds without a warning, has a page for every command, and asks no other host."""

import html
import re
import shutil
import subprocess
import sys

import pytest
import typer

from heddle.cli.app import app
from tests.helpers.commands import BROWSER, ENVIRONMENT, REPOSITORY

pytest.importorskip("material", reason="the site needs MkDocs and its theme: the extra heddle-train[docs]")

LOADED = r"<(?:script|img|iframe|source|link)\b[^>]*?\s(?:src|href)=[\"']?([^\"'\s>]+)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; the build ends well only without a warning: links, anchors, pages in no menu."""
    folder = tmp_path_factory.mktemp("site")
    # not --quiet, which would keep warnings from being counted
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = ENVIRONMENT | {"NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Documentation built" in ended.stderr
    assert "WARNING" not in ended.stderr
    return folder


@pytest.fixture
def hooks(monkeypatch):
    """The site's hooks, importable."""
    monkeypatch.syspath_prepend(REPOSITORY / "docs" / "hooks")


def every_command(command, *words):
    """All commands with their words, groups included."""
    yield words, command
    for name, part in getattr(command, "commands", {}).items():
        yield from every_command(part, *words, name)


@pytest.mark.parametrize(
    ("words", "command"),
    list(every_command(typer.main.get_command(app))),
    ids=lambda value: "-".join(value) or "heddle" if isinstance(value, tuple) else "",
)
def test_every_command_has_a_page_with_all_it_takes(site, words, command):
    page = (site / "commands" / f"{'-'.join(words) or 'index'}.html").read_text(encoding="utf-8")
    article = page[page.index("<article") : page.index("</article")]
    said = html.unescape(re.sub(r"<[^>]+>", "", article))
    assert " ".join(["heddle", *words]) in said
    assert " ".join(command.help.split()) in " ".join(said.split())
    named = set(re.findall(r"<code>([^<]*)</code>", article))
    for param in (each for each in command.params if not getattr(each, "hidden", False)):
        expected = {*param.opts, *param.secondary_opts}
        if param.param_type_name == "argument":
            expected = {(param.metavar or param.name.upper()).strip("[]")}
        assert expected <= named
        assert param.help is None or param.help in said
    assert "Explained in" in said


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    loaded = {address for page in pages for address in re.findall(LOADED, page.read_text(encoding="utf-8"))}
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    loaded |= {address for style in styles for address in re.findall(r"url\([\"']?([^)\"']+)", style)}
    assert any(address.endswith("site.css") for address in loaded)  # so the pattern finds what pages load
    assert {address for address in loaded if "://" in address or address.startswith("//")} == set()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_site_opens_and_searches_from_the_file_system(site):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    said, asked = [], []
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(120_000)  # others may be using the machine
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "decide" / "how-the-planner-thinks.html").as_uri())
        assert page.locator("article .picture svg").count() == 2
        query = page.locator("[data-md-component=search-query]")
        query.focus()  # which is when the index is read
        page.locator(".md-search-result__meta", has_text="Type to start searching").wait_for(state="attached")
        query.press_sequentially("deadlock")  # keys: what is pasted by script goes unnoticed
        page.wait_for_selector(".md-search-result__item a[href*=schedules]")
        browser.close()
    assert said == []
    assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []


def test_an_executed_page_shows_what_its_blocks_gave(hooks):
    from executed import executed

    block, hidden = "```python exec\nx = 2\nx + 1\n```", "```python exec hidden\n'**bold**'\n```"
    made = executed(f"Begin.\n\n{block}\n\n{hidden}\n\nIt is {{{{ x / 3:.2f}}}}.\n", "page.md")
    expected = "Begin.\n\n```python\nx = 2\nx + 1\n```\n\n```python\n3\n```\n\n**bold**\n\nIt is 0.67.\n"
    assert made == (expected, expected)


def test_the_repository_reads_a_drawing_as_text_and_a_measured_time_by_its_unit(hooks):
    from executed import executed

    page = "```python exec hidden\n'A' + terminal('bar [bold]') + 'B'\n```\nIn {{clock(0.0123)}}, {{clock(2e-6)}}.\n"
    site, repository = executed(page, "page.md")
    assert repository == "A```text\nbar [bold]\n```B\nIn milliseconds, microseconds.\n"
    assert site.startswith('A<div class="terminal">')
    assert site.endswith("B\nIn 12.3 ms, 2 µs.\n")


FAILING = {
    "```python exec\n1 / 0\n```\n": "index.md: ZeroDivisionError: division by zero",
    "It is {{1 / 0}}.\n": "index.md: ZeroDivisionError: division by zero",
    "It is {{1 / 1}}.\n": "docs/index.md is not what its source gives now: run `make pages`",
}


@pytest.mark.parametrize(("page", "words"), FAILING.items(), ids=["block", "text", "stale"])
def test_a_source_that_fails_or_has_changed_ends_the_build(tmp_path, page, words):
    hooks = tmp_path / "docs" / "hooks"
    shutil.copytree(REPOSITORY / "docs" / "hooks", hooks, ignore=shutil.ignore_patterns("pages", "__pycache__"))
    (hooks / "pages").mkdir()
    (hooks / "pages" / "index.md").write_text(f"# Page\n\n{page}")
    (tmp_path / "docs" / "index.md").write_text("# Page\n\nIt is 2.0.\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nexclude_docs: hooks/\nhooks: [docs/hooks/executed.py]\n")
    command = [sys.executable, "-m", "mkdocs", "build"]
    ended = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert words in ended.stderr


def test_the_rooms_are_the_packages_and_no_import_goes_back(hooks):
    from rooms import rooms

    found = {room.name: room for room in rooms()}
    assert set(found) == {path.parent.name for path in (REPOSITORY / "heddle").glob("*/__init__.py")}
    done = set()
    while left := [room for name, room in found.items() if name not in done]:
        free = {room.name for room in left if set(room.imports) <= done}
        assert free, f"these import each other: {[room.name for room in left]}"
        done |= free
    for name in ("spec", "graph", "cost", "schedule", "simulating", "planning", "trace", "reporting"):
        assert not found[name].torch
    assert found["training"].torch
