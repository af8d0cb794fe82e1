"""`heddle.tiles.compile`: a module as a callable that runs on CPU cores tile by tile."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from heddle.capturing.export import export
from heddle.errors import HeddleError
from heddle.tiles.engine.calls import calls
from heddle.tiles.engine.pool import Pool, pool, worker_count
from heddle.tiles.lower.facts import draws
from heddle.tiles.lower.lowering import Weights
from heddle.tiles.lower.rewrite import rewrites
from heddle.tiles.program import TileProgram, enough_memory
from heddle.tiles.tiling import Tiling
from heddle.tiles.tune import known_tiling, tuned

SIGNATURES = 16  # shapes that are kept compiled; the one that was used longest ago goes first


class Compiled:
    """A module that runs tile by tile. Weights are those it had when it was compiled."""

    def __init__(
        self,
        module: nn.Module,
        threads: int,
        workers: Pool | None = None,
        level: int = 1,
        tune: bool = False,
        bits: int = 32,
    ) -> None:
        self.module, self.threads, self.level, self.tune = module, threads, level, tune
        self.bits = bits  # of weights that meet a few rows
        self.workers = workers
        self.weights: Weights = {}
        self.programs: dict[Any, TileProgram | None] = {}  # None: PyTorch runs this signature
        self.whole: str | None = None  # why PyTorch runs all of it, if it does
        self.compiled_from: list[Any] = []  # the state of the module's weights when they were packed
        self.lock = threading.Lock()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """What the module would give, without gradients."""
        with calls:
            program, flat = self.program(inputs, keywords)
            if program is None:
                with torch.no_grad():
                    return self.module(*inputs, **keywords)
            return program.program.restore(program.run(flat, self.pool, self.level))

    @property
    def pool(self) -> Pool:
        """The workers that run it."""
        return self.workers or pool(self.threads)

    def traced(self, *inputs: Any, **keywords: Any) -> tuple[TileProgram, NDArray[np.int64]]:
        """Run once, and give for each tile its worker, start and end in nanoseconds."""
        program, flat = self.program(inputs, keywords)
        if program is None:
            raise HeddleError(
                "There are no tiles to trace.",
                self.whole or "PyTorch runs this module.",
                "Capture the parts around it.",
            )
        times = np.zeros((len(program.graph.tiles) + 1, 3), dtype=np.int64)
        program.run(flat, self.pool, self.level, times)
        return program, times[1:]

    def program(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[TileProgram | None, list[Any]]:
        """The tiles for inputs of these shapes, compiled where they are new, and the inputs, flat."""
        flat, form = pytree.tree_flatten((tuple(inputs), dict(keywords)))
        flat = [_plain(number, value) for number, value in enumerate(flat)]
        key = (str(form), tuple(_signature(value) for value in flat))
        with self.lock:
            if key not in self.programs:
                while len(self.programs) >= SIGNATURES:
                    self.programs.pop(next(iter(self.programs)))
                self.programs[key] = self._compile(inputs, keywords)
            self.programs[key] = self.programs.pop(key)
            return self.programs[key], flat

    def _compile(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> TileProgram | None:
        self._check_weights()
        try:
            program = export(self.module, inputs, keywords, training=False, loss=None, rewrites=rewrites())
        except HeddleError as error:
            if not self._runs(inputs, keywords):
                raise
            self.whole = f"{error.what} {error.why} {error.hint}".strip()
            return None
        specs = program.exported.graph_signature
        changed = [*specs.buffers_to_mutate.values(), *specs.user_inputs_to_mutate.values()]
        chance = next((program.where(node) for node in program.calls if draws(node)), None)
        if changed or chance:
            self.whole = f"The module changes {changed[0]} in place." if changed else f"{chance} draws random numbers."
            return None
        self.whole = None
        with enough_memory("packed weights"):
            if self.tune:
                flat, _ = pytree.tree_flatten((tuple(inputs), dict(keywords)))
                given = [_plain(number, value) for number, value in enumerate(flat)]
                return tuned(program, self.pool, self.weights, given)
            tiling = known_tiling(program, self.threads) or Tiling(self.threads)
            return TileProgram(program, tiling, self.weights, self.bits)

    def _check_weights(self) -> None:
        """Packed weights are shared by all shapes: those of one shape must not be joined with later ones."""
        now = [_fingerprint(each) for each in (*self.module.parameters(), *self.module.buffers())]
        if any(self.programs.values()) and now != self.compiled_from:
            raise HeddleError(
                "The module's weights have changed since it was compiled.",
                "A new input shape would mix old and new weights: all shapes share those that were compiled.",
                "Compile the module again.",
            )
        self.compiled_from = now

    def _runs(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
        """Whether PyTorch itself can run these inputs: then the fault is in capturing, not in what was given."""
        try:
            with torch.no_grad():
                self.module(*inputs, **keywords)
        except (Exception, SystemExit):
            return False
        return True

    @property
    def fallback_operators(self) -> list[str]:
        """What PyTorch runs instead of tiles, of the signature used last."""
        last = next(reversed(self.programs.values()), None)
        return [f"the whole module: {self.whole}"] if last is None else last.fallback_operators

    def summary(self) -> str:
        """What was compiled, in words."""
        last = next(reversed(self.programs.values()), None)
        if last is None:
            return f"PyTorch runs the whole module. {self.whole}"
        tiles, operators = len(last.graph.tiles), len(last.graph.operators)
        lines = [f"{tiles:,} tiles of {operators:,} operators, arena {last.arena_bytes / 2**20:,.1f} MiB"]
        lines += [f"PyTorch runs {', '.join(last.fallback_operators)}"] if last.fallbacks else []
        return "\n".join(lines)


class Bucketed(Compiled):
    """A module whose inputs have one size that varies: they are filled up to one of a few, and outputs cut again.

    That what is behind the end changes nothing before it is checked with PyTorch, once for each size that is compiled.
    """

    dims: Mapping[int, int] = {}  # of the inputs whose size varies

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """What the module would give, without gradients."""
        sizes = {inputs[number].shape[dim] for number, dim in self.dims.items()}
        if len(sizes) != 1:
            raise HeddleError(
                f"The inputs have the sizes {sorted(sizes)} along their dynamic dims.",
                "All of them vary together.",
                "Give inputs of one size, or name only one of them in `dynamic`.",
            )
        (size,) = sizes
        bucket = bucket_of(size)
        if bucket == size:
            return super().__call__(*inputs, **keywords)
        filled = [_filled(each, self.dims[n], bucket) if n in self.dims else each for n, each in enumerate(inputs)]
        found, form = pytree.tree_flatten(super().__call__(*filled, **keywords))
        key = (bucket, tuple(_signature(each) for each in found))
        if key not in self.cuts:
            self.cuts[key] = self._checked(found, inputs, keywords, size, bucket)
        for number, dim in self.cuts[key]:
            found[number] = found[number].narrow(dim, 0, size)
        return pytree.tree_unflatten(found, form)

    @cached_property
    def cuts(self) -> dict[Any, list[tuple[int, int]]]:
        """For each size, which dims of which outputs have it."""
        return {}

    def _checked(
        self, found: list[Any], inputs: Sequence[Any], keywords: Mapping[str, Any], size: int, bucket: int
    ) -> list[tuple[int, int]]:
        """The dims to cut, where PyTorch gives the same for what was not filled up."""
        with torch.no_grad():
            wanted = pytree.tree_leaves(self.module(*inputs, **keywords))
        cuts = []
        for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
            if not isinstance(ours, Tensor):
                continue
            for dim, pair in enumerate(zip(ours.shape, theirs.shape, strict=True)):
                if pair == (bucket, size):
                    cuts.append((number, dim))
                    ours = ours.narrow(dim, 0, size)
            same = ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4, equal_nan=True)
            if not same:
                raise HeddleError(
                    f"Output {number} depends on how far the inputs are filled up: from {size} to {bucket}.",
                    "What lies behind the end of a dynamic dim must not change what lies before it.",
                    "Mask it in the module, or compile without `dynamic`: then each size is compiled on its own.",
                )
        return cuts


def bucket_of(size: int) -> int:
    """The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, … that is not below a size: at most a third is filled up."""
    power = 1 << max(size - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and size <= power * 3 // 4 else power


def _filled(value: Tensor, dim: int, size: int) -> Tensor:
    """With zeros behind its end."""
    shape = list(value.shape)
    shape[dim] = size
    whole = value.new_zeros(shape)
    whole.narrow(dim, 0, value.shape[dim]).copy_(value)
    return whole


def _plain(number: int, value: Any) -> Any:
    """An input as tiles read it: dense, in memory of this machine."""
    if not isinstance(value, Tensor):
        return value
    if value.device.type != "cpu" or value.layout is not torch.strided:
        raise HeddleError(
            f"Input {number} is on {value.device} with the layout {value.layout}.",
            "Tiles run on CPU cores, over dense tensors.",
            "Give x.cpu(), or x.to_dense().",
        )
    return value.detach().contiguous()


def _fingerprint(tensor: Tensor) -> Any:
    """What tells a tensor from a changed one: where it is, and the sum of its bits."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return (id(tensor), tensor._version)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(tensor.element_size(), torch.int64)
    bits = tensor.detach().contiguous().reshape(-1).view(whole).sum(dtype=torch.int64)
    return (tensor.data_ptr(), tuple(tensor.shape), int(bits))


