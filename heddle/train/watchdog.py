"""The hang doctor: when a step takes far too long, says who waits for whom, who never arrived, and where it is.

Nothing is noted while training goes well. What a rank is doing is read off its Python stack when it is asked: which
action of the schedule, which message or collective, and with whom. A rank that does not answer is asked by a signal,
which works even if it was stopped or hangs outside Python.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import socket
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from heddle.data import Samples
from heddle.errors import HeddleError
from heddle.parallel.collectives import Handle
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import Executor
from heddle.parallel.pipeline.inbox import Inbox
from heddle.runtime.error_files import tell
from heddle.spec.plan import Plan
from heddle.spec.ranks import coordinates
from heddle.spec.tables import build, read_json

EXIT_CODE = 75  # of a rank of a run that was ended because it stood still
HUNG = HeddleError(
    "The run stood still and was ended.",
    "The report above, and in the run's folder `hang`, says who waited for whom and who never arrived.",
    "Go on from the newest checkpoint with --resume; [train] hang_after sets how long a step may take.",
)
SLOWEST_FIRST = 600.0  # seconds that the first step may take: compiling and allocating come with it
SHORTEST = 60.0  # no step that is quicker than this is a hang
TIMES_USUAL = 20  # nor one that is not this many times slower than usual
GRACE = 2.0  # seconds to wait for the other ranks' answers


@dataclass(frozen=True)
class Doing:
    """What a rank is doing, as far as its stack shows."""

    rank: int
    operation: str
    chunk: int = -1
    microbatch: int = -1
    waits_for: tuple[int, ...] = ()  # ranks; empty: it is busy by itself
    stack: str = ""


def read_stacks(rank: int, main: int) -> Doing:
    """What this process is doing: its main thread first, then those that run backwards on a GPU."""
    frames = sys._current_frames()
    ordered = [frames.pop(main), *frames.values()] if main in frames else list(frames.values())
    stack = "".join(traceback.format_stack(ordered[0]))
    found = [doing for frame in ordered for doing in _read(frame)]
    waiting = next((each for each in found if each[1]), ("", ()))
    place = next((each for frame in ordered for each in _action(frame)), (-1, -1))
    busy = next((each[0] for each in found if each[0]), "works on something else")
    return Doing(rank, waiting[0] or busy, *place, waiting[1], stack)


def _read(frame: FrameType | None) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Operations that a stack shows, innermost first, each with the ranks it waits for."""
    while frame is not None:
        code, local = frame.f_code, frame.f_locals
        if code is Inbox.take.__code__:
            yield f"receive {local['message'].kind}", (local["self"].source,)
        elif code is Handle.wait.__code__:
            handle = local["self"]
            if handle.axis is not None:
                others = tuple(rank for i, rank in enumerate(handle.axis.ranks) if i != handle.axis.rank)
                yield handle.kind, others
        elif code is Samples.batch_of.__code__:
            yield "read its data", ()
        elif code is Executor.perform.__code__:
            yield f"compute {local['action'].kind}", ()
        frame = frame.f_back


def _action(frame: FrameType | None) -> Iterator[tuple[int, int]]:
    while frame is not None:
        if frame.f_code is Executor.perform.__code__:
            yield frame.f_locals["action"].chunk, frame.f_locals["action"].microbatch
        frame = frame.f_back


