"""Every file in examples/ is a job that trains."""

import pytest

from heddle.spec.job import load_job
from tests.helpers.commands import REPOSITORY, call, losses

EXAMPLES = sorted([*(REPOSITORY / "examples").glob("*.toml"), REPOSITORY / "examples" / "own" / "job.toml"])
# The same job, with less of it: a few files of text, short samples, two steps.
SHRUNK = ["data.text=stdlib:json/*.py", "train.sequence=32", "train.steps=2", "train.eval_batches=1"]


def test_there_are_examples_of_both_styles():
    models = [load_job(path).model for path in EXAMPLES]
    assert {model.positions for model in models} == {"learned", "rotary"}


def test_each_example_has_a_run_folder_of_its_own():
    folders = [load_job(path).run_folder for path in EXAMPLES]
    assert len(set(folders)) == len(folders)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(REPOSITORY / "examples").as_posix())
def test_the_example_trains(tmp_path, path):
    assert call("train", path, *(word for change in SHRUNK for word in ("--set", change))) == 0
    assert len(losses(tmp_path / load_job(path).run_folder)) == 2