def _signature(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else repr(value)


def compile(  # noqa: A001 - as torch.compile
    module: nn.Module,
    example_inputs: Sequence[Any] = (),
    *,
    threads: int | None = None,
    keywords: Mapping[str, Any] | None = None,
    tune: bool = False,
    dynamic: Mapping[int, int] | None = None,
) -> Compiled:
    """A module as a callable that runs on CPU cores tile by tile, without gradients.

    Each tile runs as soon as its own inputs are ready, whatever operator it belongs to. Weights are taken as they are
    now. For inputs of another shape or type, the module is compiled again when they first occur.

    Args:
        module: what to run; put it in evaluation mode first.
        example_inputs: what it is called with.
        threads: workers; by default, all cores that this process may use.
        keywords: named inputs.
        tune: try some tile sizes by running them; the best are remembered for this machine and this graph.
        dynamic: of inputs by their number, the dim whose size varies, such as that of a batch or of a text. Inputs are
            filled up with zeros to 1, 2, 3, 4, 6, 8, 12, … so that not every size is compiled.
    """
    workers = worker_count(threads)
    if not isinstance(module, nn.Module):
        raise HeddleError(
            f"A {type(module).__name__} is not a torch.nn.Module.",
            "Only modules can be compiled.",
            "Give the module itself.",
        )
    if dynamic:
        varying = Bucketed(module, workers, tune=tune)
        varying.dims = _varying(dynamic, example_inputs)
        varying(*example_inputs, **dict(keywords or {}))
        return varying
    compiled = Compiled(module, workers, tune=tune)
    compiled.program(tuple(example_inputs), dict(keywords or {}))
    return compiled


def _varying(dynamic: Mapping[int, int], inputs: Sequence[Any]) -> dict[int, int]:
    """What was given as dynamic, where the inputs have it."""
    for number, dim in dynamic.items():
        value = inputs[number] if isinstance(number, int) and 0 <= number < len(inputs) else None
        if not isinstance(value, Tensor) or not -value.dim() <= dim < value.dim() or not value.shape[dim]:
            raise HeddleError(
                f"dynamic has {{{number}: {dim}}}, which is not a dim of any example input.",
                "It gives, for inputs by their number from 0 on, the dim whose size varies.",
                "dynamic={0: 0} lets the first dim of the first input vary.",
            )
    return {number: dim % inputs[number].dim() for number, dim in dynamic.items()}
