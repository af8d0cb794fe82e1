"""A few hundred odd inputs in this process, and some as a user gives them: real commands, with bounded memory."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import cases, mutate
from tests.fuzz.harness import Answer, inputs, judge, prepare, run

COUNT = 80
SLOW = 6000
SEED = 20240


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("fuzz"), torch=True)


def test_every_odd_input_is_answered(files):
    failures = [run(*files, *each) for each in inputs(SEED, COUNT, torch=True)]  # type: ignore[call-arg]
    found = [str(failure) for failure in failures if failure is not None]
    assert not found, "\n\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_odd_inputs_are_answered():
    command = [sys.executable, "-m", "tests.fuzz", "--seed", "7", "--count", str(SLOW)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-2000:]


def test_inputs_differ_and_can_be_made_again(files):
    pristine, sandbox = files
    case = next(case for case in cases.CASES if case.file == "layers.json")
    made = []
    for number in (1, 2, 1):
        _, chance, _ = list(inputs(5, number + 1, torch=False))[number]
        mutate.spoil(sandbox / case.file, "json", chance)
        made.append((sandbox / case.file).read_bytes() if (sandbox / case.file).is_file() else None)
        mutate.remove(sandbox / case.file)
        (sandbox / case.file).write_bytes((pristine / case.file).read_bytes())
    assert made[0] == made[2] != made[1]


def test_what_an_ended_process_leaves_does_not_reach_the_next_input(files, tmp_path, monkeypatch):
    pristine, sandbox = tmp_path / "pristine", tmp_path / "sandbox"
    for folder in (pristine, sandbox):
        folder.mkdir()
        (folder / "layers.json").write_bytes((files[0] / "layers.json").read_bytes())
    case = cases.Case("layers.json", "json", ("--version",))

    def hole(path: Path, _kind: str, _chance: object) -> str:
        os.truncate(path, 1 << 40)
        raise KeyboardInterrupt  # nothing after this is done, as when the process is killed

    with monkeypatch.context() as patch:
        patch.setattr(mutate, "spoil", hole)
        with pytest.raises(KeyboardInterrupt):
            run(pristine, sandbox, 0, random.Random(0), case)
    for number in range(20):
        assert run(pristine, sandbox, number, random.Random(number), case) is None
    assert (sandbox / "layers.json").read_bytes() == (pristine / "layers.json").read_bytes()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(0, "{}", "", 0.1), ""),
        (Answer(0, '{"value": NaN}', "", 0.1), "NaN"),
        (Answer(0, "half {", "", 0.1), "not JSON"),
        (Answer(2, "", "error: a\n  b\n  c\n", 0.1), ""),
        (Answer(2, "", "error: a\n  b\n", 0.1), "three parts"),
        (Answer(2, "", "error: x must be in [0, 1], got 2.\n  b\n", 0.1), ""),
        (Answer(2, "", "", 0.1), "0 errors"),
        (Answer(1, "", "", 0.1), "exit code 1"),
        (Answer("ValueError", "", "Traceback (most recent call last):", 0.1), "raised ValueError"),
    ],
)
def test_the_judge_knows_good_answers_from_bad_ones(answer, why):
    assert why in judge(answer, ["plan", "--json"])
    assert bool(judge(answer, ["plan", "--json"])) == bool(why)


def limited() -> None:
    gib = 1 << 30
    resource.setrlimit(resource.RLIMIT_DATA, (2 * gib, 2 * gib))
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))


REAL = {
    "deep nesting": ("plan.toml", lambda path: path.write_text("a = " + "[" * 200_000), "simulate plan.toml"),
    "endless device": ("layers.json", lambda path: path.symlink_to("/dev/zero"), "piper layers.json"),
    "pipe without a writer": ("operators.json", os.mkfifo, "place operators.json"),
    "terabyte": ("rows.csv", lambda path: (path.touch(), os.truncate(path, 1 << 40)), "validate rows.csv"),
    "loop of links": ("plan.toml", lambda path: path.symlink_to(path.name), "simulate plan.toml"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_commands_stay_within_seconds_and_memory(files, tmp_path, name):
    pristine, _ = files
    file, spoil, command = REAL[name]
    for path in pristine.iterdir():
        if path.is_file() and path.name != file:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    spoil(tmp_path / file)
    ended = subprocess.run(
        [sys.executable, "-m", "heddle", *command.split()],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "200", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=limited,
        check=False,
    )
    answer = Answer(ended.returncode, ended.stdout, ended.stderr, 0.0)
    assert judge(answer, command.split()) == "", ended.stderr
    assert ended.returncode == 2