class Doctor:
    """Watches the steps of one rank from a thread of its own while it is entered."""

    def __init__(self, folder: Path, mesh: Mesh, plan: Plan, limit: float = 0.0) -> None:
        """`limit` is how many seconds a step may take; 0: many times as long as usual."""
        self.folder, self.mesh, self.plan, self.limit = folder, mesh, plan, limit
        self.main = threading.main_thread().ident or 0
        self.times: list[float] = []
        self.began = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="doctor", daemon=True)

    def __enter__(self) -> Doctor:
        if self.mesh.world.size > 1:
            self.folder.mkdir(parents=True, exist_ok=True)
            here = {"pid": os.getpid(), "host": socket.gethostname()}
            self._path("process").write_text(json.dumps(here))
            # written by a C handler, in whichever thread the signal finds, whatever Python is doing
            self.file = self._path("stack").open("w")
            faulthandler.register(signal.SIGUSR1, file=self.file)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
            faulthandler.unregister(signal.SIGUSR1)
            self.file.close()

    def beat(self) -> None:
        """A step is over."""
        now = time.monotonic()
        self.times.append(now - self.began)
        self.began = now

    def allowed(self) -> float:
        """Seconds that the present step may take."""
        if self.limit:
            return self.limit
        if not self.times:
            return SLOWEST_FIRST
        return max(SHORTEST, TIMES_USUAL * statistics.median(self.times[-50:]))

    def _path(self, kind: str, rank: int | None = None) -> Path:
        return self.folder / f"{kind}-{self.mesh.rank if rank is None else rank:05}"

    def _watch(self) -> None:
        while not self.over.wait(min(1.0, self.allowed() / 10)):
            taken = time.monotonic() - self.began
            if taken > self.allowed():
                self._path("doing").write_text(json.dumps(asdict(read_stacks(self.mesh.rank, self.main))))
                time.sleep(GRACE)
                if not any(self._path("doing", rank).exists() for rank in range(self.mesh.rank)):
                    report = self._report(taken)
                    (self.folder / "report.txt").write_text(report)
                    os.write(2, f"\n{report}\n".encode())
                    tell(self.mesh.rank, HUNG)
                else:
                    time.sleep(4 * GRACE)  # the one that reports may still need us
                os._exit(EXIT_CODE)

    def _report(self, taken: float) -> str:
        doings = {rank: self._doing(rank) for rank in self.mesh.world.ranks}
        usual = f", {taken / statistics.median(self.times):.0f} times as long as usual" if self.times else ""
        lines = [f"Step {len(self.times) + 1} of this run has taken {taken:.0f} s{usual}: it hangs."]
        lines += [self._sentence(doing) for doing in doings.values() if doing is not None and doing.waits_for]
        for rank, doing in doings.items():
            if doing is None:
                stack = self._stack_by_signal(rank)
                lines.append(f"{self._name(rank)} never arrived: it does not answer (stopped, or dead).\n{stack}")
            elif not doing.waits_for:
                lines.append(f"{self._sentence(doing)} It never arrived. Its stack:\n{doing.stack}")
        return "\n".join(lines)

    def _doing(self, rank: int) -> Doing | None:
        path = self._path("doing", rank)
        return build(Doing, read_json(path, "what a rank is doing"), "doing") if path.exists() else None

    def _sentence(self, doing: Doing) -> str:
        words = f"{self._name(doing.rank)}: {doing.operation}"
        if doing.chunk >= 0:
            words += f", chunk {doing.chunk}, microbatch {doing.microbatch}"
        if doing.waits_for:
            words += f"; waits for {', '.join(f'rank {rank}' for rank in doing.waits_for)}"
        return words + "."

    def _name(self, rank: int) -> str:
        return f"Rank {rank} ({coordinates(self.plan, rank)})"

    def _stack_by_signal(self, rank: int) -> str:
        """The stack of a rank of this machine that does not answer by itself; a stopped one is woken."""
        path = self._path("process", rank)
        process = read_json(path, "where a rank runs") if path.exists() else {}
        if process.get("host") != socket.gethostname():
            return "It runs on another machine; its stack cannot be had from here."
        path = self._path("stack", rank)
        with suppress(ProcessLookupError):
            os.kill(process["pid"], signal.SIGUSR1)
            os.kill(process["pid"], signal.SIGCONT)
            patience = time.monotonic() + 2 * GRACE
            while not path.stat().st_size and time.monotonic() < patience:
                time.sleep(0.05)
        # threads are listed newest first, so the last one is the main thread
        main = path.read_text().rpartition("Thread ")[2]
        return f"Its stack, innermost call first:\n{main}" if main else "It left no stack."


def forget(folder: Path) -> None:
    """Forget what an earlier run wrote here."""
    shutil.rmtree(folder, ignore_errors=True)
