"""The pictures of the live pages in the README and the manual: `make screenshots` takes them in a real browser.

Beside them `screenshots.json` keeps what each was taken of: a digest of the page's own files. A test compares it with
the files as they are, and the picture of `heddle explore` with the page as it looks.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
ASSETS = REPOSITORY / "docs" / "assets"
KEPT = ASSETS / "screenshots.json"
WIDTH, HEIGHT = 1280, 800
# what `heddle explore` is opened with
TABLES = {
    "model": {"preset": "gpt3-175b"},
    "cluster": {"preset": "dgx-a100-80gb", "nodes": 64},
    "train": {"global_batch": 1536, "precision": "bf16"},
}
PAGES = {
    "explore": ("explore.html", "explore.js", "live.css", "style.css"),
    "watch": ("watch.html", "watch.js", "live.css", "style.css"),
}
STEPS = 60  # of the run that is watched


def digest(name: str) -> str:
    """Of the files that a page is made of."""
    found = hashlib.sha256()
    for file in PAGES[name]:
        for room in ("heddle.explore", "heddle.reporting"):
            path = files(room) / "assets" / file
            if path.is_file():
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


@contextmanager
def served(site: Any) -> Iterator[str]:
    """The link to a site."""
    from heddle.explore.server import Server

    server = Server(site)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server.link
    server.shutdown()
    server.close()


def take_explore(browser: Any, path: Path, scheme: str = "light") -> None:
    """The page with all of its answer."""
    from heddle.explore.pages import explore_site

    with served(explore_site(TABLES)) as link:
        page = _opened(browser, link, scheme)
        page.wait_for_selector("html[data-scaled='1']")
        page.evaluate("document.getElementById('busy').textContent = ''")  # how long it took differs every time
        page.screenshot(path=path)
        page.context.close()


def take_watch(browser: Any, run: Path, path: Path) -> None:
    """The page with a run that is over."""
    from heddle.explore.pages import watch_site

    with served(watch_site([run])) as link:
        page = _opened(browser, link, "light")
        page.wait_for_selector("canvas.live[data-points]:not([data-points='0'])")
        page.screenshot(path=path)
        page.context.close()


def _opened(browser: Any, link: str, scheme: str) -> Any:
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(180_000)
    page.goto(link)
    return page


def trained(folder: Path) -> Path:
    """A short run of the smallest example, with what was predicted of it."""
    job = folder / "job.toml"
    heddle = [sys.executable, "-m", "heddle"]
    changes = ["--set", f"train.steps={STEPS}", "--set", f"train.runs={folder}", "--set", "train.eval_every=20"]
    subprocess.run([*heddle, "plan", REPOSITORY / "examples" / "tiny.toml", "-o", job], check=True)
    subprocess.run([*heddle, "train", job, *changes], check=True, cwd=REPOSITORY)
    return folder / "tiny"


def main() -> None:
    """Take all of them anew."""
    from playwright.sync_api import sync_playwright

    from tests.helpers.commands import BROWSER

    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        take_explore(browser, ASSETS / "explore.png")
        take_watch(browser, trained(Path(folder)), ASSETS / "watch.png")
        browser.close()
    KEPT.write_text(json.dumps({name: digest(name) for name in PAGES}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    main()
