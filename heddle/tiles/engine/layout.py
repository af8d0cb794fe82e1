"""The engine's memory, word by word: what the compiled workers and Python both read."""

from __future__ import annotations

LEVELS = 3  # of priority: 0 goes first
RUNS = 64  # calls that may be under way at once in a pool
CAPACITY = 1 << 16  # tiles that a worker's stack holds; all tiles of all calls under way must fit
LINE = 8  # words of a cache line

# A pool
STOP, SLEEPING, ACTIVE, PENDING, MUTEX, WORK, DONE, WORKERS, STACKS, TABLE, SEAT, LINGER = range(12)
# seat: whether there is a worker 0; linger: rounds of looking for the next call before a worker sleeps
AT_LEVEL = 16  # calls under way of each level
POOL_WORDS = 32

# A worker's stack of one level: thieves move the top, its owner the bottom; each on a cache line of its own
TOP, BOTTOM, RING = 0, LINE, 2 * LINE
STACK_WORDS = RING + CAPACITY

# A call
(RECORDS, RECORD_BYTES, COUNTERS, BASES, SCRATCH, SCRATCH_BYTES, LEFT, FINISHED, LEVEL, TIMES, WAITING, CHILDREN) = (
    range(12)
)
RUN_WORDS = 16

# A tile's record begins with these; kernels read what follows (kernels/emit.py)
KERNEL, FIRST_CHILD, CHILD_COUNT = range(3)
TIME_WORDS = 3  # of a tile in a trace: worker, start and end in nanoseconds
