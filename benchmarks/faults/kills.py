"""A fault campaign: runs are killed at random moments, and must end as if nothing had ever happened to them.

A kill is a SIGKILL to one rank, after which Heddle starts all ranks again by itself, or to every process of the run,
after which nobody is left and the campaign goes on with `--resume`. Half of the kills wait for a checkpoint that is
being written. Victims are frozen before they are killed, so that it is known for certain where the kill fell.

* Every run has to finish, with the losses of the run that was never killed: all of them, bit for bit.
* A checkpoint that was whole at a kill must be there and whole afterwards, or a newer one.
* Nothing is left behind: no process, no temporary folder once the next command has begun, nothing in shared memory.
* A kill costs the time from the kill until the run is past the step in which it fell.

    python -m benchmarks.faults.kills [--kills 30 --seed 0 --layouts "data 2" serial]
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.lib.rounds import report_cases
from heddle.checkpoint.checkpoint import checkpoints, damage, step_of
from heddle.parallel.mesh import Mesh
from heddle.runtime.scratch import PREFIX

LAYOUTS = {
    "serial": {},
    "data 2": {"plan.data": 2},
    "data 2, zero 1": {"plan.data": 2, "plan.zero": 1},
    "tensor 2": {"plan.tensor": 2},
    "pipeline 2": {"plan.pipeline": 2},
}
STEPS, SAVE_EVERY = 40, 4
KILLS_A_RUN = 3
PATIENCE = 120.0  # seconds without a new step after which a run counts as lost

JOB = f"""
[model]
layers = 2
hidden = 128
heads = 4
vocab = 4096
sequence = 64

[data]
text = "stdlib:json/*.py"

[train]
steps = {STEPS}
global_batch = 8
save_every = {SAVE_EVERY}
restarts = 100

[plan]
microbatch = 4
"""


class Kill(NamedTuple):
    """Where a kill fell, and what it cost."""

    layout: str
    victim: str  # "rank" or "everything"
    saving: bool
    step: int
    lost_checkpoint: bool
    seconds: float
    left: tuple[str, ...] = ()  # processes, folders and shared memory that nobody needs any more


@dataclass
class Victim:
    """A run that is started, killed and started again until it is done."""

    folder: Path
    layout: str
    name: str
    process: subprocess.Popen[bytes] = field(init=False)
    killed_at: float = 0.0

    def __post_init__(self) -> None:
        self.run = self.folder / "runs" / self.name
        self.start()
        atexit.register(self.end)  # if the campaign itself is stopped

    def start(self) -> None:
        resume = bool(checkpoints(self.run / "checkpoints"))
        if not resume:  # killed before its first checkpoint: there is nothing to go on from
            shutil.rmtree(self.run, ignore_errors=True)
        command = [sys.executable, "-m", "heddle", "train", "job.toml", "--name", self.name]
        command += [f"--set={key}={value}" for key, value in LAYOUTS[self.layout].items()]
        command += ["--resume"] if resume else []
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | {"TMPDIR": str(temporary)},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # which can be killed as a whole
            )

    def steps(self) -> dict[int, float]:
        """The losses so far, by step."""
        path = self.run / "metrics.jsonl"
        rows = []
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(json.JSONDecodeError):  # the last line may be on its way
                rows.append(json.loads(line))
        return {row["step"]: row["loss"] for row in rows if "loss" in row}

    def reached(self) -> int:
        return max(self.steps(), default=0)

    def wait_for(self, step: int) -> bool:
        """Whether the run gets as far as this step before it ends."""
        last, seen = time.monotonic(), -1
        while (now := self.reached()) < step:
            if now != seen:
                last, seen = time.monotonic(), now
            if time.monotonic() > last + PATIENCE:
                self.end()
            if self.process.poll() is not None:
                return self.reached() >= step
            time.sleep(0.002)
        return True

    def saving(self) -> bool:
        """Whether a checkpoint is being written: one that was begun since the last kill."""
        for partial in (self.run / "checkpoints").glob(".partial-*"):
            with suppress(FileNotFoundError):
                if partial.stat().st_ctime > self.killed_at:
                    return True
        return False

    def newest(self) -> int:
        found = checkpoints(self.run / "checkpoints")
        return step_of(found[-1]) if found else 0

    def rank(self, number: int) -> int | None:
        """The process of a rank, if it lives."""
        with suppress(OSError, ValueError):
            pid: int = json.loads((self.run / "hang" / f"process-{number:05}").read_text())["pid"]
            return pid if os.getsid(pid) == self.process.pid else None
        return None

    def left(self, session: int, processes: Iterable[int], shared: Iterable[Path], folders: int) -> tuple[str, ...]:
        """What is still there of these, of temporary files, and of temporary folders beyond so many."""
        found = [f"process {pid}" for pid in processes if pid in session_processes(session)]
        found += [str(path) for path in shared if path.exists()]
        kept = sorted((self.folder / "tmp").glob(f"{PREFIX}*"))
        found += [str(path) for path in (self.folder / "tmp").iterdir() if path not in kept]
        return (*found, *map(str, kept[: max(0, len(kept) - folders)]))

    def end(self) -> None:
        """Every process of the run at once."""
        if self.process.poll() is None:  # once it is reaped, its number may be somebody else's
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def strike(self, after: int, rng: random.Random, everything: bool, saving: bool) -> Kill | None:
        """Kill after this step, at a random moment; None if the run ended before."""
        if not self.wait_for(after):
            return None
        while saving and not self.saving() and self.process.poll() is None:
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.05))
        pid = None if everything else self.rank(rng.randrange(2))
        if self.process.poll() is not None or not (everything or pid):
            return None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGSTOP) if pid is None else os.kill(pid, signal.SIGSTOP)
        found, step, newest = self.saving(), self.reached(), self.newest()
        session = self.process.pid
        shared = shared_memory(everybody := session_processes(session))
        doomed = everybody if pid is None else {rank for number in range(2) if (rank := self.rank(number))}
        began, self.killed_at = time.monotonic(), time.time()
        if pid is None:
            self.end()
            lost = self.newest() < newest or not self.whole()
            self.start()
        else:
            os.kill(pid, signal.SIGKILL)
            lost = False
        # Another rank may still have finished the step in which this one was killed; no step follows it.
        self.wait_for(min(step + 2, STEPS))
        seconds = time.monotonic() - began
        return Kill(
            self.layout,
            "everything" if pid is None else "rank",
            found,
            step,
            lost or self.newest() < newest,
            seconds,
            self.left(session, doomed, shared, folders=1),
        )

    def whole(self) -> bool:
        """Whether the newest checkpoint, if there is one, is undamaged."""
        return all(damage(path, Mesh()) is None for path in checkpoints(self.run / "checkpoints")[-1:])

    def finish(self) -> bool:
        """Whether the run ends well, says nothing of damage and leaves nothing behind."""
        self.wait_for(STEPS)
        shared = shared_memory(everybody := session_processes(self.process.pid))
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        time.sleep(0.5)  # until the processes that it leaves to themselves have heard of its end
        if left := self.left(self.process.pid, everybody, shared, folders=0):
            print(json.dumps({"run": self.name, "left": left}), file=sys.stderr)
            return False
        said = (self.folder / f"{self.name}.log").read_text()
        return self.process.poll() == 0 and self.newest() == STEPS and self.whole() and "damaged" not in said


def session_processes(session: int) -> set[int]:
    """The processes of a session that have not ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of = path.read_text().rpartition(")")[2].split()[:4]
            found |= {int(path.parent.name)} if int(of) == session and state != "Z" else set()
    return found


