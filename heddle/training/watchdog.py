"""The hang watchdog: when a run stands still, says who waits for whom, who never arrived, and where it is.

Nothing is noted while training goes well. What a rank is doing is read off its Python stack when it is asked: which
action of the schedule, which message or collective, and with whom; where its host is ahead of a GPU, off the marks in
the GPU's stream. Ranks tell each other through the store at which they met. One that does not answer is asked by a
signal, which works even if it was stopped or hangs outside Python.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from heddle.checkpoint import storage
from heddle.checkpoint.checkpoint import Saver
from heddle.data import Samples
from heddle.data.documents import DocumentSamples, MixedSamples
from heddle.errors import HeddleError
from heddle.parallel.collectives import Handle
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import Executor
from heddle.parallel.pipeline.inbox import Inbox
from heddle.runs.folder import Run
from heddle.runtime import together
from heddle.runtime.device import Mark, pending_collectives
from heddle.runtime.error_files import write_error
from heddle.runtime.scratch import file_of_this_process
from heddle.runtime.stream import StreamMarks
from heddle.spec.axes import AXES
from heddle.spec.plan import Plan
from heddle.spec.ranks import coordinates
from heddle.spec.tables import build
from heddle.trace.lanes import COLLECTIVES
from heddle.training.phases import Phases, RunPhase

EXIT_CODE = 75  # of a rank of a run that was ended because it stood still
HUNG = HeddleError(
    "The run hung and was ended.",
    "The report above, and in the run's folder `hang`, says which rank waited for which, and which never arrived.",
    "Resume from the newest checkpoint with --resume; [train] hang_after sets how long a step may take.",
)
ASKED, ANSWERED = "watchdog/asked", "watchdog/answered"  # how often anybody was asked for progress, and had some
GRACE = 2.0  # seconds to wait for the other ranks' answers
ANSWER = 10.0  # seconds that the store has to answer


@dataclass(frozen=True)
class Doing:
    """What a rank is doing, as far as its stack and its device's stream show."""

    rank: int
    operation: str
    chunk: int = -1
    microbatch: int = -1
    waits_for: tuple[int, ...] = ()  # ranks; empty: it is busy by itself
    stack: str = ""
    pending: str = ""  # the oldest collective that it gave to the network and that is not done


def read_stacks(rank: int, main: int) -> Doing:
    """What this process is doing: its main thread first, then those that run backwards on a GPU, or save."""
    frames = sys._current_frames()
    ordered = [frames.pop(main), *frames.values()] if main in frames else list(frames.values())
    stack = "".join(traceback.format_stack(ordered[0]))
    found = [doing for frame in ordered for doing in _read(frame)]
    waiting = next((each for each in found if each[1]), ("", ()))
    place = next((each for frame in ordered for each in _action(frame)), (-1, -1))
    busy = next((each[0] for each in found if each[0]), "works on something else")
    return Doing(rank, waiting[0] or busy, *place, waiting[1], stack)


READING = {each.batch_of.__code__ for each in (Samples, DocumentSamples, MixedSamples)}
BUSY = {
    **dict.fromkeys(READING, "read its data"),
    storage.write_file.__code__: "write its part of the checkpoint",
    Saver._stage.__code__: "copy its state for the checkpoint",
    Saver._complete.__code__: "complete the checkpoint",
    Mark.wait.__code__: "wait for its device",
}


