"""NumPy's matrix products on one thread, for as long as they are timed.

A product on several threads cannot be timed on a busy machine: the threads wait for each other without sleeping, which
counts as work, and its processor time is then many times what the product takes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# How libraries call the function that asks for their number of threads, and the one that sets it.
CALLED = (
    *(
        (f"{before}openblas_get_num_threads{after}", f"{before}openblas_set_num_threads{after}")
        for before in ("scipy_", "")
        for after in ("64_", "")
    ),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)
LIBRARIES = ("openblas", "mkl_rt", "blis")


@contextmanager
def one_thread() -> Iterator[None]:
    """Let products inside use one thread, where NumPy's library is one that can be told."""
    found = _controls()
    before = [ask() for ask, _ in found]
    for _, tell in found:
        tell(1)
    try:
        yield
    finally:
        for (_, tell), count in zip(found, before, strict=True):
            tell(count)


def _controls() -> list[tuple[Callable[[], int], Callable[[int], object]]]:
    """Of every such library that this process has loaded: what asks for its threads, and what sets them."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    paths = {line[line.index("/") :] for line in lines if "/" in line}
    found = []
    for path in sorted(path for path in paths if any(name in Path(path).name for name in LIBRARIES)):
        with suppress(OSError):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            found += [(getattr(library, a), getattr(library, b)) for a, b in CALLED if hasattr(library, a)][:1]
    return found