def shared_memory(processes: Iterable[int]) -> set[Path]:
    """The files in shared memory that processes have in use; the kernel does not remove them."""
    found = set()
    for pid in processes:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {Path(line.split(maxsplit=5)[5]) for line in lines if " /dev/shm/" in line}
    return found


def _slug(layout: str) -> str:
    return layout.replace(",", "").replace(" ", "-")


def campaign(folder: Path, options: argparse.Namespace) -> tuple[list[Kill], list[dict[str, object]]]:
    """Runs of one layout after the other, until there were enough kills."""
    rng = random.Random(options.seed)
    kills: list[Kill] = []
    cases: dict[str, dict[str, object]] = {}
    expected: dict[str, dict[int, float]] = {}
    (folder / "job.toml").write_text(JOB)
    number = 0
    while len(kills) < options.kills:
        layout = options.layouts[number % len(options.layouts)]
        if layout not in expected:
            whole = Victim(folder, layout, f"{_slug(layout)}-whole")
            assert whole.finish(), (folder / f"{whole.name}.log").read_text()
            expected[layout] = whole.steps()
            cases[layout] = {"layout": layout, "runs": 0, "kills": 0, "finished": 0, "equal": 0}
        run = Victim(folder, layout, f"{_slug(layout)}-{number}")
        count = min(KILLS_A_RUN, options.kills - len(kills))
        struck = []
        for part in range(count):
            after = 1 + rng.randrange(part * STEPS // count, (part + 1) * STEPS // count - SAVE_EVERY)
            everything = layout == "serial" or rng.random() < 0.4
            kill = run.strike(after, rng, everything, saving=rng.random() < 0.5)
            struck += [kill] if kill else []
        finished = run.finish()
        case, equal = cases[layout], run.steps() == expected[layout]
        for key, more in {"runs": 1, "kills": len(struck), "finished": finished, "equal": finished and equal}.items():
            case[key] += more  # type: ignore[operator]
        kills += struck
        number += 1
        print(json.dumps({"run": run.name, "finished": finished, "equal": equal, "kills": struck}), file=sys.stderr)
        if not (finished and equal):
            print((folder / f"{run.name}.log").read_text(), file=sys.stderr)
    return kills, list(cases.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a campaign that is stopped cleans up
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        kills, cases = campaign(Path(folder), options)
    seconds = [kill.seconds for kill in kills]
    runs = sum(case["runs"] for case in cases)  # type: ignore[misc]
    facts = {
        "kills": len(kills),
        "in_training": sum(not kill.saving for kill in kills),
        "in_saving": sum(kill.saving for kill in kills),
        "of_a_rank": sum(kill.victim == "rank" for kill in kills),
        "of_everything": sum(kill.victim == "everything" for kill in kills),
        "runs": runs,
        "finished": sum(case["finished"] for case in cases),  # type: ignore[misc]
        "equal": sum(case["equal"] for case in cases),  # type: ignore[misc]
        "lost_checkpoints": sum(kill.lost_checkpoint for kill in kills),
        "left_behind": sum(len(kill.left) for kill in kills),
        "seconds_lost": {"median": round(statistics.median(seconds), 2), "worst": round(max(seconds), 2)},
    }
    report_cases("faults", "the same runs, never killed", cases, seed=options.seed, **facts)
    sys.exit(not (facts["finished"] == facts["equal"] == runs and not facts["lost_checkpoints"] + facts["left_behind"]))


if __name__ == "__main__":
    main()