def _read(frame: FrameType | None) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Operations that a stack shows, innermost first, each with the ranks it waits for."""
    while frame is not None:
        code, local = frame.f_code, frame.f_locals
        if code is Inbox.take.__code__:
            yield f"receive {local['message'].kind}", (local["self"].source,)
        elif code is Handle.wait.__code__:
            handle = local["self"]
            if handle.axis is not None:
                yield handle.kind, _others(handle.axis.ranks, handle.axis.rank)
        elif code is Executor.run.__code__ and local["self"].sent:
            executor = local["self"]
            ranks = {executor.mesh.pipeline.ranks[destination] for destination, *_ in executor.sent}
            yield "wait until its messages are taken", tuple(sorted(ranks))
        elif code is Saver._write.__code__:
            world = local["self"].mesh.world
            yield "wait for the others' parts of the checkpoint", _others(world.ranks, world.rank)
        elif code is together.wait_until.__code__:
            yield f"wait until {local['what']}", local["ranks"]
        elif code in BUSY:
            yield BUSY[code], ()
            if code not in READING:
                return  # what lies around it waits for this, and for nobody else
        elif code is Executor.perform.__code__:
            yield f"compute {local['action'].kind}", ()
        frame = frame.f_back


def _others(ranks: tuple[int, ...], own: int) -> tuple[int, ...]:
    return tuple(rank for i, rank in enumerate(ranks) if i != own)


def _action(frame: FrameType | None) -> Iterator[tuple[int, int]]:
    while frame is not None:
        if frame.f_code is Executor.perform.__code__:
            yield frame.f_locals["action"].chunk, frame.f_locals["action"].microbatch
        frame = frame.f_back


def read_stream(doing: Doing, stream: StreamMarks | None) -> Doing:
    """The same, by what its device is at: the host may be far ahead, or stand waiting for all of it."""
    place = stream.at() if stream is not None else None
    return doing if place is None else replace(doing, **place._asdict())


def oldest_collective(mesh: Mesh) -> str:
    """The collective that this rank waits for longest, by torch's flight recorder; empty where there is none."""
    pending = pending_collectives()
    if not pending:
        return ""
    first = min(pending, key=lambda entry: entry["record_id"])
    axes = {name: getattr(mesh, name).group for name in ("world", *COLLECTIVES, *AXES, "replica")}
    ways = {f"the messages from stage {source} to {to}": group for (source, to), group in mesh.channels.items()}
    groups = {group.group_name: name for name, group in {**axes, **ways}.items() if group is not None}
    group, number = first["process_group"][0], first["p2p_seq_id" if first["is_p2p"] else "collective_seq_id"]
    return f"{first['profiling_name']} number {number} over {groups.get(group, f'group {group}')}, {first['state']}"


