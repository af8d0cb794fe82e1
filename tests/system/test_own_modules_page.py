"""The page on modules of one's own: its file is a module, its commands run, its tables name what the code has."""

import re

import pytest

import heddle
from heddle.errors import HeddleError
from heddle.models.own.files import KEYS
from heddle.parallel.tensor.patterns import check_split
from heddle.spec.job import load_job
from heddle.training.prove.prove import observe_serial
from heddle.training.prove.shrink import shrink
from tests.helpers.commands import REPOSITORY, blocks, run_commands, write_named_blocks

PAGE = REPOSITORY / "docs" / "train" / "own-modules.md"
TEXT = PAGE.read_text(encoding="utf-8")


def write_files(folder):
    (python,) = blocks(PAGE, "python")
    (folder / "mine.py").write_text(python, encoding="utf-8")
    return write_named_blocks(PAGE, folder)


@pytest.mark.slow
@pytest.mark.dist
def test_the_commands_on_the_page_work(tmp_path, capsys):
    assert write_files(tmp_path)
    ran = run_commands(PAGE, tmp_path)
    assert [command.split()[1] for command in ran] == ["prove", "train", "train", "train", "export"]
    assert "Running the code of" in capsys.readouterr().err


def test_rounding_stays_small_in_a_proof_of_the_page(tmp_path):
    write_files(tmp_path)
    proved = shrink(heddle.load_job(tmp_path / "own.toml", ["train.seed=1", "train.precision=fp32"])).job
    usual, others = observe_serial(proved), observe_serial(proved, microbatch=1)
    assert others.losses == pytest.approx(usual.losses, rel=1e-6)


def test_the_error_on_the_page_is_the_one_told(tmp_path):
    write_files(tmp_path)
    path = tmp_path / "mine.py"
    swapped = (
        path.read_text(encoding="utf-8").replace('"*.fc1"', '"@"').replace('"*.fc2"', '"*.fc1"').replace("@", "*.fc2")
    )
    path.write_text(swapped, encoding="utf-8")
    with pytest.raises(HeddleError) as told:
        check_split(load_job(tmp_path / "own.toml").model, 2)
    shown = re.search(r"^error: (.*)\n  (.*)$", TEXT, flags=re.MULTILINE)
    assert shown
    assert str(told.value.what).replace(f"{tmp_path}/", "") == shown[1]
    assert shown[2] in told.value.why


def test_the_page_names_every_key_of_a_plan():
    assert {key for key in KEYS if f"`{key}`" not in TEXT and f'plan["{key}"]' not in TEXT} == set()
