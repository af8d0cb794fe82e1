"""What blocks leave for their backward: seen once on fake tensors, by the kernels that a CPU would run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from heddle.errors import HeddleError
from heddle.models.own.build import ALONE, called, unwatched
from heddle.models.own.files import OwnBatch, OwnFile
from heddle.models.own.look import find_blocks


def saved_in_blocks(file: OwnFile, small: bool, sequence: int, blocks: int) -> list[int]:
    """Bytes of one sample in fp32, block by block; zeros where a module asks fake tensors for numbers."""
    held = [0] * blocks
    try:
        with ALONE, unwatched(), torch.device("cpu"), FakeTensorMode(allow_non_fake_inputs=True):
            _look(file, called(file, small), sequence, held)
    except HeddleError:
        raise
    except Exception:  # whatever a module does not do with fake tensors, costs then follow from its FLOPs
        return [0] * blocks
    return held


def _look(file: OwnFile, module: nn.Module, sequence: int, held: list[int]) -> None:
    _, blocks = find_blocks(file, module)
    here: list[int] = [] if blocks else [0]  # the block that is at work
    known = {parameter.untyped_storage()._cdata for parameter in module.parameters()}
    kept: list[Tensor] = []  # so that no address is used again

    def save(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if here and storage._cdata not in known:
            known.add(storage._cdata)
            kept.append(x)
            held[here[-1]] += storage.nbytes()
        return x

    def entering(number: int) -> Callable[..., None]:
        return lambda *_: here.append(number)

    def leaving(*_: Any) -> None:
        here.pop()

    ids = torch.zeros(1, sequence, dtype=torch.long)
    with ExitStack() as hooks, saved_tensors_hooks(save, lambda x: x):
        for number, block in enumerate(blocks):
            hooks.callback(block.register_forward_pre_hook(entering(number)).remove)
            hooks.callback(block.register_forward_hook(leaving).remove)
        file.loss(module, OwnBatch(ids, torch.zeros_like(ids)))
