"""What a shell's limits, and not the machine's, do to the processes of a run."""

from __future__ import annotations

import resource

from heddle.errors import HeddleError

FILES, FILES_PER_RANK = 24, 4  # that a launcher, and each rank, has open at least
FEW = 256  # open files; below that, they may be why a rank ended


def refuse_few_files(world: int) -> None:
    """Refuse what would fail halfway: without a free descriptor the server that ranks are forked from dies."""
    needed, (allowed, _) = FILES + FILES_PER_RANK * world, resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise HeddleError(
            f"{world} processes need at least {needed} open files each.",
            f"`ulimit -n` allows {allowed}.",
            "Raise it with `ulimit -n 1024`, or use fewer processes.",
        )


def limit_reached(name: str, error: Exception) -> HeddleError | None:
    """An error of a rank that is a limit's, told as such."""
    if "Too many open files" in str(error):
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return HeddleError(
            f"{name} ran out of open files.", f"`ulimit -n` allows {allowed}.", "Raise it with `ulimit -n 1024`."
        )
    if not (isinstance(error, MemoryError) or "can't start new thread" in str(error)):
        return None
    addresses = _addresses()
    return HeddleError(
        f"{name} ran out of memory or threads: {error or 'MemoryError'}.",
        f"{addresses}, which threads use up, too."
        if addresses
        else "The system allows no more: see `ulimit -u`, and how much memory is free.",
        "Raise it with `ulimit -v unlimited`." if addresses else "Use fewer processes, or a smaller microbatch.",
    )


def narrow_limits() -> str:
    """The limits that may have ended a process before it could say so, as sentences; empty where there are none."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = f"`ulimit -n` allows {files} open files" if 0 <= files < FEW else ""
    return "".join(f" {each}, which may be why." for each in (_addresses(), few) if each)


def _addresses() -> str:
    memory, _ = resource.getrlimit(resource.RLIMIT_AS)
    if memory == resource.RLIM_INFINITY:
        return ""
    return f"`ulimit -v` allows each process {memory / 2**30:.3g} GiB of addresses"
