"""Engines that decode one token at a time, each alone in its process: tiles, PyTorch, llama.cpp, onnxruntime, OpenVINO.

All have the same weights, in as many bits as an arm says, and the same 64 tokens before. llama.cpp reads a GGUF file
that is written here. onnxruntime and OpenVINO get a graph for exactly one token behind that context, whose keys and
values are not even carried on: the least they could do.
"""

from __future__ import annotations

import ctypes
import importlib.util
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heddle.models.generate import KeyValueCache, newest_logits
from heddle.models.transformer import Microbatch, Transformer
from heddle.spec import ModelSpec
from heddle.tiles.decode import Collected, attentions, rope_of

CONTEXT = 64
MODELS = {"10M": (6, 320, 8192), "50M": (10, 576, 16384), "110M": (12, 768, 32000), "500M": (16, 1536, 32000)}
Decode = Callable[[int, int], Any]  # a token for every sample, and its place; gives logits


def build(name: str) -> Transformer:
    """A Llama with random weights: layers, hidden size and vocabulary by its name."""
    layers, hidden, vocab = MODELS[name]
    spec = ModelSpec(
        layers=layers, hidden=hidden, heads=hidden // 64, ffn=round(hidden / 24) * 64, vocab=vocab, sequence=512,
        positions="rotary", norm="rmsnorm", activation="swiglu", bias="none", tied=True,
    )  # fmt: skip
    model, chance = Transformer(spec), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02, generator=chance)
            else:
                parameter.fill_(1.0)
    return model.eval()


def tokens(model: Transformer) -> list[int]:
    chance = torch.Generator().manual_seed(0)
    return torch.randint(0, model.spec.vocab, (CONTEXT,), generator=chance).tolist()


def tiles(model: Transformer, weights: str, threads: int, batch: int) -> Decode:
    from heddle.tiles.generate import TileEngine

    engine, cache = TileEngine(model, threads, weights), KeyValueCache(batch, model.spec.sequence)
    return _cached(engine, model, cache)


def pytorch(model: Transformer, weights: str, threads: int, batch: int) -> Decode:
    torch.set_num_threads(threads)
    if weights == "bfloat16":
        model = model.bfloat16()
    engine = partial(newest_logits, model) if batch == 1 else partial(_all_logits, model)
    return _cached(engine, model, KeyValueCache(batch, model.spec.sequence))


