"""How workers and callers sleep and wake each other: the only place of the engine that takes a lock.

A sleeper says so before it looks for work a last time, and who pushes work looks for sleepers after: one of the two
sees the other. A worker looks around for a while before it sleeps, because the next tile or the next call may follow
soon.
"""

from __future__ import annotations

from llvmlite import ir

from heddle.tiles.engine import layout as at
from heddle.tiles.engine.machine_code import I32, VOID, Value, WordFunction, number

SPINS = 200  # rounds of looking for work, while a call is under way, before a worker sleeps
PAUSES = 8  # between two rounds


def write_signal(module: ir.Module) -> WordFunction:
    """Wake one who sleeps, after work was pushed."""
    code = WordFunction(module, "signal", 1)
    (pool,) = code.arguments
    code.fence()
    with code.when(code.test(code.get_atomic(pool, at.SLEEPING, "monotonic"), ">", 0)):
        code.outside("pthread_mutex_lock", code.get(pool, at.MUTEX))
        code.outside("pthread_cond_signal", code.get(pool, at.WORK))
        code.outside("pthread_mutex_unlock", code.get(pool, at.MUTEX))
    code.give(0)
    return code


def write_finish(module: ir.Module) -> WordFunction:
    """The last tile of a call is done."""
    code = WordFunction(module, "finish", 2)
    pool, call = code.arguments
    code.add_atomic(pool, at.ACTIVE, -1)
    level = code.add(code.get(call, at.LEVEL), at.AT_LEVEL)
    code.add_atomic(pool, level, -1)
    mutex = code.get(pool, at.MUTEX)
    code.outside("pthread_mutex_lock", mutex)
    code.put_atomic(1, call, at.FINISHED)
    code.outside("pthread_cond_broadcast", code.get(pool, at.DONE))
    code.outside("pthread_cond_broadcast", code.get(pool, at.WORK))
    code.outside("pthread_mutex_unlock", mutex)
    code.give(0)
    return code


def _pause(code: WordFunction, triple: str) -> None:
    """Tell the core that this is a loop that waits."""
    x86 = triple.startswith("x86")
    name, takes = ("llvm.x86.sse2.pause", []) if x86 else ("llvm.aarch64.hint", [I32])
    pause = ir.Function(code.module, ir.FunctionType(VOID, takes), name)
    for _ in range(PAUSES):
        code.build.call(pause, [ir.Constant(kind, 1) for kind in takes])


def over(code: WordFunction, pool: Value, call: Value) -> Value:
    """Whether a worker has to leave: its call is finished, or the pool stops."""
    stop = code.variable(0)
    with code.when(code.test(call, "!=", 0)):
        code.write(stop, code.get_atomic(call, at.FINISHED))
    return code.build.or_(code.read(stop), code.get_atomic(pool, at.STOP))


def rest(code: WordFunction, triple: str, pool: Value, call: Value, idle: Value, has_work: WordFunction) -> None:
    """Nothing to do: look again for a while if a call is under way, then sleep."""
    code.write(idle, code.add(code.read(idle), 1))
    _pause(code, triple)
    quiet = code.test(code.get_atomic(pool, at.ACTIVE, "monotonic"), "==", 0)
    linger = code.get_atomic(pool, at.LINGER, "monotonic")
    done = code.build.icmp_signed(">", code.read(idle), code.build.select(quiet, linger, number(SPINS)))
    with code.when(done):
        code.write(idle, 0)
        code.add_atomic(pool, at.SLEEPING, 1)
        mutex = code.get(pool, at.MUTEX)
        code.outside("pthread_mutex_lock", mutex)
        free = code.build.or_(over(code, pool, call), code.call(has_work, pool))
        with code.when(code.test(free, "==", 0)):
            code.outside("pthread_cond_wait", code.get(pool, at.WORK), mutex)
        code.outside("pthread_mutex_unlock", mutex)
        code.add_atomic(pool, at.SLEEPING, -1)


def write_call(module: ir.Module, worker: WordFunction, signal: WordFunction) -> None:
    """`heddle_call(pool, call)`: hand a call in, and work as worker 0 until it is finished.

    Where somebody else is worker 0, sleep until the call is finished or that seat is free.
    """
    code = WordFunction(module, "heddle_call", 2, internal=False)
    pool, call = code.arguments
    mutex = code.get(pool, at.MUTEX)
    code.add_atomic(pool, at.ACTIVE, 1)
    code.add_atomic(pool, code.add(code.get(call, at.LEVEL), at.AT_LEVEL), 1)
    code.put_atomic(1, call, at.WAITING)
    code.add_atomic(pool, at.PENDING, 1)
    code.call(signal, pool)

    def turn() -> None:
        with code.when(code.swap(pool, at.SEAT, 0, 1)):
            code.call(worker, pool, 0, call)
            code.outside("pthread_mutex_lock", mutex)
            code.put_atomic(0, pool, at.SEAT)
            code.outside("pthread_cond_broadcast", code.get(pool, at.DONE))
            code.outside("pthread_mutex_unlock", mutex)
            code.give(0)
        code.outside("pthread_mutex_lock", mutex)
        with code.when(code.test(over(code, pool, call), "!=", 0)):
            code.outside("pthread_mutex_unlock", mutex)
            code.give(0)
        with code.when(code.test(code.get_atomic(pool, at.SEAT), "!=", 0)):
            code.outside("pthread_cond_wait", code.get(pool, at.DONE), mutex)
        code.outside("pthread_mutex_unlock", mutex)

    code.forever(turn)
