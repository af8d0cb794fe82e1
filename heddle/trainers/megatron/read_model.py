"""The model that the arguments of Megatron-LM describe."""

from __future__ import annotations

import ast
from typing import Any

from heddle.errors import HeddleError
from heddle.trainers.megatron.words import MegatronArguments

# tokenizers whose vocabulary everybody knows
VOCABULARIES = {
    "GPT2BPETokenizer": 50_257,
    "Llama2Tokenizer": 32_000,
    "Llama3Tokenizer": 128_256,
}
LLAMA3 = {"low_frequency_factor": 1.0, "high_frequency_factor": 4.0, "original_sequence": 8192}
MOST_PATTERN = 2000  # characters
MOST = 100_000  # layers, numbers of a hidden state, heads: lists are made of layers


def model_of(arguments: MegatronArguments, assumed: list[str], dropped: list[str]) -> dict[str, Any]:
    """The table [model]."""
    number, flag = arguments.number, arguments.flag
    layers, hidden = _needed(arguments, "num-layers"), _needed(arguments, "hidden-size")
    heads = _needed(arguments, "num-attention-heads")
    swiglu = flag("swiglu")
    groups = number("num-query-groups")
    sequence = number("seq-length", "encoder-seq-length") or number("max-position-embeddings")
    if sequence is None:
        raise HeddleError(
            "The launch line has no --seq-length.",
            "A model is planned for samples of some length.",
            "Add --seq-length 4096.",
        )
    model: dict[str, Any] = {
        "name": "imported",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": groups if flag("group-query-attention") and groups else heads,
        "head_size": number("kv-channels") or 0,
        # for SwiGLU Megatron-LM rounds down to a multiple of 64
        "ffn": number("ffn-hidden-size") or (int(8 * hidden / 3 / 64) * 64 if swiglu else 4 * hidden),
        "vocab": _vocab(arguments, assumed),
        "sequence": max(sequence, number("max-position-embeddings") or 0),
        "norm": "rmsnorm" if arguments.word("normalization", "LayerNorm") == "RMSNorm" else "layernorm",
        "norm_epsilon": arguments.real("norm-epsilon", "layernorm-epsilon") or 1e-5,
        "activation": "swiglu" if swiglu else "relu2" if flag("squared-relu") else "gelu",
        "tied": not flag("untie-embeddings-and-output-weights"),
        "dropout": 0.1 if (drop := arguments.real("hidden-dropout")) is None else drop,
        "bias": "all",
    }
    if arguments.real("attention-dropout") != 0.0:
        dropped.append("--attention-dropout, 0.1 unless said: Heddle drops what branches add, not weights of attention")
    if flag("disable-bias-linear", "no-add-bias-linear"):
        model["bias"] = "qkv" if flag("add-qkv-bias") else "none"
    if flag("qk-layernorm"):
        model["qk_norm"] = True
    if flag("apply-layernorm-1p", "layernorm-zero-centered-gamma"):
        model["norm_weight"] = "offset"
    if arguments.word("softmax-type") == "learnable":
        model["sinks"] = True
    if flag("quick-geglu"):
        model["activation"] = "swiglu" if arguments.said("num-experts") else "geglu"
        dropped.append("--quick-geglu: priced as a gated MLP")
    return model | _positions(arguments, layers) | _experts(arguments, layers)


def _needed(arguments: MegatronArguments, name: str) -> int:
    value = arguments.number(name)
    if value is None:
        raise HeddleError(f"The launch line has no --{name}.", "The model's shape depends on it.", f"Add --{name} N.")
    if value > MOST:
        raise HeddleError(f"--{name} {value} is too large.", "No model is known to have so many.", "Check its zeros.")
    return value


def _vocab(arguments: MegatronArguments, assumed: list[str]) -> int:
    if size := arguments.number("padded-vocab-size", "vocab-size"):
        return size
    kind = arguments.word("tokenizer-type", "GPT2BPETokenizer")
    known = VOCABULARIES.get(kind)
    if known is None:
        assumed.append(f"vocabulary: 50257 tokens, as --tokenizer-type {kind} does not say; --vocab changes it")
    elif not arguments.said("tokenizer-type"):
        assumed.append(f"vocabulary: {known} tokens, as of GPT-2; --vocab changes it")
    return known or 50_257


