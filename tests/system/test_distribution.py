"""What the project is called where: `heddle` belongs to another project on the package index."""

import re
import tomllib

import yaml

import heddle
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


CI = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text())
JOINING = ("SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "Dockerfile", ".github/pull_request_template.md")


def test_continuous_integration_runs_every_python_that_is_claimed():
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert CI["jobs"]["test"]["strategy"]["matrix"]["python"] == claimed
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    assert CI["jobs"]["dependencies"]["strategy"]["matrix"]["resolution"] == ["lowest-direct", "highest"]


def test_what_continuous_integration_runs_exists():
    rules = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))
    steps = [step["run"] for job in CI["jobs"].values() for step in job["steps"] if "run" in step]
    assert len(steps) > 10
    for words in map(str.split, steps):
        if words[0] == "make":
            assert words[1] in rules
        for word in words:
            if word.startswith(("tests/", "examples/", ".ci/")):
                assert (REPOSITORY / word).exists(), word


def test_make_promises_only_rules_that_it_has():
    text = (REPOSITORY / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)
    assert set(phony.split()) <= set(re.findall(r"^([a-z]+):", text, flags=re.MULTILINE))


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (heddle.__version__, PROJECT["license"])


def test_what_others_need_to_join_is_there_and_names_no_registry():
    for name in (*JOINING, ".github/workflows/ci.yml", "docs/contribute/release.md"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|pypi|ghcr|quay|docker\.io", text), name
