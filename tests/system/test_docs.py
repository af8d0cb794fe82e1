"""The manual: its commands run, its links lead somewhere, its tables name what the code has."""

import dataclasses
import re
import tomllib
import typing

import pytest

from heddle.data import check_named
from heddle.runs.metrics import StepMetrics
from heddle.spec.job import Data, LearningRateSchedule, Precision, load_job
from heddle.spec.presets import model_presets
from heddle.spec.tables import build
from tests.helpers.commands import REPOSITORY, blocks, run_commands, write_named_blocks

DOCS = REPOSITORY / "docs"
PAGES = sorted(REPOSITORY.glob("*.md"))  # MkDocs looks after the links of the manual: tests/system/test_site.py


@pytest.mark.parametrize("name", ["start/quickstart.md", "train/training.md", "train/faults.md"])
def test_every_command_works_in_order(tmp_path, name):
    files = write_named_blocks(DOCS / name, tmp_path)
    assert all(load_job(path) for path in files)
    ran = run_commands(DOCS / name, tmp_path)
    assert any("--resume" in command for command in ran)


def test_the_commands_on_long_sequences_work(tmp_path):
    page = DOCS / "train" / "long-sequences.md"
    assert all(load_job(path) for path in write_named_blocks(page, tmp_path))
    assert {command.split()[1] for command in run_commands(page, tmp_path)} == {"prove", "train", "plan"}


def test_every_job_with_a_large_vocabulary_names_a_tokenizer(tmp_path):
    pages = [REPOSITORY / "README.md", *DOCS.rglob("*.md")]
    texts = [block for page in pages for block in blocks(page, "toml")]
    texts += [path.read_text(encoding="utf-8") for path in (REPOSITORY / "examples").rglob("*.toml")]
    jobs = [tables for text in texts if "text" in (tables := tomllib.loads(text)).get("data", {}) and "model" in tables]
    assert len(jobs) > 20
    for tables in (tables for tables in jobs if "module" not in tables["model"]):  # which says it itself
        model = {key: tables["model"][key] for key in ("preset", "vocab") if key in tables["model"]}
        vocab = model.get("vocab") or model_presets()[model["preset"]]["vocab"]
        check_named(build(Data, tables["data"], "data"), vocab)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8"))
    for path, anchor in links:
        if "://" in path:
            continue
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors, anchor


def test_the_index_names_every_page():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    others = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "hooks" not in path.parts} - {
        "index.md"
    }
    assert {name for name in others if f"]({name})" not in index} == set()


def first_column(heading):
    """The words in the first column of the table below a heading of the page on training."""
    text = (DOCS / "train/training.md").read_text(encoding="utf-8")
    section = re.search(rf"^#+ {heading}$(.*?)(?=^#|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert section, heading
    return re.findall(r"^\| `([^`]*)` \|", section[1], flags=re.MULTILINE)


def test_the_page_on_training_describes_every_metric_precision_and_schedule():
    assert first_column("Metrics") == [field.name for field in dataclasses.fields(StepMetrics)]
    assert first_column("Precision")[1:] == list(typing.get_args(Precision))
    assert first_column("Learning rate")[1:] == list(typing.get_args(LearningRateSchedule))
