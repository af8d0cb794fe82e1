"""Groups over gloo that share one thread, where each would have its own."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any


@cache
def sharing() -> type[Any]:
    """Gloo's groups with one thread for all of a process that waits for messages.

    Each thread wakes a hundred times a second whether or not there is anything to do: with all the groups that tests
    leave behind that was half of a machine's time.
    """
    from torch.distributed import distributed_c10d

    class Sharing(distributed_c10d.ProcessGroupGloo):
        device = distributed_c10d.ProcessGroupGloo.create_default_device()

        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
            options = self._Options()  # type: ignore[attr-defined]
            options._devices, options._timeout = [self.device], timeout
            super().__init__(store, rank, size, options)

    return Sharing
