"""Looking through a module once, on the meta device: what its blocks are given and give, and where it uses what.

A position is how many blocks have begun: uses outside of blocks are before the first (0), between two, or behind the
last. Uses inside of a block have its number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakTensorKeyDictionary

from heddle.errors import HeddleError, listing
from heddle.models.own.build import unwatched
from heddle.models.own.files import OwnBatch, OwnFile, failed
from heddle.spec.model import IGNORE

HIDDEN = ("hidden_states", "x", "hidden", "inputs")  # what blocks call it, where they are given it by name


class ParameterUse(NamedTuple):
    """Where a parameter is used."""

    inside: bool
    place: int  # the block's number, or the position


@dataclass
class ModuleFacts:
    """What one forward pass showed."""

    uses: dict[str, set[ParameterUse]] = field(default_factory=lambda: defaultdict(set))
    shape: tuple[int, ...] = ()  # of what goes from block to block
    outputs: list[Any] = field(default_factory=list)  # of each block, on the meta device
    flops: list[int] = field(default_factory=list)  # of each block, and of what is outside
    order: list[int] = field(default_factory=list)  # in which blocks ran
    bypass: str = ""  # the first block past which something goes that learns, beside what goes from block to block


def find_blocks(file: OwnFile, module: nn.Module) -> tuple[str, list[nn.Module]]:
    """What the names of the repeated blocks begin with, and they themselves in order; none where nothing repeats."""
    pattern = file.blocks or _planned_blocks(module)
    if pattern is None:
        return "", []
    names = [name for name, _ in module.named_modules() if fnmatchcase(name, pattern)]
    prefix = pattern.removesuffix(".*")
    wanted = [f"{prefix}.{number}" for number in range(len(names))]
    found = [name for name in names if name in wanted]
    if not pattern.endswith(".*") or "*" in prefix or not found:
        lists = [name for name, each in module.named_modules() if isinstance(each, nn.ModuleList)]
        raise HeddleError(
            f"{file.path}: plan['blocks'] = {pattern!r} matches no list of blocks.",
            "It names a list whose modules run one after the other.",
            f"Lists of this module: {listing([f'{name}.*' for name in lists]) if lists else 'none'}.",
        )
    return prefix, [module.get_submodule(name) for name in wanted if name in found]


def _planned_blocks(module: nn.Module) -> str | None:
    """Where Hugging Face says how a model is cut, its only list of layers."""
    plan = getattr(module, "pp_plan", None) or {}
    lists = [name for name in plan if _is_list(module, name)]
    return f"{lists[0]}.*" if len(lists) == 1 else None


def _is_list(module: nn.Module, name: str) -> bool:
    try:
        return isinstance(module.get_submodule(name), nn.ModuleList)
    except AttributeError:
        return False


def hidden_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | str, Tensor] | None:
    """Which argument of a block is what the block before gave, and it."""
    for place, value in enumerate(args):
        if isinstance(value, Tensor) and value.is_floating_point():
            return place, value
    named = [*(name for name in HIDDEN if name in kwargs), *kwargs]
    for name in named:
        if isinstance(kwargs[name], Tensor) and kwargs[name].is_floating_point():
            return name, kwargs[name]
    return None


def first_tensor(output: Any) -> Tensor:
    """What a block gives to the next, alone or first among other things."""
    return next(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))


def look_through(file: OwnFile, module: nn.Module, samples: int, sequence: int) -> ModuleFacts:
    """Call the loss on a module that lies on the meta device, and watch."""
    prefix, blocks = find_blocks(file, module)
    watch = _Watch(module, blocks, prefix)
    with unwatched():
        ids = torch.zeros(samples, sequence, dtype=torch.long, device="meta")
        batch = OwnBatch(ids, torch.zeros_like(ids))
    with ExitStack() as hooks, unwatched(), torch.device("meta"), watch, FlopCounterMode(display=False) as counter:
        for number, block in enumerate(blocks):
            hooks.callback(block.register_forward_pre_hook(watch.entering(number, counter), with_kwargs=True).remove)
            hooks.callback(block.register_forward_hook(watch.leaving(counter)).remove)
        try:
            result = file.loss(module, batch)
        except HeddleError:
            raise
        except (Exception, SystemExit) as error:
            raise failed(file.path, "cannot compute its loss on tensors without values", error) from error
        watch.seen.flops.append(counter.get_total_flops() - sum(watch.seen.flops))
    check_loss(file, result)
    if watch.seen.order != [*range(len(blocks))]:
        raise HeddleError(
            f"{file.path}: the blocks {prefix}.* ran in the order {watch.seen.order}.",
            "A pipeline cuts a list of blocks that run once each, one after the other.",
            "Leave plan['blocks'] out: data parallelism and ZeRO need none.",
        )
    return watch.seen


def check_loss(file: OwnFile, result: object) -> None:
    """A loss is a sum and a count."""
    total, count = result if isinstance(result, tuple) and len(result) == 2 else (None, None)
    counts = isinstance(count, int | float) or (isinstance(count, Tensor) and count.numel() == 1)
    if not (isinstance(total, Tensor) and total.dim() == 0 and counts):
        raise HeddleError(
            f"{file.path}: loss() gives {type(result).__name__}.",
            "It is to give two numbers: the sum of all losses, a tensor with gradients, and how many were summed.",
            f"For example F.cross_entropy(…, reduction='sum', ignore_index={IGNORE}), targets.ne({IGNORE}).sum().",
        )


class _Watch(TorchFunctionMode):
    """Notes which operation uses which parameter, and gives a number where a tensor without one is asked for it."""

    NUMBERS = frozenset((Tensor.item, Tensor.__int__, Tensor.__float__, Tensor.__bool__, Tensor.__index__))

    def __init__(self, module: nn.Module, blocks: list[nn.Module], prefix: str) -> None:
        super().__init__()
        self.names = {parameter: name for name, parameter in module.named_parameters()}
        self.seen, self.count, self.prefix = ModuleFacts(), len(blocks), prefix
        self.begun, self.inside = 0, -1
        self.hidden: Tensor | None = None  # what the newest block was given
        self.made: Any = WeakTensorKeyDictionary()  # how many blocks had begun when something was computed

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.NUMBERS and args[0].is_meta:
            return func(torch.ones((), device="cpu"))
        for leaf in _tensors((args, kwargs)):
            name = self.names.get(leaf) if isinstance(leaf, nn.Parameter) else None
            if name is not None:
                self.seen.uses[name].add(
                    ParameterUse(True, self.inside) if self.inside >= 0 else ParameterUse(False, self.begun)
                )
        result = func(*args, **(kwargs or {}))
        if learns := [each for each in _tensors(result) if each.requires_grad]:
            self._note_bypass((args, kwargs))
            for each in learns:
                self.made[each] = self.begun
        return result

    def _note_bypass(self, given: Any) -> None:
        """A stage is sent what its first block is given; of what else was computed before, it has no numbers."""
        for leaf in _tensors(given):
            early = leaf.requires_grad and self.made.get(leaf, self.begun) < self.begun
            if early and not self.seen.bypass and not (self.inside >= 0 and leaf is self.hidden):
                self.seen.bypass = f"{self.prefix}.{self.begun - 1}"

    def entering(self, number: int, counter: FlopCounterMode) -> Any:
        def before_block(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found = hidden_of(args, kwargs)
            if found is None:
                raise HeddleError(
                    f"The block {self.prefix}.{number} is given no tensor of numbers.",
                    "What goes from block to block is the first tensor that a block is given.",
                    "Let blocks take the hidden state first.",
                )
            self.hidden = found[1]
            self.seen.shape = tuple(found[1].shape)
            self.seen.order.append(number)
            self.began = counter.get_total_flops()
            self.inside, self.begun = number, self.begun + 1

        return before_block

    def leaving(self, counter: FlopCounterMode) -> Any:
        def after_block(_module: nn.Module, _inputs: Any, output: Any) -> None:
            self.seen.flops.append(counter.get_total_flops() - self.began)
            self.seen.outputs.append(output)
            self.inside = -1

        return after_block


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
