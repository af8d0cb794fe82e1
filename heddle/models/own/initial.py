"""Initial weights of the user's own modules: from the seed alone, the same under every plan.

A module of moderate size is made once more as the file makes it, on the host, and every rank takes its parts of it.
A larger one would not fit there. Then each module in it that has parameters gets memory for these alone, and fills them
by its own rule, from the seed and its name: by `initialize` of the file, by `_init_weights` of the model that it is in,
or by `reset_parameters`.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from heddle.errors import HeddleError
from heddle.models.own.build import ALONE, called
from heddle.models.own.files import OwnFile
from heddle.models.random import key

MODERATE = 1 << 28  # parameters: a gibibyte in full precision


class InitialWeights:
    """Gives parts of parameters their initial values; of a larger module, the part that was made last is kept."""

    def __init__(
        self, file: OwnFile, module: nn.Module, seed: int, small: bool = False, moderate: int = MODERATE
    ) -> None:
        """`module` is whole, and its parameters have no memory."""
        self.file, self.module, self.seed, self.small = file, module, seed, small
        size = sum(parameter.numel() for parameter in module.parameters())
        self.at_once = size <= moderate and file.initialize is None
        self.kept: tuple[str, dict[str, Tensor]] | None = None
        self.roots = [each for each in module.modules() if hasattr(each, "_init_weights")]

    @torch.no_grad()
    def fill(self, target: Tensor, name: str, shape: torch.Size, offset: tuple[int, ...]) -> None:
        """Fill `target`, the box at `offset` of the parameter of that name and `shape`."""
        if isinstance(target, FakeTensor):
            return  # a dry run: it has a shape, and no memory to fill
        path, _, own = ("", "", name) if self.at_once else name.rpartition(".")
        if self.kept is None or self.kept[0] != path:
            self.kept = path, self._whole() if self.at_once else self._made(path)
        box = tuple(slice(start, start + size) for start, size in zip(offset, target.shape, strict=True))
        values = self.kept[1][own]
        assert values.shape == shape
        part = values[box]
        if part.shape != target.shape:
            target.zero_()  # what only pads a vocabulary is multiplied, if only by zero
        target[tuple(slice(size) for size in part.shape)].copy_(part)

    def _whole(self) -> dict[str, Tensor]:
        with ALONE, torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(key("own", self.seed))
            return {name: parameter.data for name, parameter in called(self.file, self.small).named_parameters()}

    def _made(self, path: str) -> dict[str, Tensor]:
        """All parameters of one module, without those of the modules in it."""
        original = self.module.get_submodule(path)
        twin = copy.copy(original)
        made = {
            name: nn.Parameter(torch.empty(parameter.shape, device="cpu"))
            for name, parameter in original._parameters.items()
            if parameter is not None
        }
        twin._parameters = {**original._parameters, **made}
        with ALONE, torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(key("own", self.seed, path))
            self._fill(twin, path)
        return {name: parameter.data for name, parameter in made.items()}

    def _fill(self, twin: nn.Module, path: str) -> None:
        reset: Any = getattr(twin, "reset_parameters", None)
        if self.file.initialize is not None:
            self.file.initialize(twin, path)
        elif self.roots:
            self.roots[0]._init_weights(twin)  # type: ignore[operator]
        elif callable(reset):
            reset()
        else:
            raise HeddleError(
                f"Nobody says how the parameters of {path or 'the module'} ({type(twin).__name__}) begin.",
                f"A module with more than {MODERATE:,} parameters is filled part by part, and this one has no "
                "reset_parameters().",
                f"Add one, or initialize(module, name) to {self.file.path}.",
            )
