"""How fast cores read memory: the same bytes over and over, by as many threads, with nothing else to do."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

from llvmlite import ir

from heddle.native.llvm import binding, load
from heddle.tiles.kernels.emit import Code, Value
from heddle.tiles.kernels.target import this_cpu
from heddle.tiles.values import constant

SUMS, PASSES = 8, 16


class Reader:
    """Some bytes, cut into as many parts as there are threads."""

    def __init__(self, size: int, threads: int) -> None:
        import torch

        target = this_cpu()
        self.step = SUMS * 4 * target.lanes
        self.threads = ThreadPoolExecutor(threads)
        part = size // threads // self.step * self.step
        self.memory = [constant(torch.randn(part // 4)).buffer.constant for _ in range(threads)]
        self.room = torch.zeros(1024)
        self.engine = load(binding().parse_assembly(self._write(part // 4)))
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
            self.engine.get_function_address("read")
        )

    def _write(self, count: int) -> str:
        code = Code("read", this_cpu())
        integers = ir.VectorType(ir.IntType(32), code.lanes)

        def passes(_: Value, sums: list[Value]) -> list[Value]:
            def read(k: Value, sums: list[Value]) -> list[Value]:
                found = []
                for v, each in enumerate(sums):
                    place = code.at(code.at(code.record, k), v * code.lanes)
                    found.append(code.block.xor(each, code.load(integers, place)))
                return found

            return code.loop(count, read, sums, step=SUMS * code.lanes)

        zero = ir.Constant(integers, [0] * code.lanes)
        sums = code.loop(PASSES, passes, [zero] * SUMS)
        for v, each in enumerate(sums):
            code.store(each, code.at(code.bases, v * code.lanes))
        return code.finish()

    def seconds(self) -> float:
        """Of reading all of it once."""

        def part(memory: object) -> None:
            self.call(memory.data_ptr(), self.room.data_ptr(), None)  # type: ignore[attr-defined]

        start = time.perf_counter()
        list(self.threads.map(part, self.memory))
        return (time.perf_counter() - start) / PASSES
