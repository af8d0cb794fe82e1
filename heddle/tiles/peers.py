"""Other engines that run a module on CPU cores, where they are installed: what tiles are measured against."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from heddle.parallel.compile_cache import keep_torch_private

Run = Callable[[], Any]  # one call


class _Flat(nn.Module):
    """A module of flat tensors only, with its named inputs fixed, for exporters that know no others."""

    def __init__(self, module: nn.Module, keywords: Mapping[str, Any]) -> None:
        super().__init__()
        self.module, self.keywords = module, dict(keywords)

    def forward(self, *inputs: Any) -> Any:
        made = self.module(*inputs, **self.keywords)
        return tuple(each for each in pytree.tree_leaves(made) if isinstance(each, torch.Tensor))


def eager(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], threads: int) -> Run:
    torch.set_num_threads(threads)
    return lambda: module(*inputs, **keywords)


def inductor(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], threads: int) -> Run:
    """torch.compile with frozen weights; it needs a C++ compiler."""
    import torch._inductor.config as config

    config.freezing = True
    torch.set_num_threads(threads)
    keep_torch_private()
    compiled = torch.compile(module)
    return lambda: compiled(*inputs, **keywords)


def onnxruntime(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], threads: int) -> Run:
    import onnxruntime as engine  # type: ignore[import-not-found,unused-ignore]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.onnx"
        torch.onnx.export(_Flat(module, keywords).eval(), tuple(inputs), str(path), dynamo=True, verbose=False)
        options = engine.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = engine.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    values = [each.numpy() for each in inputs if isinstance(each, torch.Tensor)]
    feed = dict(zip(names, values, strict=False))
    return lambda: [torch.from_numpy(each) for each in session.run(None, feed)]


def openvino(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], threads: int) -> Run:
    import openvino as engine  # type: ignore[import-not-found,unused-ignore]

    exported = torch.export.export(_Flat(module, keywords).eval(), tuple(inputs), strict=False)
    settings = {
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    request = engine.Core().compile_model(engine.convert_model(exported), "CPU", settings).create_infer_request()
    values = [each.numpy() for each in inputs if isinstance(each, torch.Tensor)]
    return lambda: [torch.from_numpy(each) for each in request.infer(values).values()]


def zentorch(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], threads: int) -> Run:
    """AMD's backend of torch.compile."""
    import torch._inductor.config as config
    import zentorch as _  # type: ignore[import-not-found,unused-ignore]  # noqa: F401 - which registers it

    config.freezing = True
    torch.set_num_threads(threads)
    keep_torch_private()
    compiled = torch.compile(module, backend="zentorch")
    return lambda: compiled(*inputs, **keywords)


def heddle(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any], threads: int) -> Run:
    from heddle.tiles.compiled import compile as compiled

    torch.set_num_threads(threads)
    fast = compiled(module, inputs, threads=threads, keywords=keywords)
    run: Any = lambda: fast(*inputs, **keywords)  # noqa: E731 - it carries what was compiled
    run.compiled = fast
    return run


ENGINES: dict[str, Callable[[nn.Module, Sequence[Any], Mapping[str, Any], int], Run]] = {
    "heddle": heddle,
    "eager": eager,
    "eager again": eager,
    "inductor": inductor,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "zentorch": zentorch,
}
OURS = ("heddle", "eager", "eager again")


def installed() -> list[str]:
    """Engines that can be asked for here."""
    needs = {"onnxruntime": "onnxscript", "openvino": "openvino", "zentorch": "zentorch"}
    names = [name for name in ENGINES if name not in needs]
    return [
        *names,
        *(name for name, need in needs.items() if importlib.util.find_spec(name) and importlib.util.find_spec(need)),
    ]
