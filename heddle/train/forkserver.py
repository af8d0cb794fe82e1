"""The server that a plan's processes are forked from: it imports everything once, for all of them.

No torch here, so that the server imports it at the same time as the process that starts the server.
"""

from __future__ import annotations

import os
import signal
import socket
from multiprocessing import forkserver, get_all_start_methods

from heddle.spec.plan import Plan
from heddle.train.launched import launched_place

# The last one is what the first optimizer of a process imports: a second that every start and restart would wait for.
PRELOADED = ["heddle.train.loop", "torch._dynamo"]
GPUS = ("/dev/nvidia0", "/dev/kfd")  # of NVIDIA and AMD; what was forked could not use them


def start_early(plan: Plan) -> None:
    """Start the server before torch is imported here, if this command is to start processes by itself."""
    if plan.world > 1 and launched_place() is None and not any(map(os.path.exists, GPUS)):
        set_environment(plan.world)
        start()


def set_environment(world: int) -> None:
    """What the processes inherit, where the user has not said otherwise."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // world)))
    # gloo would look for an address by the machine's name, which fails on a laptop without a network
    loopback = {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())


def start() -> bool:
    """Start the server, unless it runs already; False where a system cannot fork."""
    if "forkserver" not in get_all_start_methods():
        return False
    forkserver.set_forkserver_preload(PRELOADED)
    # The processes inherit that SIGINT is ignored: of a Ctrl-C, which reaches them too, only the parent shall hear.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    forkserver.ensure_running()
    signal.signal(signal.SIGINT, before)
    return True
