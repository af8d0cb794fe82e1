"""What is printed is what was written, whoever wrote it."""

import io
import json

import pytest
from rich.table import Table

from heddle.console import plain_console, styled
from tests.helpers.commands import call
from tests.helpers.subjects import write_run

ODD = ["n[bold]", "[/]", "[plan]", "[red]x[/red]", ":warning:", "[link=http://a]b[/link]", "\\[x]"]


@pytest.mark.parametrize("name", ODD)
def test_words_are_neither_styles_nor_pictures(name):
    file = io.StringIO()
    console = plain_console(file=file, width=80)
    console.print(name)
    table = Table(name, title=name)
    table.add_row(name)
    console.print(table)
    console.print(styled(name, (name, "green")))
    assert file.getvalue().count(name) == 6


def test_a_run_with_an_odd_name_keeps_it(tmp_path, capsys):
    folder = write_run(tmp_path / "n[bold]")
    assert call("report", folder, "-o", "page[red].html") == 0
    assert "Written to page[red].html" in capsys.readouterr().out
    assert call("trace", folder, "-o", "n[b].svg") == 0
    assert "Written to n[b].svg" in capsys.readouterr().out


def test_piper_says_which_table_gives_the_microbatch(tmp_path, capsys):
    (tmp_path / "job.toml").write_text(
        """
        [model]
        layers = 2
        hidden = 64
        heads = 4
        vocab = 257
        sequence = 64
        [cluster]
        preset = "dgx-a100-80gb"
        [train]
        global_batch = 8
        [plan]
        microbatch = 2
        """
    )
    assert call("piper", "job.toml", "--devices", "2") == 0
    assert "The file's [plan] gives the microbatch" in capsys.readouterr().out
    assert call("piper", "job.toml", "--devices", "2", "--json") == 0
    json.loads(capsys.readouterr().out)