def _positions(arguments: MegatronArguments, layers: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if window := arguments.word("window-size"):
        size = _whole(window.strip("()").split(",")[0]) + 1
        freq = arguments.word("window-attn-skip-freq")
        found["window"] = size if not freq else [size if on else 0 for on in _windowed(freq, layers)]
    kind = arguments.word("position-embedding-type", "learned_absolute")
    if arguments.flag("use-rotary-position-embeddings"):
        kind = "rope"
    if kind not in ("rope", "yarn", "mrope"):
        return found | {"positions": "learned"}
    theta = arguments.real("rotary-base") or 10_000.0
    found |= {"positions": "rotary", "rope_theta": theta}
    if skipped := arguments.word("no-rope-freq"):
        found["rope_theta"] = [0.0 if off else theta for off in _every(skipped, layers)]
    if arguments.flag("use-rope-scaling"):
        found["rope_scaling"] = {"factor": arguments.real("rope-scaling-factor") or 8.0, **LLAMA3}
    elif factor := arguments.real("rotary-seq-len-interpolation-factor"):
        found["rope_scaling"] = {"kind": "linear", "factor": factor}
    share = arguments.real("rotary-percent")
    if share is not None and share != 1.0:
        heads, hidden = arguments.number("num-attention-heads") or 1, arguments.number("hidden-size") or 1
        found["rotary_size"] = int(share * (arguments.number("kv-channels") or hidden // heads))
    if arguments.flag("rotary-interleaved"):
        found["rotary_pairs"] = "neighbors"
    return found


def _experts(arguments: MegatronArguments, layers: int) -> dict[str, Any]:
    count = arguments.number("num-experts")
    if not count:
        return {}
    freq = arguments.word("moe-layer-freq", "1")
    pattern = _pattern(freq, layers) if "[" in freq else [int(at % _whole(freq) == 0) for at in range(layers)]
    found: dict[str, Any] = {
        "experts": [count if on else 0 for on in pattern],
        "top_k": arguments.number("moe-router-topk", default=2),
        "router": "sigmoid" if arguments.word("moe-router-score-function", "softmax") == "sigmoid" else "softmax",
        "router_normalized": not arguments.flag("moe-router-pre-softmax"),
        "balance_loss": arguments.real("moe-aux-loss-coeff") or 0.0,
        "z_loss": arguments.real("moe-z-loss-coeff") or 0.0,
    }
    arguments.word("moe-router-load-balancing-type")
    if width := arguments.number("moe-ffn-hidden-size"):
        found["expert_ffn"] = width
    if shared := arguments.number("moe-shared-expert-intermediate-size"):
        found |= {"shared_ffn": shared, "shared_gate": arguments.flag("moe-shared-expert-gate")}
    return found


def _windowed(text: str, layers: int) -> list[int]:
    """Which layers have a window: a list, or N for one without after N - 1 with."""
    if "[" in text:
        return _pattern(text, layers)
    every = _whole(text)
    return [int((at + 1) % every != 0) for at in range(layers)]


def _every(text: str, layers: int) -> list[int]:
    """Which layers are meant: a list, or N for every N-th."""
    if "[" in text:
        return _pattern(text, layers)
    every = _whole(text)
    return [int((at + 1) % every == 0) for at in range(layers)]


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise HeddleError(
            f"{text[:60]!r} is neither a whole number nor a list of layers.",
            "It says which layers are meant.",
            'For example 2, or "[0]+[1]*3".',
        )
    return int(text)


def _pattern(text: str, layers: int) -> list[int]:
    """A list as Megatron-LM takes it, `([0]+[1]*3)*2`: only lists, sums and repetitions are read."""
    try:
        found = _list(ast.parse(text[:MOST_PATTERN].strip("\"'"), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, list) or len(found) != layers:
        raise HeddleError(
            f"{text[:60]!r} is not a list of {layers} layers.",
            "Such patterns are written in lists, sums and repetitions.",
            f'For example "[0]+[1]*{layers - 1}".',
        )
    return found


def _list(node: ast.expr) -> Any:
    if isinstance(node, ast.List):
        return [_list(each) for each in node.elts]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _list(node.left), _list(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int) and right < 10_000:
            return left * right
    raise ValueError