def _all_logits(model: Transformer, ids: Tensor, cache: KeyValueCache) -> Tensor:
    logits: Tensor = model(ids, Microbatch(sequence=len(ids) // cache.batch, cache=cache))
    return logits


def _cached(engine: Any, model: Transformer, cache: KeyValueCache) -> Decode:
    for place, token in enumerate(tokens(model)):  # a batch has no prompt of its own
        cache.length = place
        engine(torch.full((cache.batch,), token), cache)

    def decode(token: int, place: int) -> Tensor:
        cache.length = place
        return engine(torch.full((cache.batch,), token), cache)

    return decode


class _Fixed(nn.Module):
    """One token of each sample behind a context that does not change."""

    def __init__(self, model: Transformer, batch: int) -> None:
        super().__init__()
        self.model = model
        cache = KeyValueCache(batch, CONTEXT)
        _all_logits(model, torch.tensor(tokens(model)).repeat(batch), cache)
        self.kept = {owner: cache.kept[owner] for owner in attentions(model)}
        assert model.rotary is not None
        tables = model.rotary(CONTEXT, CONTEXT + 1, torch.device("cpu"))
        self.tables = [each for pair in tables.values() for each in pair]

    def forward(self, ids: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        owners = zip(self.kept, zip(kept[::2], kept[1::2], strict=True), strict=True)
        cache = Collected(dict(owners))
        batch = Microbatch(sequence=1, rope=rope_of(self.model, self.tables), cache=cache)
        model = self.model
        assert model.embed is not None
        assert model.norm is not None
        assert model.head is not None
        x = model.embed.tokens(ids)
        for layer in model.layers.values():
            x = layer(x, batch)
        return (model.head(model.norm(x)), *cache.new)

    def inputs(self, batch: int) -> tuple[Tensor, ...]:
        return (
            torch.zeros(batch, dtype=torch.int64),
            *(each.contiguous() for pair in self.kept.values() for each in pair),
        )


class _Plain(nn.Module):
    """A product as onnxruntime's quantizer wants it: with the weight as its right side."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.right = linear.weight, nn.Parameter(linear.weight.t().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.right


def _plain(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, _Plain(child))
        else:
            _plain(child)


def onnxruntime(model: Transformer, weights: str, threads: int, batch: int) -> Decode:
    import onnxruntime as engine  # type: ignore[import-not-found,unused-ignore]

    module = _Fixed(model, batch)
    if weights != "float32":
        _plain(model)
    inputs = module.inputs(batch)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "step.onnx")
        torch.onnx.export(module, inputs, path, dynamo=True, verbose=False)
        if weights != "float32":
            path = _narrow_onnx(path, {"int8": 8, "int4": 4}[weights])
        options = engine.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = engine.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feed = dict(zip(names, (each.numpy() for each in inputs), strict=True))

    def decode(token: int, _: int) -> Any:
        feed[names[0]][:] = token
        return session.run(None, feed)[0]

    return decode


def _narrow_onnx(path: str, bits: int) -> str:
    """Weights in blocks of 32 with products of int8, which is what onnxruntime has for them."""
    import onnx  # type: ignore[import-not-found,unused-ignore]
    from onnxruntime.quantization import matmul_nbits_quantizer as narrow  # type: ignore[import-not-found,unused-ignore]

    settings = narrow.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4, bits=bits)
    found = narrow.MatMulNBitsQuantizer(onnx.load(path), algo_config=settings)
    found.process()
    found.model.save_model_to_file(path + ".narrow", True)
    return path + ".narrow"


def openvino(model: Transformer, weights: str, threads: int, batch: int) -> Decode:
    import openvino as engine  # type: ignore[import-not-found,unused-ignore]

    module = _Fixed(model, batch)
    inputs = module.inputs(batch)
    graph = engine.convert_model(torch.export.export(module, inputs, strict=False))
    if weights in ("int8", "int4"):
        import nncf  # type: ignore[import-not-found,unused-ignore]

        mode = {"int8": nncf.CompressWeightsMode.INT8_SYM, "int4": nncf.CompressWeightsMode.INT4_SYM}[weights]
        more = {"group_size": 32, "ratio": 1.0, "all_layers": True} if weights == "int4" else {}
        graph = nncf.compress_weights(graph, mode=mode, **more)
    settings = {
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if weights == "bfloat16" else "f32",
    }  # fmt: skip
    request = engine.Core().compile_model(graph, "CPU", settings).create_infer_request()
    given = [each.numpy() for each in inputs]

    def decode(token: int, _: int) -> Any:
        given[0][:] = token
        return request.infer(given, share_inputs=True, share_outputs=True)[0]

    return decode


def llama_cpp(model: Transformer, weights: str, threads: int, batch: int) -> Decode:
    import llama_cpp as engine  # type: ignore[import-not-found,unused-ignore]

    engine.llama_backend_init()
    quiet = engine.llama_log_callback(lambda *_: None)
    engine.llama_log_set(quiet, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(model, weights, path)
        settings = engine.llama_model_default_params()
        settings.use_mmap = False
        loaded = engine.llama_model_load_from_file(str(path).encode(), settings)
    if not loaded:
        raise RuntimeError("llama.cpp did not read the file")
    context = engine.llama_context_default_params()
    context.n_ctx, context.n_batch, context.n_seq_max = 512 * batch, 512, batch
    context.n_threads = context.n_threads_batch = threads
    state = engine.llama_init_from_model(loaded, context)
    group = engine.llama_batch_init(batch, 0, 1)
    memory = engine.llama_get_memory(state)
    vocab = model.spec.vocab

    def decode(token: int, place: int) -> Any:
        for sample in range(batch):
            engine.llama_memory_seq_rm(memory, sample, place, -1)
            group.token[sample], group.pos[sample], group.n_seq_id[sample] = token, place, 1
            group.seq_id[sample][0], group.logits[sample] = sample, 1
        group.n_tokens = batch
        if engine.llama_decode(state, group):
            raise RuntimeError("llama.cpp did not decode")
        return np.ctypeslib.as_array(engine.llama_get_logits(state), shape=(batch, vocab))

    decode.kept = (quiet, loaded, group)  # type: ignore[attr-defined]
    for place, token in enumerate(tokens(model)):
        decode(token, place)
    return decode


def write_gguf(model: Transformer, weights: str, path: Path) -> None:
    """The model in llama.cpp's format. Its rotary positions turn neighbors, ours turn halves: rows change places."""
    import gguf  # type: ignore[import-not-found,unused-ignore]

    spec, kinds = model.spec, gguf.GGMLQuantizationType
    kind = {"float32": kinds.F32, "bfloat16": kinds.BF16, "int8": kinds.Q8_0, "int4": kinds.Q4_0}[weights]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(spec.layers)
    writer.add_context_length(spec.sequence)
    writer.add_embedding_length(spec.hidden)
    writer.add_feed_forward_length(spec.ffn)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.heads)
    writer.add_rope_dimension_count(64)
    writer.add_rope_freq_base(float(spec.rope_theta))
    writer.add_layer_norm_rms_eps(spec.norm_epsilon)
    writer.add_vocab_size(spec.vocab)
    writer.add_tokenizer_model("no_vocab")

    def add(name: str, tensor: Tensor, narrow: bool = True) -> None:
        data = tensor.detach().float().contiguous().numpy()
        used = kind if narrow else kinds.F32
        writer.add_tensor(name, gguf.quants.quantize(data, used), raw_dtype=used)

    state = dict(model.named_parameters())
    add("token_embd.weight", state["embed.tokens.weight"])
    add("output_norm.weight", state["norm.weight"], False)
    for number in range(spec.layers):
        of, to = f"layers.{number}.", f"blk.{number}."
        groups = state[of + "attention.qkv.weight"].view(spec.heads, 3, 64, spec.hidden)
        for place, side in enumerate("qkv"):
            rows = groups[:, place]
            if side != "v":
                rows = rows.reshape(spec.heads, 2, 32, spec.hidden).transpose(1, 2)
            add(f"{to}attn_{side}.weight", rows.reshape(spec.hidden, spec.hidden))
        add(to + "attn_output.weight", state[of + "attention.out.weight"])
        add(to + "attn_norm.weight", state[of + "attention_norm.weight"], False)
        add(to + "ffn_norm.weight", state[of + "mlp_norm.weight"], False)
        for ours in ("gate", "up", "down"):
            add(f"{to}ffn_{ours}.weight", state[f"{of}mlp.{ours}.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


ENGINES: dict[str, tuple[Callable[[Transformer, str, int, int], Decode], tuple[str, ...], tuple[str, ...]]] = {
    # by name: what makes it, what it needs, and the weights it has
    "tiles": (tiles, (), ("float32", "bfloat16", "int8", "int4")),
    "tiles again": (tiles, (), ("float32", "bfloat16", "int8", "int4")),
    "pytorch": (pytorch, (), ("float32", "bfloat16")),
    "llama.cpp": (llama_cpp, ("llama_cpp", "gguf"), ("float32", "bfloat16", "int8", "int4")),
    "onnxruntime": (onnxruntime, ("onnxruntime", "onnxscript"), ("float32", "int8", "int4")),
    "openvino": (openvino, ("openvino",), ("float32", "bfloat16", "int8", "int4")),
}


def installed(weights: str) -> list[str]:
    """Engines that have such weights here."""
    return [
        name
        for name, (_, needs, kinds) in ENGINES.items()
        if weights in kinds and all(map(importlib.util.find_spec, needs))
    ]
