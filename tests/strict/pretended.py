"""A GPU that is only pretended: tensors "on" it lie in host memory, and what a real one would refuse or garble fails.

* Every tensor belongs to the device or to the host, and says so when it is asked. A kernel that is given both is
  refused; a number alone may come from the host, as on a real one.
* A copy to page-locked host memory that nobody waits for brings nothing yet: NaN lies there until the host has waited
  for an event, or a stream, behind it.
* Page-locked memory is taken by the thread that trains, never beside it: taking it would wait for an idle device.

Memory is marked rather than tensors, so views are where their memory is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import heddle.runtime.device
from tests.strict.replay import StrictError

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
Copy = tuple[Tensor, Tensor]  # where numbers are to go, and the numbers

# what carries numbers from one to the other
CROSSES = {"aten::copy_", "aten::_foreach_copy_", "aten::_to_copy", "aten::set_", "aten::resize_"}


class Stream:
    """What was given to it, as far as the host could see anything of it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.copies: list[Copy] = []

    def wait_event(self, event: Event) -> None:
        self.copies += event.copies

    def wait_stream(self, other: Stream) -> None:
        self.copies += other.copies

    def synchronize(self) -> None:
        deliver(self.copies)


class Event:
    """A moment in the work of a stream."""

    def __init__(self, **_: Any) -> None:
        self.copies: list[Copy] = []

    def record(self, stream: Stream | None = None) -> None:
        self.copies = list((stream or streams.now).copies)

    def query(self) -> bool:
        return not self.copies

    def synchronize(self) -> None:
        deliver(self.copies)

    def elapsed_time(self, _later: Event) -> float:
        return 1.0


class Streams(threading.local):
    """Each thread's present stream."""

    def __init__(self) -> None:
        self.now = Stream()

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.now = self.now, stream
        yield
        self.now = before


streams = Streams()


def deliver(copies: list[Copy]) -> None:
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        for target, values in copies:
            target.copy_(values)
    copies.clear()


def on_device(x: Tensor) -> bool:
    return getattr(_memory(x), "pretended", False)


def is_locked(x: Tensor) -> bool:
    return getattr(_memory(x), "locked", False)


def _memory(x: Tensor) -> Any:
    with torch._C.DisableTorchFunction():
        return x.untyped_storage() if x.layout == torch.strided else None


def put(made: Any, there: bool) -> Any:
    """Note of new tensors where they are."""
    for x in tree_leaves(made):
        if isinstance(x, Tensor) and not x.is_meta:
            _memory(x).pretended = there
    return made


class Kernels(TorchDispatchMode):
    """Sees every kernel."""

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and not x.is_meta]
        there = [x for x in given if on_device(x)]
        name = func._schema.name
        if there and name not in CROSSES:
            here = [x for x in given if not on_device(x) and x.dim()]
            if here:
                raise StrictError(f"{func} is given {len(there)} tensors of the device and {len(here)} of the host")
        made = func(*args, **kwargs)
        if there and name not in CROSSES:
            put(made, True)
        return made


class Asked(TorchFunctionMode):
    """Answers where tensors are, and makes those of the device in host memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return GPU if on_device(args[0]) else func(*args)
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return on_device(args[0])
        if func is torch.Tensor.record_stream:
            return None
        if func is torch.device:
            return func(*args, **kwargs)
        if func in (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda):
            return self._moved(func, *args, **kwargs)
        if func is torch.Tensor.copy_:
            return self._copied(*args, **kwargs)
        if func is torch.Tensor.pin_memory:
            return lock(args[0].clone())
        locked = kwargs.pop("pin_memory", False)
        devices = [x for x in (*args, *kwargs.values()) if _is_device(x)]
        there = any(torch.device(x).type == "cuda" for x in devices)
        args, kwargs = tree_map(_real, args), tree_map(_real, kwargs)
        made = func(*args, **kwargs)
        if devices and not any(torch.device(x).type == "meta" for x in devices):
            put(made, there)
        return lock(made) if locked else made

    def _moved(self, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        wanted = CPU if func is torch.Tensor.cpu else GPU if func is torch.Tensor.cuda else None
        for each in (*args, kwargs.get("device")):
            if _is_device(each):
                wanted = torch.device(each)
            elif isinstance(each, Tensor):
                wanted = GPU if on_device(each) else torch.device("meta") if each.is_meta else CPU
        wait = not kwargs.pop("non_blocking", False)
        there = on_device(x) if wanted is None else wanted.type == "cuda"
        if func is not torch.Tensor.to:
            args, kwargs = (CPU,), {}
        made = x.to if there == on_device(x) or x.is_meta else x.clone().to
        out = _plain(made, *tree_map(_real, args), **tree_map(_real, kwargs))
        if there != on_device(x) and not x.is_meta:
            put(out, there)
            if not there and not wait:
                late(out, out.clone())
        return out

    def _copied(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        leaves = on_device(source) and not on_device(target)
        if leaves and non_blocking and is_locked(target):
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                late(target, source.detach().to(target.dtype, copy=True))
            return target
        return target.copy_(source)


def _plain(func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    with torch._C.DisableTorchFunction():
        return func(*args, **kwargs)


def _is_device(x: Any) -> bool:
    return isinstance(x, torch.device) or (isinstance(x, str) and x.partition(":")[0] in ("cuda", "cpu", "meta"))


def _real(x: Any) -> Any:
    return CPU if _is_device(x) and torch.device(x).type == "cuda" else x


def lock(x: Tensor) -> Tensor:
    if threading.current_thread() is not threading.main_thread() and not threading.current_thread().name.startswith(
        "prefetch"
    ):
        raise StrictError("page-locked memory is taken beside a step")
    _memory(x).locked = True
    return x


def late(target: Tensor, values: Tensor) -> None:
    """Numbers that come once somebody has waited for them."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        target.fill_(torch.nan if target.is_floating_point() else torch.iinfo(target.dtype).max)
    streams.now.copies.append((target, values))


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Inside, this machine has one."""
    grouped = torch.optim.Optimizer._group_tensors_by_device_and_dtype
    run = threading.Thread.run

    def by_device(tensors: Any, with_indices: bool = False) -> Any:
        """Torch asks the tensors themselves, which do not know of it."""
        found = {}
        for (_, dtype), (lists, numbers) in grouped(tensors, with_indices).items():
            found[lists[0][0].device, dtype] = lists, numbers
        return found

    def run_there(thread: threading.Thread) -> None:
        with Asked(), Kernels():
            run(thread)

    fakes: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device": lambda _: None,
        "Event": Event,
        "Stream": Stream,
        "stream": streams.on,
        "current_stream": lambda *_: streams.now,
        "synchronize": lambda *_: streams.now.synchronize(),
        "get_device_capability": lambda *_: (9, 0),
    }
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(torch.cuda, **fakes))
        stack.enter_context(patch.object(torch.optim.Optimizer, "_group_tensors_by_device_and_dtype", by_device))
        stack.enter_context(patch.object(threading.Thread, "run", run_there))
        stack.enter_context(patch.object(heddle.runtime.device, "allow_tf32", lambda: None))
        stack.enter_context(Asked())
        stack.enter_context(Kernels())
        yield
