"""The manual's page on late updates: its commands work."""

import pytest

from tests.helpers.commands import REPOSITORY, run_commands, write_named_blocks


@pytest.mark.dist
def test_every_command_of_the_page_works(tmp_path):
    page = REPOSITORY / "docs/train/late-updates.md"
    write_named_blocks(page, tmp_path)
    assert len(run_commands(page, tmp_path)) == 4
