"""Commands as processes of their own within a moment: forked from a server that has imported everything.

A new interpreter imports torch for seconds, and a run of several processes has two of them: the command and the server
that its ranks are forked from. Tests start such runs by the dozen, and few are about how an interpreter begins.

What is started here has an own process group, and arguments, folder, environment and streams as a new interpreter
would; so has the server of its ranks, a second fork, which nothing that the command changes in its modules reaches.
Everything else, signals, exits, locks, sockets, is what it always is.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import multiprocessing.process
import multiprocessing.util
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).parents[2]
IMPORTED = (
    "heddle.training.loop",
    "heddle.cli.app",
    "heddle.cli.train.train",
    "typer._adapters",
    "heddle.training.prove.prove",
    "heddle.lanes.callable",  # for kernels of dropout
    "torch._dynamo",
    "torch.utils.tensorboard",  # what a run's first rank imports to write there: a third of a second
)
MOST = 1 << 17  # bytes of a request
CLONE_NEWNET = 0x40000000
WIDTH = 8  # characters of a number that is told
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class WarmProcess(subprocess.Popen[str]):
    """`Popen` of a process that is the server's child: its end is told by the server.

    The first argument is "heddle", "-c" before code, or the path of a program. With a terminal, which is a descriptor,
    it leads a session there, and whatever it says is said there. A network namespace is named by its path.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        terminal: int | None = None,
        namespace: str | None = None,
    ) -> None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        (self.told, theirs_told), (out, theirs_out), (errors, theirs_errors) = (os.pipe() for _ in range(3))
        request = pickle.dumps((list(arguments), str(cwd), dict(environment), terminal is not None, namespace))
        streams = [nothing, theirs_out, theirs_errors] if terminal is None else [terminal] * 3
        socket.send_fds(_server(), [request], [*streams, theirs_told])
        for descriptor in (nothing, theirs_out, theirs_errors, theirs_told):
            os.close(descriptor)
        self.pid = int(os.read(self.told, WIDTH))
        self.args, self.returncode, self.stdin = list(arguments), None, None  # type: ignore[assignment]
        self.stdout, self.stderr = (os.fdopen(each, encoding="utf-8") for each in (out, errors))  # type: ignore[misc]
        self.text_mode, self._communication_started, self._input = True, False, None
        self._child_created, self._waitpid_lock = True, threading.Lock()

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        with self._waitpid_lock:
            if self.returncode is None:
                poll = select.poll()  # select has no room for descriptors from 1,024 on, of which a long suite has some
                poll.register(self.told, select.POLLIN)
                if not poll.poll(None if timeout is None else max(0.0, timeout) * 1000):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
                self.returncode = os.waitstatus_to_exitcode(int(os.read(self.told, WIDTH)))
                os.close(self.told)
        return self.returncode


_ours: list[tuple[subprocess.Popen[bytes], socket.socket]] = []


def _server() -> socket.socket:
    """The end of a socket whose other end the server reads; it starts when it is first needed."""
    if not _ours:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.helpers.warm", str(theirs.fileno())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL
        )
        theirs.close()
        _ours.append((process, ours))
    return _ours[0][1]


def close() -> None:
    """End the server, if there is one."""
    while _ours:
        process, ours = _ours.pop()
        ours.close()
        process.wait()


# ------------------------------------------------------------------------------------------------------- the server


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for every request; comes back in the child, with its arguments, and once nobody can ask any more."""
    ends: dict[int, int] = {}  # where the end of each child is told
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    poll = select.poll()  # the number of the socket is the parent's, and may be above what select can take
    poll.register(requests, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if woken in ready:
            os.read(woken, 1024)
            for pid, status in iter(_ended, None):
                _tell(ends.pop(pid), status)
        if requests.fileno() in ready:
            request, descriptors, *_ = socket.recv_fds(requests, MOST, 4)
            if not request:
                return None
            child = os.fork()
            if not child:
                signal.set_wakeup_fd(-1)
                requests.detach()  # or it would close whatever has its number later
                return _begin(request, descriptors)
            ends[child] = descriptors.pop()
            for descriptor in descriptors:
                os.close(descriptor)


def _ended() -> tuple[int, int] | None:
    with suppress(ChildProcessError):
        pid, status = os.waitpid(-1, os.WNOHANG)
        return (pid, status) if pid else None
    return None


def _tell(descriptor: int, status: int) -> None:
    with suppress(BrokenPipeError):
        os.write(descriptor, f"{status:{WIDTH}}".encode())
    os.close(descriptor)


def _begin(request: bytes, descriptors: list[int]) -> list[str]:
    """Be as a new interpreter is that is given these arguments."""
    arguments, cwd, environment, leads_session, namespace = pickle.loads(request)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    if leads_session:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    else:
        os.setpgid(0, 0)
    if namespace is not None:
        with Path(namespace).open("rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
    os.write(descriptors[3], f"{os.getpid():{WIDTH}}".encode())  # from now on it can be told from others
    os.closerange(3, 1024)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False, errors="backslashreplace")  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[0] = multiprocessing.process.ORIGINAL_DIR = cwd  # type: ignore[attr-defined]
    sys.argv = arguments if arguments[0] != "-c" else ["-c", *arguments[2:]]
    _fork_ranks_from_a_fork()
    return arguments


def _fork_ranks_from_a_fork() -> None:
    """Where a server of processes is started, another fork of ours becomes it, instead of a new interpreter."""
    plain = multiprocessing.util.spawnv_passfds
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spare = os.fork()
    if not spare:
        ours.close()
        _become_server(theirs)
    theirs.close()

    def spawnv_passfds(path: Any, words: Sequence[Any], passed: Sequence[int]) -> int:
        if "multiprocessing.forkserver" not in str(words[-1]) or ours.fileno() < 0:
            return plain(path, words, passed)
        ignored = [number for number in HEARD if signal.getsignal(number) == signal.SIG_IGN]
        blocked = list(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        told = pickle.dumps((str(words[-1]), list(passed), dict(os.environ), str(Path.cwd()), ignored, blocked))
        socket.send_fds(ours, [told], list(passed))
        ours.close()
        return spare

    multiprocessing.util.spawnv_passfds = spawnv_passfds


def _become_server(asked: socket.socket) -> NoReturn:
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN)
    request, descriptors, *_ = socket.recv_fds(asked, MOST, 16)
    if not request:  # the command has ended
        os._exit(0)
    code, numbers, environment, cwd, ignored, blocked = pickle.loads(request)
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in descriptors]
    asked.close()
    os.closerange(3, 100)
    for number, descriptor in zip(numbers, high, strict=True):
        os.dup2(descriptor, number, inheritable=True)
    os.closerange(100, 1024)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    exec(code, {})
    os._exit(0)


if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    # what every command would do once: look at the machine's speed, for a second if it is busy, and read signatures
    import_module("heddle.cost.measured.local_machine").looked()
    for command in ("train", "launch", "prove", "probe", "profile"):
        import_module("heddle.cli.app")._entry(command)
    gc.freeze()  # what was imported stays: a child that ends need not look through all of it
    words = serve(socket.socket(fileno=int(sys.argv[1])))
    if words is None:
        os._exit(0)  # nothing to tidy up, and that would take a second
    if words[0] == "heddle":
        runpy.run_module("heddle", run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(words[1], vars(sys.modules["__main__"]))
    else:
        runpy.run_path(words[0], run_name="__main__")
