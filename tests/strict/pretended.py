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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import heddle.runtime.device
from tests.strict.replay import StrictError

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
plain = torch._C.TensorBase

# what carries numbers from one to the other
CROSSES = {"aten::copy_", "aten::_foreach_copy_", "aten::set_", "aten::resize_"}


class Copy:
    """Numbers on their way to the host."""

    def __init__(self, target: Tensor, values: Tensor) -> None:
        self.target, self.values = target, values
        self.done = False

    def deliver(self) -> None:
        if not self.done:
            with torch._C._DisableTorchDispatch():
                plain.copy_(self.target, self.values)
        self.done = True


Copies = dict[int, Copy]  # those that come before some moment


def joined(*some: Copies) -> Copies:
    return {key: copy for copies in some for key, copy in copies.items() if not copy.done}


class Stream:
    """What was given to it, as far as the host could see anything of it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.copies: Copies = {}

    def wait_event(self, event: Event) -> None:
        self.copies = joined(self.copies, event.copies)

    def wait_stream(self, other: Stream) -> None:
        self.copies = joined(self.copies, other.copies)

    def synchronize(self) -> None:
        for copy in self.copies.values():
            copy.deliver()


class Event:
    """A moment in the work of a stream."""

    def __init__(self, **_: Any) -> None:
        self.copies: Copies = {}

    def record(self, stream: Stream | None = None) -> None:
        self.copies = joined((stream or streams.now).copies)

    def query(self) -> bool:
        return all(copy.done for copy in self.copies.values())

    def synchronize(self) -> None:
        for copy in self.copies.values():
            copy.deliver()

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


def on_device(x: Tensor) -> bool:
    return getattr(_memory(x), "pretended", False)


def is_locked(x: Tensor) -> bool:
    return getattr(_memory(x), "locked", False)


def _memory(x: Tensor) -> Any:
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


FACTORIES = ("empty", "zeros", "ones", "full", "tensor", "arange", "empty_like", "zeros_like", "ones_like", "full_like")


def makes(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A factory that makes tensors of the device in host memory."""

    def factory(*args: Any, pin_memory: bool = False, device: Any = None, **kwargs: Any) -> Tensor:
        if device is not None:
            kwargs["device"] = CPU if torch.device(device).type == "cuda" else device
        made = make(*args, **kwargs)
        if device is not None:
            put(made, torch.device(device).type == "cuda")
        return lock(made) if pin_memory else made

    return factory


def device_of(x: Tensor) -> torch.device:
    return GPU if on_device(x) else plain.device.__get__(x)  # type: ignore[attr-defined]


def to(x: Tensor, *args: Any, non_blocking: bool = False, **kwargs: Any) -> Tensor:
    """As `Tensor.to`: where it crosses, it copies."""
    wanted = device_of(x)
    for each in (*args, kwargs.get("device")):
        if isinstance(each, torch.device | str):
            wanted = torch.device(each)
        elif isinstance(each, Tensor):
            wanted = each.device
    args = tuple(CPU if _is_gpu(each) else each for each in args)
    kwargs = {name: CPU if _is_gpu(each) else each for name, each in kwargs.items()}
    there = wanted.type == "cuda"
    if there == on_device(x) or x.is_meta:
        made = plain.to(x, *args, **kwargs)
        return made if made is x else put(made, there)
    if there:
        bring_in_order(x)
    with torch._C._DisableTorchDispatch():
        made = put(plain.to(x.clone(), *args, **kwargs), there)
        if not there and non_blocking:
            late(made, made.clone())
    return made


def _is_gpu(x: Any) -> bool:
    return isinstance(x, torch.device | str) and torch.device(x).type == "cuda"


def copy_(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """As `Tensor.copy_`: what comes to locked memory comes later."""
    if on_device(source) and not on_device(target) and non_blocking and is_locked(target):
        with torch._C._DisableTorchDispatch():
            late(target, plain.to(source.detach(), target.dtype, copy=True))
        return target
    if on_device(target):
        bring_in_order(source)
    return plain.copy_(target, source)


def bring_in_order(source: Tensor) -> None:
    """A device that reads host memory sees what its stream has brought there, or has waited for."""
    for copy in streams.now.copies.values() if is_locked(source) else ():
        if _memory(copy.target) is _memory(source):
            copy.deliver()


def lock(x: Tensor) -> Tensor:
    if threading.current_thread() is not threading.main_thread() and not threading.current_thread().name.startswith(
        "prefetch"
    ):
        raise StrictError("page-locked memory is taken beside a step")
    _memory(x).locked = True
    return x


def late(target: Tensor, values: Tensor) -> None:
    """Numbers that come once somebody has waited for them."""
    with torch._C._DisableTorchDispatch():
        target.fill_(torch.nan if target.is_floating_point() else torch.iinfo(target.dtype).max)
    copy = Copy(target, values)
    streams.now.copies[id(copy)] = copy


TENSOR: dict[str, Any] = {
    "device": property(device_of),
    "is_cuda": property(on_device),
    "to": to,
    "cpu": lambda x: to(x, CPU),
    "copy_": copy_,
    "pin_memory": lambda x: lock(x.clone()),
    "record_stream": lambda _x, _stream: None,
}


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
        with Kernels():
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
        for name in FACTORIES:
            stack.enter_context(patch.object(torch, name, makes(getattr(torch, name))))
        for name, value in TENSOR.items():
            stack.enter_context(patch.object(torch.Tensor, name, value, create=True))
        stack.enter_context(Kernels())
        yield