class Watchdog:
    """Watches the phases of one rank from a thread of its own while it is entered."""

    def __init__(self, mesh: Mesh, plan: Plan, phases: Phases) -> None:
        self.mesh, self.plan, self.phases = mesh, plan, phases
        self.folder: Path | None = None  # where the report goes, once the run has one
        self.stream: StreamMarks | None = None  # where the host is ahead of its device
        self.main = threading.main_thread().ident or 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self.seen = 0  # the progress of this rank at the last look
        self.answered = 0  # the last question of another rank that was answered
        self.answers, self.news = 0, phases.clock()  # of all ranks, and when that last changed

    def __enter__(self) -> Watchdog:
        if self.mesh.world.size > 1:
            # a connection of its own: on another one somebody may stand waiting
            self.store = together.own_store(timedelta(seconds=ANSWER))
            # written by a C handler, in whichever thread the signal finds, whatever Python is doing
            self.file, stack = file_of_this_process()
            self.process = {"pid": os.getpid(), "host": socket.gethostname(), "stack": stack}
            self._tell("process", self.process)
            # so that reading them never waits; an earlier run of the same processes may have counted
            self.answered, self.answers = (self.store.add(key, 0) for key in (ASKED, ANSWERED))
            faulthandler.register(signal.SIGUSR1, file=self.file)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
            faulthandler.unregister(signal.SIGUSR1)
            self.file.close()

    def opened(self, run: Run) -> None:
        """The run has a folder now: reports go there; and which process is which rank, for whoever looks at them."""
        self.folder = run.hang
        if self.mesh.world.size > 1:
            run.processes.mkdir(parents=True, exist_ok=True)
            (run.processes / f"rank-{self.mesh.rank:05}.json").write_text(json.dumps(self.process))

    def _watch(self) -> None:
        # often enough to see a phase with a short limit begin; thousands of ranks can ask a store so often
        while not self.over.wait(max(0.1, min(1.0, self.phases.allowed() / 10))):
            if self._stands_still():
                self._end()

    def _stands_still(self) -> bool:
        """Whether nobody, on any rank, has come further for longer than is allowed.

        Not only this one: a rank that has written its part of a checkpoint waits for others that still write theirs. So
        whoever is silent asks whether anybody is not; while all goes well, nobody writes to the store.
        """
        silent, allowed = self.phases.silent(), self.phases.allowed()
        moved, self.seen = self.phases.count != self.seen, self.phases.count
        with suppress(RuntimeError):  # a store that does not answer has no news
            asked = int(self.store.get(ASKED))
            if moved and asked != self.answered:
                self.answered = asked
                self.store.add(ANSWERED, 1)
            if silent > allowed / 2:
                self.store.add(ASKED, 1)
                answers = int(self.store.get(ANSWERED))
                if answers != self.answers:
                    self.answers, self.news = answers, self.phases.clock()
        return min(silent, self.phases.clock() - self.news) > allowed

    def _end(self) -> None:
        """Say what this rank is doing; the first of those that can report, does; all end."""
        doing = read_stream(read_stacks(self.mesh.rank, self.main), self.stream)
        with suppress(Exception):  # what the recorder says is a help, no more
            doing = replace(doing, pending=oldest_collective(self.mesh))
        known = self._tell("doing", asdict(doing))
        time.sleep(GRACE)
        if not known or not any(self._ask("doing", rank) for rank in range(self.mesh.rank)):
            report = self._report(doing, known)
            with suppress(OSError):
                if self.folder is not None:
                    self.folder.mkdir(exist_ok=True)
                    (self.folder / "report.txt").write_text(report)
            os.write(2, f"\n{report}\n".encode())
            write_error(self.mesh.rank, HUNG)
        else:
            time.sleep(4 * GRACE)  # the one that reports may still need us
        os._exit(EXIT_CODE)

    def _report(self, own: Doing, known: bool) -> str:
        lines = [self._headline()]
        if not known:
            lines.append(self._sentence(own))
            meet = os.environ.get("MASTER_ADDR", "rank 0's node")
            lines.append(f"The store at {meet} does not answer: what keeps it is stopped or dead. {own.stack}")
            return "\n".join(lines)
        doings = {rank: self._doing(rank) for rank in self.mesh.world.ranks}
        lines += [self._sentence(doing) for doing in doings.values() if doing is not None and doing.waits_for]
        for rank, doing in doings.items():
            if doing is None:
                stack = self._stack_by_signal(rank)
                lines.append(f"{self._name(rank)} never arrived: it does not answer (stopped, or dead).\n{stack}")
            elif not doing.waits_for:
                lines.append(f"{self._sentence(doing)} It never arrived. Its stack:\n{doing.stack}")
        return "\n".join(lines)

    def _headline(self) -> str:
        phase, taken = self.phases.phase, self.phases.silent()
        usual = f", {taken / self.phases.usual:.0f} times as long as usual" if self.phases.usual else ""
        match phase:
            case RunPhase.STEP | RunPhase.FIRST_STEP:
                return f"Step {self.phases.steps + 1} of this run has taken {taken:.0f} s{usual}: it hangs."
            case RunPhase.SAVE:
                words = "Saving a checkpoint"
            case RunPhase.EVALUATE:
                words = f"The evaluation after step {self.phases.steps} of this run"
            case _:
                words = "Preparing the run"
        return f"{words} has made no progress for {taken:.0f} s{usual}: it hangs."

    def _tell(self, kind: str, words: dict[str, Any]) -> bool:
        with suppress(RuntimeError):
            self.store.set(f"watchdog/{kind}-{self.mesh.rank}", json.dumps(words))
            return True
        return False

    def _ask(self, kind: str, rank: int) -> dict[str, Any] | None:
        key = f"watchdog/{kind}-{rank}"
        with suppress(RuntimeError):
            return json.loads(self.store.get(key)) if self.store.check([key]) else None
        return None

    def _doing(self, rank: int) -> Doing | None:
        words = self._ask("doing", rank)
        return build(Doing, words, "doing") if words is not None else None

    def _sentence(self, doing: Doing) -> str:
        words = f"{self._name(doing.rank)}: {doing.operation}"
        if doing.chunk >= 0:
            words += f", chunk {doing.chunk}, microbatch {doing.microbatch}"
        if doing.waits_for:
            words += f"; waits for {', '.join(f'rank {rank}' for rank in doing.waits_for)}"
        return words + (f" (oldest collective in flight: {doing.pending})." if doing.pending else ".")

    def _name(self, rank: int) -> str:
        return f"Rank {rank} ({coordinates(self.plan, rank)})"

    def _stack_by_signal(self, rank: int) -> str:
        """The stack of a rank of this machine that does not answer by itself; a stopped one is woken."""
        process = self._ask("process", rank) or {}
        if process.get("host") != socket.gethostname():
            return "It runs on another machine; its stack is not available here."
        path = Path(process["stack"])
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(process["pid"], signal.SIGUSR1)
            os.kill(process["pid"], signal.SIGCONT)
            patience, before = time.monotonic() + 2 * GRACE, 0
            # until it grows no more: threads are written one by one, and the main one comes last
            while (not (size := path.stat().st_size) or size != before) and time.monotonic() < patience:
                before = size
                time.sleep(0.05)
        # threads are listed newest first, so the last one is the main thread
        main = path.read_text().rpartition("Thread ")[2] if path.exists() else ""
        return f"Its stack, innermost call first:\n{main}" if main else "It left no stack trace."


def forget(run: Run) -> None:
    """Forget what an earlier start of the run wrote."""
    for folder in (run.hang, run.processes):
        shutil.rmtree(folder, ignore_errors=True)
