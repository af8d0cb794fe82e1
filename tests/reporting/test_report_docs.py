"""The manual's page on the page: its commands run, and leave what they say."""

import pytest

from tests.helpers.commands import REPOSITORY, run_commands, write_named_blocks


@pytest.mark.dist
def test_every_command_works_in_order(tmp_path):
    page = REPOSITORY / "docs" / "train/report.md"
    write_named_blocks(page, tmp_path)
    run_commands(page, tmp_path)
    for name in ("before", "report", "two", "second"):
        assert "</html>" in (tmp_path / f"{name}.html").read_text(encoding="utf-8")
    assert "predicted over measured" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "predicted memory" in (tmp_path / "step.json").read_text(encoding="utf-8")
    assert (tmp_path / "step.svg").read_text(encoding="utf-8").startswith("<svg")
