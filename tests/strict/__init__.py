"""Training over a transport with NCCL's rules, on machines without a GPU.

    strict_run(job, steps)  # real `Trainer` steps, every rank a thread; a StrictError tells what GPUs would not bear

**What is real**: `build_mesh`, `Trainer`, schedules, autograd, numbers. **What is emulated**: the
process group underneath. It works in two halves, because a CPU cannot queue its work as a GPU does:

1. *Record* (`transport.py`, `watch.py`). Each rank computes at once, and a `wait` really waits. Every launch, wait,
   host synchronization and first use of a kernel is written down. What depends on one rank's order alone is checked
   here: a kernel that touches the memory of an operation under way is an error, as is a mismatch of kind, dtype or
   size.
2. *Replay* (`replay.py`). The programs of all ranks run again on devices with hosts, streams and hardware queues, where
   the host goes on at a `wait`, communicators connect when first used, and kernels load when first used. What blocks
   for ever is named: rank, operation, communicator, each waiting for the next.

The order in which a rank does things does not depend on time, so one recording stands for all that could happen.

A new schedule or exchange: add it to the grid of `tests/numerics/test_equality_grid.py`, and it runs here, too. So do
the grids of memory by layer (`test_memory_grid.py`), late updates (`test_late_grid.py`), codes and meetings.
"""

from tests.strict.program import Communicator, Event, Launch, Load, Meet, Operation, Synchronize, Wait
from tests.strict.replay import Replay, StrictError
from tests.strict.run import Run, record, strict_ranks, strict_run

__all__ = [
    "Communicator",
    "Event",
    "Launch",
    "Load",
    "Meet",
    "Operation",
    "Replay",
    "Run",
    "StrictError",
    "Synchronize",
    "Wait",
    "record",
    "strict_ranks",
    "strict_run",
]
