"""A tile graph made ready to run: its table of records, its memory, and one call of it."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heddle.capturing.program import Program
from heddle.errors import HeddleError
from heddle.tiles.engine import layout as at
from heddle.tiles.engine.pool import Pool
from heddle.tiles.graph import Tile, TileGraph
from heddle.tiles.kernels.emit import BASE_SHIFT, HEADER
from heddle.tiles.kernels.library import library
from heddle.tiles.lower.lowering import Weights
from heddle.tiles.lower.walk import dense, lower_program
from heddle.tiles.memory import place_buffers
from heddle.tiles.operators.fallback import FallbackOperator
from heddle.tiles.tiling import Tiling
from heddle.tiles.values import View

ARENA = 1  # the number of its base; those of inputs and outputs follow
ALIGNED = 64
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass
class Instance:
    """The memory of one call at a time: another call that comes meanwhile takes another."""

    arena: Tensor
    counters: NDArray[np.int32]
    bases: NDArray[np.int64]
    scratch: Tensor
    inputs: Sequence[Any] = ()
    outputs: list[Tensor] = field(default_factory=list)
    failed: BaseException | None = None
    places: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of a call's words
    words: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # that are always the same

    @cached_property
    def errors(self) -> NDArray[np.uint8]:
        """Where kernels note errors: the beginning of the arena."""
        return self.arena[:ALIGNED].numpy()


class TileProgram:
    """One signature of a module."""

    def __init__(self, program: Program, tiling: Tiling, weights: Weights, bits: int = 32) -> None:
        self.program, self.tiling = program, tiling
        self.lower, self.results = lower_program(program, library().target, tiling, weights, bits)
        self.graph = TileGraph.build(self.lower.operators)
        self.arena_bytes = place_buffers(self.graph)
        self.fallbacks = [each for each in self.lower.operators if isinstance(each, FallbackOperator)]
        scratch = [getattr(each, "scratch", 0) for each in self.lower.operators]
        self.scratch_bytes = -(-max(scratch, default=0) // ALIGNED) * ALIGNED
        self.output_metas = self._output_metas()
        self.callback = CALLBACK(self._torch_operator)
        self._write_table()
        self.free: list[Instance] = []
        self.running: dict[int, Instance] = {}  # by the address of their bases
        self.lock = threading.Lock()

    @property
    def fallback_operators(self) -> list[str]:
        """What PyTorch runs, each with how often."""
        counts = Counter(each.operator for each in self.fallbacks)
        return [name if count == 1 else f"{name} × {count}" for name, count in sorted(counts.items())]

    def _output_metas(self) -> list[Tensor]:
        buffers = {}
        for operator in self.lower.operators:
            for view in [getattr(operator, "output", None), *getattr(operator, "outputs", [])]:
                if isinstance(view, View) and view.buffer.place == "output":
                    buffers[view.buffer.number] = view.buffer
        nodes = {number: node for node, number in self.lower.outputs.items()}
        values = [nodes[number].meta["val"] for number in sorted(buffers)]
        return [torch.empty_strided(tuple(each.shape), dense(each), dtype=each.dtype, device="meta") for each in values]

    # The table

    def _write_table(self) -> None:
        tiles, children = self.graph.tiles, self.graph.children
        words = HEADER + max((len(tile.operands) for tile in tiles), default=0)
        self.records = np.zeros((len(tiles) + 1, words), dtype=np.int64)
        flat = [child for each in children for child in each]
        self.children = np.array(flat or [0], dtype=np.int32)
        firsts = np.cumsum([0, *map(len, children)])
        self.records[:, at.FIRST_CHILD] = firsts[:-1]
        self.records[:, at.CHILD_COUNT] = [len(each) for each in children]
        self.waits = np.array([0, *(max(1, len(each)) for each in self.graph.parents)], dtype=np.int32)
        self.sinks = sum(not each for each in children)
        for number, tile in enumerate(tiles, 1):
            self.records[number, at.KERNEL] = self._kernel(tile)
            for place, operand in enumerate(tile.operands, HEADER):
                self.records[number, place] = operand if isinstance(operand, int) else self._word(*operand)

    def _kernel(self, tile: Tile) -> int:
        if tile.kernel is None:
            return ctypes.cast(self.callback, ctypes.c_void_p).value or 0
        return library().address(tile.kernel)

    def _word(self, view: View, offset: int) -> int:
        buffer = view.buffer
        distance = (view.offset + offset) * buffer.dtype.itemsize
        if buffer.place == "constant":
            assert buffer.constant is not None
            return buffer.constant.data_ptr() + distance
        if buffer.place == "arena":
            return (ARENA << BASE_SHIFT) + buffer.offset + distance
        first = ARENA + 1 + (len(self.program.inputs) if buffer.place == "output" else 0)
        return ((first + buffer.number) << BASE_SHIFT) + distance

    # A call

    def run(
        self, inputs: Sequence[Any], pool: Pool, level: int = 1, times: NDArray[np.int64] | None = None
    ) -> list[Any]:
        """One call: flat inputs to flat results. `times` takes worker, start and end of each tile."""
        instance = self.prepared(inputs, pool.threads)
        try:
            self.launch(instance, pool, level, times)
            return self.results_of(instance)
        finally:
            instance.inputs, instance.outputs = (), []
            with self.lock:
                self.free.append(instance)

    def prepared(self, inputs: Sequence[Any], threads: int) -> Instance:
        """The memory of a call, which knows where its inputs and outputs are."""
        with enough_memory("the module's outputs"):
            outputs = [torch.empty_strided(tuple(m.shape), m.stride(), dtype=m.dtype) for m in self.output_metas]
        instance = self._take(threads)
        instance.inputs, instance.outputs = inputs, outputs
        bases = instance.bases
        bases[ARENA] = instance.arena.data_ptr()
        for place, value in enumerate((*inputs, *instance.outputs), ARENA + 1):
            bases[place] = value.data_ptr() if isinstance(value, Tensor) else 0
        return instance

    def launch(self, instance: Instance, pool: Pool, level: int = 1, times: NDArray[np.int64] | None = None) -> None:
        """Run all tiles on the memory of a call."""
        instance.failed = None
        instance.counters[:] = self.waits
        instance.errors[:] = 0
        if len(self.graph.tiles):
            pool.run(lambda call: self._fill(call, instance, times), len(self.graph.tiles) + 1, level)
        if instance.failed is not None:
            raise instance.failed
        if instance.errors[0]:
            raise HeddleError(
                "An index is outside its table.",
                "An embedding does not have the requested row.",
                "Check the largest index against the vocabulary.",
            )

    def results_of(self, instance: Instance) -> list[Any]:
        """What a call gives, flat."""
        return [self._result(kind, value, instance) for kind, value in self.results]

    def base_of_input(self, number: int) -> int:
        """Which of a call's bases a flat input has."""
        return ARENA + 1 + number

    def base_of_result(self, number: int) -> int | None:
        """Which of a call's bases a flat result has; None where it is not computed."""
        kind, value = self.results[number]
        return ARENA + 1 + len(self.program.inputs) + value if kind == "output" else None

    def _result(self, kind: str, value: Any, instance: Instance) -> Any:
        if kind == "constant":
            return value.clone() if isinstance(value, Tensor) else value
        return instance.inputs[value] if kind == "input" else instance.outputs[value]

    def _fill(self, call: NDArray[np.int64], instance: Instance, times: NDArray[np.int64] | None) -> None:
        call[instance.places] = instance.words
        call[at.TIMES] = 0 if times is None else times.ctypes.data

    def _take(self, threads: int) -> Instance:
        with self.lock:
            for number, each in enumerate(self.free):
                if each.scratch.numel() >= self.scratch_bytes * threads:
                    return self.free.pop(number)
        with enough_memory(f"a call, which needs {self.arena_bytes / 2**20:,.0f} MiB besides its outputs"):
            arena = _aligned(self.arena_bytes)
            scratch = _aligned(self.scratch_bytes * threads)
        count = ARENA + 1 + len(self.program.inputs) + len(self.output_metas)
        instance = Instance(arena, np.zeros_like(self.waits), np.zeros(count, dtype=np.int64), scratch)
        words = {
            at.RECORDS: self.records.ctypes.data, at.RECORD_BYTES: self.records.strides[0],
            at.COUNTERS: instance.counters.ctypes.data, at.CHILDREN: self.children.ctypes.data,
            at.BASES: instance.bases.ctypes.data, at.LEFT: self.sinks,
            at.SCRATCH: scratch.data_ptr(), at.SCRATCH_BYTES: self.scratch_bytes,
        }  # fmt: skip
        instance.places, instance.words = (np.array([*each], dtype=np.int64) for each in (words, words.values()))
        self.running[instance.bases.ctypes.data] = instance
        return instance

    def _torch_operator(self, record: int, bases: int, _: int) -> None:
        """A tile that PyTorch runs, called by a worker."""
        instance = self.running[bases]
        if instance.failed is not None:
            return
        operator = self.fallbacks[ctypes.cast(record, ctypes.POINTER(ctypes.c_int64))[HEADER]]
        try:
            with torch.no_grad():
                made = operator.function([self._tensor(view, instance) for view in operator.inputs])
                for view, value in zip(operator.outputs, made, strict=True):
                    self._tensor(view, instance).copy_(value)
        except RuntimeError as error:
            instance.failed = HeddleError(
                f"{operator.name} failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
                f"PyTorch runs {operator.operator}, and rejected these inputs.",
                "Compare their shapes and types with those that the module takes.",
            )
        except BaseException as error:  # handed to whoever called
            instance.failed = error

    def _tensor(self, view: View, instance: Instance) -> Tensor:
        buffer = view.buffer
        if buffer.place == "constant":
            assert buffer.constant is not None
            flat = buffer.constant
        elif buffer.place == "arena":
            flat = instance.arena[buffer.offset : buffer.offset + buffer.bytes].view(buffer.dtype)
        else:
            value = instance.inputs[buffer.number] if buffer.place == "input" else instance.outputs[buffer.number]
            flat = value if value.is_contiguous() else value.as_strided((value.numel(),), (1,))
            flat = flat.reshape(-1)
        return flat.as_strided(view.shape, view.strides, flat.storage_offset() + view.offset)


@contextmanager
def enough_memory(purpose: str) -> Iterator[None]:
    """Say in three parts what there was no memory for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error):
            raise
        raise HeddleError(
            f"There is no memory for {purpose}.",
            str(error).splitlines()[0] if str(error) else "The allocation failed.",
            "Use a smaller batch, fewer calls at once, or a larger machine.",
        ) from None


def _aligned(size: int) -> Tensor:
    """Memory that begins at a cache line."""
    raw = torch.empty(size + ALIGNED, dtype=torch.uint8)
    shift = -raw.data_ptr() % ALIGNED
    return raw[shift : shift + size] if size else raw[:0]
