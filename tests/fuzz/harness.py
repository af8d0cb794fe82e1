"""Runs one spoiled input and judges the answer: a result, or exit code 2 with a message in parts, in bounded time."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from . import cases, elsewhere, live, mutate, options, spread, tuning

CASES = (*cases.CASES, *spread.CASES, *tuning.CASES, *elsewhere.CASES)
SECONDS = 10.0  # of one input, at most; most take a few hundredths


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int | str  # or what was raised
    out: str
    err: str
    seconds: float


@dataclass(frozen=True)
class Failure:
    """An input that was not answered as it should be."""

    number: int
    command: str
    done: str
    why: str
    answer: Answer

    def __str__(self) -> str:
        said = "\n".join(("    " + line)[:300] for line in self.answer.err.splitlines()[-25:])
        return f"input {self.number}: heddle {self.command[:300]}\n  ({self.done})\n  {self.why}\n{said}"


class TookTooLong(BaseException):
    """No handler of the package may swallow it."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise TookTooLong


def answer(words: Sequence[str], seconds: float = SECONDS) -> Answer:
    """Run `heddle` in this process."""
    from heddle.cli import main as command

    main = live.main if words[:1] == ["page"] else command
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = sys.argv
    sys.argv = ["heddle", *words]
    started = time.perf_counter()
    code: int | str = 0
    handler = signal.signal(signal.SIGALRM, _stop)
    others = signal.signal(signal.SIGPROF, _stop)
    # Seconds of this process: a busy machine must not fail an input. Whoever only waits is given ten times as long.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else str(end.code)
            except TookTooLong:
                code = "took too long"
                traceback.print_exc()
            except BaseException as error:  # whatever it is, it is the finding
                code = type(error).__name__
                traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, others)
        signal.signal(signal.SIGALRM, handler)
        sys.argv = before
    taken = time.perf_counter() - started
    texts = []
    for stream in (out, err):
        with contextlib.suppress(ValueError):
            stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return Answer(code, texts[0], texts[1], taken)


def judge(found: Answer, words: Sequence[str]) -> str:
    """Why an answer is not as it should be; nothing where it is."""
    if "Traceback" in found.err or not isinstance(found.code, int):
        return f"raised {found.code}"
    if found.code == 0:
        return _judge_result(found, words)
    if found.code != 2:
        return f"exit code {found.code}"
    lines = found.err.splitlines()
    if any(line.startswith("╭─") for line in lines):  # how Typer tells of an option, in a frame
        return ""
    told = [line for line in lines if line.startswith("error: ")]
    if len(told) != 1:
        return f"{len(told)} errors are told"
    parts = lines[lines.index(told[0]) :]
    # "must be in [1, 8], got 9" tells the rule with the value.
    if len(parts) < (2 if " must be in " in told[0] else 3) or not all(line.startswith("  ") for line in parts[1:]):
        return "the message has not three parts"
    if any(len(line) > 2100 for line in parts):
        return "the message is longer than a screen"
    return ""


def _judge_result(found: Answer, words: Sequence[str]) -> str:
    if "--json" in words and found.out.strip():
        try:
            json.loads(found.out, parse_constant=lambda word: 1 / 0)
        except ZeroDivisionError:
            return "the JSON holds NaN or an infinity"
        except ValueError as error:
            return f"the output is not JSON: {error}"
    made = Path("made.json")
    if made.is_file() and made.stat().st_size:
        try:
            json.loads(made.read_text(encoding="utf-8"), parse_constant=lambda word: 1 / 0)
        except ZeroDivisionError:
            return "the written JSON holds NaN or an infinity"
        except ValueError:
            pass  # a plan goes to a file of any name
    return ""


def inputs(
    seed: int, count: int, torch: bool, files: tuple[str, ...] = ()
) -> Iterator[tuple[int, random.Random, cases.Case | None]]:
    """Numbered inputs, each with its own chance: any of them can be made again alone. None: options of a command.

    `files` are beginnings of names: only such files are spoiled, and no options.
    """
    known = [case for case in CASES if (torch or not case.torch) and case.file.startswith(files or "")]
    for number in range(count):
        chance = random.Random(f"{seed}:{number}")
        only_options = chance.random() < 0.2 and not files
        yield number, chance, None if only_options else chance.choices(known, [case.weight for case in known])[0]


def run(pristine: Path, sandbox: Path, number: int, chance: random.Random, case: cases.Case | None) -> Failure | None:
    """Spoil a file, run a command on it, put everything back.

    An input that ends its process leaves what it spoiled, a terabyte of holes maybe: then all files are made anew.
    """
    under_way = sandbox.with_name("under-way")
    if under_way.exists():
        shutil.rmtree(sandbox)
        shutil.copytree(pristine, sandbox)
    under_way.touch()
    environment = {"HEDDLE_SECRET_FILE": "site.pem"}
    if case is None:
        words = options.odd_options(chance, (pristine / "checkpoint").exists())
        environment |= options.odd_environment(chance)
        done = f"odd options {environment or ''}"[:300]
    else:
        words = shlex.split(chance.choice(case.commands))
        path = sandbox / case.file
        done = mutate.spoil(path, case.kind, chance)
    under_way.write_text(f"heddle {shlex.join(words)}\n  ({done})", encoding="utf-8", errors="replace")
    before = Path.cwd()
    os.chdir(sandbox)
    usual = dict(os.environ)
    os.environ.update(environment)
    try:
        found = answer(words)
        why = judge(found, words)
    finally:
        os.environ.clear()
        os.environ.update(usual)
        os.chdir(before)
    kept = sandbox.parent / f"input-{number}"
    if why and case is not None and os.environ.get("FUZZ_KEEP") and (sandbox / case.file).is_file():
        shutil.copyfile(sandbox / case.file, kept, follow_symlinks=False)
    restore(pristine, sandbox, case)
    under_way.unlink()
    return Failure(number, shlex.join(words), done, why, found) if why else None


def restore(pristine: Path, sandbox: Path, case: cases.Case | None) -> None:
    """The sandbox as it was: what a command makes is called made…, and all else may have been written over."""
    known = {path.name for path in pristine.iterdir()}
    for path in sandbox.iterdir():
        if path.name not in known:
            mutate.remove(path)
    changed = ("job.toml", "corpus") if case is None else (case.file,)
    for name in changed:
        if (pristine / name).is_dir():
            continue
        mutate.remove(sandbox / name)
        shutil.copyfile(pristine / name, sandbox / name)


def prepare(folder: Path, torch: bool) -> tuple[Path, Path]:
    """The valid files, and a copy to spoil."""
    from .seeds import write_seeds, write_trained

    others = (spread, tuning, elsewhere)
    pristine, sandbox = folder / "pristine", folder / "sandbox"
    pristine.mkdir(parents=True)
    write_seeds(pristine)
    for area in others:
        area.write(pristine)
    if torch:
        write_trained(pristine)
        for area in others:
            area.write_trained(pristine)
    shutil.copytree(pristine, sandbox)
    return pristine, sandbox
