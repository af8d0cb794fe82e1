"""The pictures in the README and the manual show the pages as they are now."""

import importlib.util
import json

import pytest

from tests.helpers.commands import BROWSER, REPOSITORY

SPEC = importlib.util.spec_from_file_location("screenshots", REPOSITORY / "docs" / "hooks" / "screenshots.py")
screenshots = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(screenshots)
CELLS = (64, 40)  # that pictures are compared in: letters differ from machine to machine, what stands where does not


@pytest.mark.parametrize("name", screenshots.PAGES)
def test_a_picture_was_taken_of_the_page_as_it_is(name):
    kept = json.loads(screenshots.KEPT.read_text())
    assert kept[name] == screenshots.digest(name), "run `make screenshots`"
    assert 10_000 < (screenshots.ASSETS / f"{name}.png").stat().st_size < 400_000


@pytest.mark.parametrize("name", screenshots.PAGES)
def test_a_picture_is_shown(name):
    pages = [REPOSITORY / "README.md", REPOSITORY / "docs" / "decide" / "explore.md"]
    assert any(f"assets/{name}.png" in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_page_still_looks_like_its_picture(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    image = pytest.importorskip("PIL.Image")
    chops = pytest.importorskip("PIL.ImageChops")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        screenshots.take_explore(browser, tmp_path / "now.png")
        browser.close()
    kept, now = (image.open(path).convert("L") for path in (screenshots.ASSETS / "explore.png", tmp_path / "now.png"))
    assert kept.size == now.size
    apart = chops.difference(kept.resize(CELLS, image.Resampling.BOX), now.resize(CELLS, image.Resampling.BOX))
    values = apart.tobytes()
    assert sum(values) / len(values) < 6, "run `make screenshots`"
