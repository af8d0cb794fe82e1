"""What the project is called where: `heddle` belongs to another project on the package index."""

import re
import tomllib

from tests.helpers.commands import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
PAGES = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("heddle/**/*.py")]


def test_the_distribution_has_a_name_of_its_own_and_the_command_stays():
    assert PROJECT["name"] == "heddle-train"
    assert PROJECT["scripts"] == {"heddle": "heddle.cli:main"}
    (own,) = [need for need in PROJECT["optional-dependencies"]["dev"] if need.startswith("heddle")]
    assert own.startswith("heddle-train[")


def test_nobody_is_told_to_install_the_stranger():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"pip3? install[^\n]*\bheddle\b(?!-train)", text), page
        assert not re.search(r"\bheddle\[\w", text), page  # an extra of the wrong name
        assert not re.search(r"""version\(["']heddle["']\)|importlib.metadata""", text), (
            page
        )  # heddle.__version__ it is
