"""From a module to its program, or to the line of it that cannot be captured."""

from __future__ import annotations

import linecache
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, nn

from heddle.capturing.program import Program, tensors_of
from heddle.errors import HeddleError

Loss = Callable[[Any, Any], Tensor]


class WithLoss(nn.Module):
    """A module and its loss as one: the last input is the target."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        *inputs_of_module, target = inputs
        return self.loss(self.module(*inputs_of_module, **keywords), target)


def export(
    module: nn.Module,
    inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None,
    training: bool,
    loss: Loss | None,
    rewrites: Mapping[Any, Callable[..., Any]] | None = None,
) -> Program:
    """Capture a module for inputs of these shapes. `rewrites` say how operators are written in terms of others."""
    if not isinstance(module, nn.Module):
        raise HeddleError(
            f"A {type(module).__name__} is not a torch.nn.Module.",
            "Only modules can be captured.",
            "Give the module itself, and its inputs as a tuple.",
        )
    if not isinstance(inputs, tuple | list):
        raise HeddleError(
            f"The example inputs are a {type(inputs).__name__}.",
            "They are what the module is called with.",
            "Give a tuple, such as (x,); named ones go to `keywords`.",
        )
    whole = WithLoss(module, loss) if loss is not None else module
    try:
        with torch.set_grad_enabled(training), _silence():
            exported = torch.export.export(whole, tuple(inputs), dict(keywords or {}), strict=False)
            exported = exported.run_decompositions(dict(rewrites or {}))
    except (Exception, SystemExit) as error:  # a module that exits would end Heddle without a word
        raise _refused(whole, error) from None
    for node in exported.graph.nodes:
        # Fake tensors and real ones do not always have the same strides: attention chooses among several kernels.
        if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
            node.target = torch.ops.aten.reshape.default
    program = Program(whole, exported, training)
    _check(program)
    return program


@contextmanager
def _silence() -> Iterator[None]:
    """Of what torch says about its own code, and at length about what it refuses."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _check(program: Program) -> None:
    if not program.operators:
        raise HeddleError(
            "The module computes nothing.",
            "There is nothing to place.",
            "Give a module whose output depends on its inputs.",
        )
    for node in program.calls:
        shapes = [tensor.shape for tensor in tensors_of(node.meta.get("val"))]
        if any(not isinstance(size, int) for shape in shapes for size in shape):
            raise HeddleError(
                f"The module cannot be captured: {program.where(node)} returns a tensor of unknown size.",
                f"{node.target} returns {list(shapes[0])} here, but stages must know the sizes they exchange.",
                "Write it with torch.where or the like, so that all sizes are known.",
            )
    if not program.training:
        return
    outputs = [value for value in program.outputs if hasattr(value, "meta")]
    first = outputs[0].meta["val"] if len(outputs) == 1 else None
    if first is None or first.numel() != 1:
        what = f"{len(outputs)} tensors" if first is None else f"a tensor of shape {list(first.shape)}"
        raise HeddleError(
            f"The module returns {what}, but training needs one number, the loss.",
            "Gradients are taken of the loss.",
            "Give loss=, a function of the module's output and of the last example input.",
        )


def _refused(module: nn.Module, error: BaseException) -> HeddleError:
    """Name the innermost module at work, and its line."""
    names = {id(part): name for name, part in module.named_modules()}
    place, line = "", ""
    for frame, number in walk_tb(error.__traceback__):
        first = frame.f_code.co_varnames[:1]  # whatever it calls itself
        part = frame.f_locals.get(first[0]) if first else None
        if id(part) in names and isinstance(part, nn.Module):
            file = frame.f_code.co_filename
            if "torch/nn/modules/module.py" in file.replace("\\", "/"):
                continue
            name = names[id(part)] or "the module itself"
            place = f"{name} ({type(part).__name__})"
            line = f"{file}:{number}: {linecache.getline(file, number).strip()}"
    text = str(error).strip()
    reason = text.splitlines()[0] if text else type(error).__name__
    if isinstance(error, SystemExit):
        reason = f"it asks Python to exit, with {error.code!r}."
    if "Cache'>" in reason or 'Cache" ' in reason:  # what Hugging Face models give beside their logits
        return HeddleError(
            f"The module cannot be captured: {type(module).__name__} returns a key-value cache.",
            "A cache is for generating token by token; it is not a tensor that stages can send to each other.",
            "Switch it off: pass use_cache=False among the keywords, or set model.config.use_cache = False.",
        )
    return HeddleError(
        f"The module cannot be captured{f': {place}' if place else ''}.",
        f"{f'{line} – ' if line else ''}{reason}",
        "torch.export needs a forward pass whose path does not depend on the numbers in its inputs; write that line "
        "with torch.where or the like, or capture the parts around it.",
    )
