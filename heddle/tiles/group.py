"""Several networks at once on the same workers, each with its priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from torch import nn

from heddle.errors import HeddleError, nearest
from heddle.tiles.compiled import Compiled
from heddle.tiles.engine.pool import Pool, worker_count

PRIORITIES = {"high": 0, "normal": 1, "low": 2}


class Group:
    """Compiled modules that share workers. Call them from your own threads, one or many.

    A tile of a higher priority goes before all others that are ready; running tiles are not interrupted. A core that
    is slow, or that others load, steals less: nothing has to be told to it.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.workers: Pool | None = Pool(worker_count(threads))

    def compile(
        self,
        module: nn.Module,
        example_inputs: Sequence[Any] = (),
        *,
        priority: str = "normal",
        keywords: Mapping[str, Any] | None = None,
    ) -> Compiled:
        """A module that runs on the group's workers."""
        if priority not in PRIORITIES:
            raise HeddleError(
                f"There is no priority {priority!r}.", "It says which call goes first.", nearest(priority, PRIORITIES)
            )
        if self.workers is None:
            raise HeddleError("This group is closed.", "Its workers have ended.", "Make another one.")
        compiled = Compiled(module, self.workers.threads, self.workers, PRIORITIES[priority])
        compiled.program(tuple(example_inputs), dict(keywords or {}))
        return compiled

    def close(self) -> None:
        """Stop the workers; modules of the group can no longer be called."""
        if self.workers is not None:
            self.workers.stop()
            self.workers = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
