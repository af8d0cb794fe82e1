"""`python -m tests.fuzz --seed 7 --count 5000`: thousands of inputs, in processes with bounded memory."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .harness import SECONDS, inputs, prepare, run

GIB = 1 << 30
BATCH = 100  # inputs of one process


def main() -> int:
    """Run them; the exit code says whether all were answered."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0, help="the number of the first input: a campaign in pieces")
    parser.add_argument("--only", type=int, help="one input, by its number")
    parser.add_argument("--memory-gib", type=float, default=6.0, help="address space beyond what is used at the start")
    parser.add_argument("--no-torch", action="store_true", help="leave out what reads checkpoints")
    parser.add_argument("--files", nargs="*", default=[], help="spoil only files whose names begin so")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["COLUMNS"] = "200"
    started, failed = time.perf_counter(), 0
    with tempfile.TemporaryDirectory(prefix="heddle-fuzz-") as name:
        # The seeds are made in a process of their own: threads of torch would not survive the forks below.
        pristine, sandbox = Path(name) / "pristine", Path(name) / "sandbox"
        if _forked(lambda: prepare(Path(name), not options.no_torch) and None, 300.0) != 0:
            return 1
        warm_up()
        first, count = (options.start, options.count) if options.only is None else (options.only, 1)
        every = list(inputs(options.seed, first + count, not options.no_torch, tuple(options.files)))[first:]
        log = Path(name) / "log"
        while every:
            log.write_text("")
            batch = every[:BATCH]

            def work(batch: list = batch) -> None:
                _limit(options.memory_gib)
                with log.open("a") as file:
                    for number, chance, case in batch:
                        file.write(f"{number}\n")
                        file.flush()
                        failure = run(pristine, sandbox, number, chance, case)
                        if failure is not None:
                            file.write(f"!{number}\n")
                            file.flush()
                            sys.stdout.write(f"{failure}\n\n")
                            sys.stdout.flush()

            code = _forked(work, 12 * SECONDS, log)
            lines = log.read_text().split()
            failed += sum(line.startswith("!") for line in lines)
            begun = [line for line in lines if not line.startswith("!")]
            if code != 0:
                failed += 1
                under_way = sandbox.with_name("under-way")
                what = under_way.read_text(encoding="utf-8") if under_way.exists() else ""
                sys.stdout.write(f"input {begun[-1] if begun else '?'}: {what}\n  the process ended with {code}\n\n")
            every = every[max(len(begun), 1) :]
        taken = time.perf_counter() - started
    sys.stdout.write(f"seed {options.seed}: {count} inputs from {first} on in {taken:.0f} s, {failed} not answered\n")
    return int(failed > 0)


def warm_up() -> None:
    """What most commands import, once for all processes."""
    with contextlib.suppress(ImportError):
        import heddle.checkpoint.contents
        import heddle.reporting.page
        import heddle.training.dry_run.dry_run  # noqa: F401


def _limit(gib: float) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    most = used + int((gib + 20) * GIB)  # torch alone reserves many gigabytes of addresses
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * GIB), int(gib * GIB)))


def _forked(work: Callable[[], object], seconds: float, log: Path | None = None) -> int:
    """Run a function in a child; its exit code, or minus the signal that ended it.

    It is ended when nothing happens for so long: what waits within a library does not hear an alarm.
    """
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    began = time.time()
    while time.time() < (log.stat().st_mtime if log else began) + seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9


if __name__ == "__main__":
    sys.exit(main())
