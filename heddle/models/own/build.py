"""The module as a file makes it: parameters without memory, buffers with their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from heddle.errors import HeddleError
from heddle.models.own.files import OwnFile, failed

ALONE = RLock()  # one at a time in a process, for what a module's making changes belongs to all


def build(file: OwnFile, small: bool = False) -> nn.Module:
    """Make the module. A parameter is on the meta device as soon as its module has it, so none takes memory for long.

    Buffers hold what they were given: tables of positions and masks are made once, by the user's code, and kept.
    """
    with ALONE, unwatched(), _parameters_without_memory():
        module = called(file, small)
    if lost := [name for name, buffer in module.named_buffers() if buffer.is_meta]:
        raise HeddleError(
            f"{file.path}: {file.function}() leaves the buffer {lost[0]} without values.",
            "It was made on the meta device. Heddle leaves out the memory of parameters by itself.",
            f"Leave torch.device('meta') out of {file.function}().",
        )
    return module


def unwatched() -> AbstractContextManager[Any]:
    """Without those who watch or fake operators, as a dry run does: what is looked at here has no part in its step."""
    return _disable_current_modes()


def build_on_meta(file: OwnFile, small: bool = False) -> nn.Module:
    """The same with nothing of any value, to look at shapes."""
    with unwatched(), torch.device("meta"):
        return called(file, small).to("meta")


def called(file: OwnFile, small: bool) -> nn.Module:
    """What the file's function makes, small if asked to."""
    try:
        module = file.make(small=True) if small else file.make()
    except HeddleError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(file.path, f"cannot make its module: {file.function}()", error) from error
    if not isinstance(module, nn.Module):
        raise HeddleError(
            f"{file.path}: {file.function}() gives a {type(module).__name__}.",
            "It is to give a torch.nn.Module.",
            f"Return the module from {file.function}().",
        )
    return module


class _NoValues(TorchFunctionMode):
    """What fills parameters in place does nothing: their initial values come later, and by name."""

    FILLS = frozenset(
        getattr(Tensor, name)
        for name in ("normal_", "uniform_", "zero_", "fill_", "copy_", "mul_", "add_", "clamp_", "erfinv_", "div_")
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.FILLS and isinstance(args[0], nn.Parameter):
            return args[0]
        return func(*args, **(kwargs or {}))


@contextmanager
def _parameters_without_memory() -> Iterator[None]:
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:
            empty = torch.empty_like(parameter, device="meta")
            module._parameters[name] = nn.Parameter(empty, requires_grad=parameter.requires_grad)

    with patch.object(nn.Module, "register_parameter", without_memory), _NoValues(), torch.device("cpu"):
        yield
