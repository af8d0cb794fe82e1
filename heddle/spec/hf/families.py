"""The model families of Hugging Face that a ModelSpec describes exactly: which keys state which fields.

Keys and defaults are those of the configuration classes of transformers, version 4 and 5. A family is a list of rules;
`heddle.models.huggingface_names` has the names of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from heddle.errors import HeddleError
from heddle.spec.hf.config_experts import DeepSeekExperts, HasExperts, Latent
from heddle.spec.hf.config_keys import (
    Activates,
    Biases,
    Config,
    Dropouts,
    Fields,
    Fixed,
    Key,
    KeyChoice,
    KeyRule,
    KvHeads,
    Only,
    Optional,
    get,
)
from heddle.spec.hf.config_positions import Rope, WindowKeys
from heddle.spec.model import ModelSpec


@dataclass(frozen=True)
class Family:
    """How the models of one family stand in `config.json`."""

    architecture: str
    rules: tuple[KeyRule, ...]
    whole_heads: bool = False  # its class wants heads to divide the hidden size even where head_dim is stated
    aliases: dict[str, str] = field(default_factory=dict)  # keys of older files by those of today

    @property
    def has_dropout(self) -> bool:
        """Whether its configuration states a dropout; a trained model computes the same without it."""
        return any(isinstance(rule, Dropouts) for rule in self.rules)

    @property
    def has_experts(self) -> bool:
        """Whether it is a family of mixtures of experts."""
        return any(isinstance(rule, HasExperts) for rule in self.rules)

    def features(self, usual: Fields) -> list[str]:
        """What may set its models apart from the usual: fields that it fixes, and those that its keys state."""
        found: dict[str, str] = {}
        for rule in self.rules:
            if isinstance(rule, Fixed):
                told = {name: "" if callable(value) else f" = {value}" for name, value in rule.values.items()}
                found |= {name: text for name, text in told.items() if rule.values[name] != usual.get(name)}
            elif isinstance(rule, Key | Optional) and rule.field in usual and rule.field not in SIZED:
                found[rule.field] = ""
            elif isinstance(rule, KeyChoice):
                found |= {name: "" for fields in rule.values.values() for name in fields}
            elif isinstance(rule, WindowKeys | Rope | Biases | KvHeads | HasExperts | Latent):
                found |= dict.fromkeys(rule.states, "")
        return [name + text for name, text in found.items()]


SIZED = {"layers", "hidden", "heads", "vocab", "sequence", "ffn", "norm_epsilon"}
SIZES = (
    Key("layers", "num_hidden_layers"),
    Key("hidden", "hidden_size"),
    Key("heads", "num_attention_heads"),
    Key("vocab", "vocab_size"),
    Key("sequence", "max_position_embeddings"),
)
FFN = Key("ffn", "intermediate_size")
HEAD_SIZE = Key("head_size", "head_dim", default=0)
NO_DROPOUT = Only("attention_dropout", 0.0, "dropout of attention")
ATTENTION_AND_MLP = Biases({"attention_bias": ("qkv", "out"), "mlp_bias": ("mlp",)})
ATTENTION = Biases({"attention_bias": ("qkv", "out")})
RMS, LAYER = Fixed(norm="rmsnorm", positions="rotary"), Fixed(norm="layernorm", positions="rotary")
NO_WINDOWS = Only("use_sliding_window", False, "windows in this family")
ONE_WAY = Only("use_bidirectional_attention", False, "attention that looks ahead")


def four_times(known: Fields) -> int:
    """The width of an MLP that nobody stated."""
    return 4 * int(known["hidden"])


def tied(default: bool) -> Key:
    """Whether the output layer is the embedding."""
    return Key("tied", "tie_word_embeddings", bool, default)


def epsilon(key: str, default: float) -> Key:
    """What norms add to the variance."""
    return Key("norm_epsilon", key, float, default)


AS_HEADS, ROPE, SILU, EPSILON = KvHeads(), Rope(), Activates(), epsilon("rms_norm_eps", 1e-6)


EACH_HEAD: dict[Any, dict[str, Any]] = {False: {"qk_norm": False}, True: {"qk_norm": True, "qk_norm_over": "each"}}


def llama_like(
    *more: KeyRule,
    kv: KeyRule = AS_HEADS,
    head_size: KeyRule = HEAD_SIZE,
    rope: Rope = ROPE,
    eps: KeyRule = EPSILON,
    act: KeyRule = SILU,
    norm: KeyRule = RMS,
    tie: bool = False,
    sizes: tuple[KeyRule, ...] = (*SIZES, FFN),
    windows: WindowKeys | None = None,
    dropout: KeyRule = NO_DROPOUT,
) -> tuple[KeyRule, ...]:
    """The rules of a family whose keys are Llama's, but for what is said."""
    seen = () if windows is None else (windows,)
    return (*sizes, kv, head_size, eps, act, norm, tied(tie), dropout, *seen, rope, *more)


def inverse(value: float) -> float:
    """1/x, which read again gives the same x."""
    return _exact(1 / value, lambda guess: 1 / guess, value)


def inverse_square(value: float) -> float:
    """1/x², which read again gives the same x."""
    return _exact(value**-2, lambda guess: guess**-0.5, value)


def _exact(guess: float, back: Callable[[float], float], wanted: float) -> float:
    for option in (round(guess), round(guess, 9), guess):
        if option and back(option) == wanted:
            return option
    return guess


SCALES = (
    Key("embedding_scale", "embedding_multiplier", float, 1.0),
    Key("residual_scale", "residual_multiplier", float, 1.0),
    Key("attention_scale", "attention_multiplier", float, 1.0, written="score_scale"),
    Key("logit_scale", "logits_scaling", float, 1.0, lambda x: 1 / x, inverse),
)
GEMMA = (
    Fixed(norm_weight="offset", embedding_scale=lambda known: known["hidden"] ** 0.5),
    ATTENTION,
    ONE_WAY,
)
QUERY_SCALE = Key(
    "attention_scale", "query_pre_attn_scalar", float, 256.0, lambda x: x**-0.5, inverse_square, "score_scale"
)
CAPS = (
    Optional("attention_cap", "attn_logit_softcapping", 50.0),
    Optional("logit_cap", "final_logit_softcapping", 30.0),
)
GEMMA_ACT = Activates("hidden_activation", default="gelu_pytorch_tanh")
GEMMA_HEAD = Key("head_size", "head_dim", default=256)


def every(count: int, key: str | None = None) -> Callable[[int, Config], bool]:
    """All layers but every so manieth have a window; a key may state another number."""

    def slides(layer: int, config: Config) -> bool:
        period = count if key is None else get(config, key, int, count)
        return period < 1 or bool((layer + 1) % period)

    return slides


def after_one(layer: int, _: Config) -> bool:
    """Of four layers the first sees all."""
    return layer % 4 != 0


class Falcon:
    """Falcon's three architectures: one key/value head or as many as heads, or groups with two norms."""

    def read(self, config: Config, known: Fields) -> Fields:
        heads, new = known["heads"], get(config, "new_decoder_architecture", bool, False)
        parallel = get(config, "parallel_attn", bool, True)
        if new and not parallel:
            raise HeddleError(
                "'parallel_attn' = false with 'new_decoder_architecture' = true is not known.",
                "The new architecture has parallel branches.",
                'Set "parallel_attn" to true.',
            )
        one = not new and get(config, "multi_query", bool, True)
        norms = get(config, "num_ln_in_parallel_attn", int, 2) if new else 1
        return {
            "kv_heads": get(config, "num_kv_heads", int, heads) if new else 1 if one else heads,
            "branches": ("parallel-norms" if norms == 2 else "parallel") if parallel else "serial",
        }

    def write(self, spec: ModelSpec) -> Config:
        old = spec.branches != "parallel-norms" and spec.kv_heads in (1, spec.heads)
        return {
            "new_decoder_architecture": not old,
            "multi_query": old and spec.kv_heads == 1 < spec.heads,
            "num_kv_heads": spec.kv_heads,
            "parallel_attn": spec.branches != "serial",
            "num_ln_in_parallel_attn": None if old else 2 if spec.branches == "parallel-norms" else 1,
        }


class FourCores:
    """CodeGen keeps queries, values and keys apart for each of the four cores that it was trained on."""

    def read(self, config: Config, known: Fields) -> Fields:
        if known["heads"] % 4:
            raise HeddleError(
                f"'n_head' = {known['heads']} is not known in a model of type 'codegen'.",
                "Its heads come in four equal parts.",
                "Use a multiple of 4.",
            )
        return {}

    def write(self, spec: ModelSpec) -> Config:
        return {}


class LocalLayers:
    """GPT-Neo's list of layers that see all and layers that see a window."""

    def read(self, config: Config, known: Fields) -> Fields:
        kinds = config.get("attention_types") or [[["global", "local"], known["layers"] // 2]]
        window = get(config, "window_size", int, 256)
        try:
            each = [kind for names, count in kinds for _ in range(count) for kind in names]
        except (TypeError, ValueError):
            each = []
        if len(each) != known["layers"] or not {*each} <= {"global", "local"}:
            raise HeddleError(
                "'attention_types' does not list every layer.",
                'It lists groups of "global" and "local" and how often each repeats.',
                'For example [[["global", "local"], 12]].',
            )
        return {"window": tuple(window if kind == "local" else 0 for kind in each)}

    def write(self, spec: ModelSpec) -> Config:
        windows = [spec.layer(index).window for index in range(spec.layers)]
        types = [[["local" if window else "global"], 1] for window in windows]
        return {"attention_types": types, "window_size": max((w for w in windows if w), default=256)}


class NoMoreLayers:
    """DeepSeek-V3's further layers, which predict tokens after the next: they are read over, and not written."""

    def read(self, config: Config, known: Fields) -> Fields:
        return {}

    def write(self, spec: ModelSpec) -> Config:
        return {"num_nextn_predict_layers": 0}


class Clamped:
    """GPT-OSS calls its activation by the name of another."""

    def read(self, config: Config, known: Fields) -> Fields:
        return {"activation": "clamped-swiglu"} | Only("hidden_act", "silu").read(config, known)

    def write(self, spec: ModelSpec) -> Config:
        return {"hidden_act": "silu"}


GPT2_SIZES = (
    Key("layers", "n_layer"),
    Key("hidden", "n_embd"),
    Key("heads", "n_head"),
    Key("vocab", "vocab_size"),
    Key("sequence", "n_positions"),
    Key("ffn", "n_inner", default=four_times),
)
GELU_NEW: dict[str, Any] = {"gated": False, "default": "gelu_new", "written": "gelu_new"}

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "GPT2LMHeadModel",
        (
            *GPT2_SIZES,
            epsilon("layer_norm_epsilon", 1e-5),
            Activates("activation_function", **GELU_NEW),
            Only("scale_attn_weights", True),
            Only("scale_attn_by_inverse_layer_idx", False),
            Only("add_cross_attention", False, "attention to an encoder"),
            Fixed(bias="all", positions="learned"),
            tied(True),
            Dropouts(("resid_pdrop", "embd_pdrop"), 0.1, "attn_pdrop"),
        ),
    ),
    "llama": Family("LlamaForCausalLM", llama_like(ATTENTION_AND_MLP), whole_heads=True),
    "mistral": Family(
        "MistralForCausalLM", llama_like(Fixed(bias="none"), kv=KvHeads(8), windows=WindowKeys(types=False))
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        llama_like(
            Fixed(bias="qkv"),
            kv=KvHeads(32),
            windows=WindowKeys(
                switch="use_sliding_window",
                pattern=lambda layer, config: layer >= get(config, "max_window_layers", int, 28),
            ),
        ),
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        llama_like(
            ATTENTION,
            Fixed(qk_norm=True),
            kv=KvHeads(32),
            head_size=Key("head_size", "head_dim", default=128),
            windows=WindowKeys(
                switch="use_sliding_window",
                pattern=lambda layer, config: layer >= get(config, "max_window_layers", int, 28),
            ),
        ),
    ),
    "gemma": Family(
        "GemmaForCausalLM",
        llama_like(*GEMMA, kv=KvHeads(16), head_size=GEMMA_HEAD, act=Activates(default="gelu_pytorch_tanh"), tie=True),
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        llama_like(
            *GEMMA,
            QUERY_SCALE,
            *CAPS,
            Fixed(norm_place="both"),
            kv=KvHeads(4),
            head_size=GEMMA_HEAD,
            act=GEMMA_ACT,
            tie=True,
            windows=WindowKeys(pattern=every(2)),
        ),
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        llama_like(
            *GEMMA,
            QUERY_SCALE,
            Only("attn_logit_softcapping", None),  # which its class states, and does not use
            Optional("logit_cap", "final_logit_softcapping"),
            Fixed(norm_place="both", qk_norm=True),
            kv=KvHeads(4),
            head_size=GEMMA_HEAD,
            act=GEMMA_ACT,
            tie=True,
            windows=WindowKeys(pattern=every(6, "sliding_window_pattern")),
            rope=Rope(1_000_000.0, apart=("rope_local_base_freq", 10_000.0)),
        ),
    ),
    "vaultgemma": Family(
        "VaultGemmaForCausalLM",
        llama_like(
            *GEMMA,
            QUERY_SCALE,
            *CAPS,
            kv=KvHeads(4),
            head_size=GEMMA_HEAD,
            act=GEMMA_ACT,
            tie=True,
            windows=WindowKeys(pattern=every(2)),
        ),
    ),
    "phi": Family(
        "PhiForCausalLM",
        llama_like(
            KeyChoice("qk_layernorm", {False: {"qk_norm": False}, True: {"qk_norm": True}}, False),
            Fixed(bias="all", branches="parallel", head_bias=True),
            Dropouts(("resid_pdrop", "embd_pdrop")),
            head_size=Fixed(),
            norm=LAYER,
            eps=epsilon("layer_norm_eps", 1e-5),
            act=Activates(**GELU_NEW),
            rope=Rope(share=0.5),
        ),
    ),
    "phi3": Family(
        "Phi3ForCausalLM",
        llama_like(
            Fixed(bias="none"),
            Only("resid_pdrop", 0.0),
            Only("embd_pdrop", 0.0),
            eps=epsilon("rms_norm_eps", 1e-5),
            windows=WindowKeys(default=None, types=False),
            rope=Rope(share=1.0, renamed=("su", "yarn"), beside=True),
        ),
    ),
    "olmo": Family(
        "OlmoForCausalLM",
        llama_like(
            ATTENTION,
            Only("clip_qkv", None, "clipping of queries, keys and values"),
            Fixed(norm_weight="none", norm_epsilon=1e-5, norm_bias=False),
            norm=LAYER,
            eps=Fixed(),
        ),
    ),
    "olmo2": Family(
        "Olmo2ForCausalLM",
        llama_like(
            ATTENTION,
            Fixed(norm_place="after", qk_norm=True, qk_norm_over="all"),
            eps=epsilon("rms_norm_eps", 1e-5),
        ),
    ),
    "olmo3": Family(
        "Olmo3ForCausalLM",
        llama_like(
            ATTENTION,
            Fixed(norm_place="after", qk_norm=True, qk_norm_over="all"),
            eps=epsilon("rms_norm_eps", 1e-5),
            windows=WindowKeys(pattern=every(4)),
            rope=Rope(500_000.0, apart=(None, None)),
        ),
    ),
    "smollm3": Family(
        "SmolLM3ForCausalLM",
        llama_like(
            ATTENTION_AND_MLP,
            kv=KvHeads(4),
            tie=True,
            windows=WindowKeys(
                default=None,
                switch="use_sliding_window",
                pattern=lambda layer, config: not _turns(layer, config),
            ),
            rope=Rope(2_000_000.0, without="listed"),
        ),
    ),
    "granite": Family("GraniteForCausalLM", llama_like(ATTENTION_AND_MLP, *SCALES)),
    "hyperclovax": Family(
        "HyperCLOVAXForCausalLM",
        llama_like(
            ATTENTION_AND_MLP,
            *SCALES[:2],
            Key("attention_scale", "attention_multiplier", float, 0.0, written="score_scale"),
            Key("logit_scale", "logits_scaling", float, 1.0),
            KeyChoice("use_post_norm", {True: {"norm_place": "both"}, False: {"norm_place": "before"}}, True),
        ),
    ),
    "granite_swa": Family(
        "GraniteSWAForCausalLM",
        llama_like(
            ATTENTION_AND_MLP,
            *SCALES,
            Fixed(sinks=True),
            tie=True,
            kv=KvHeads(4),
            eps=epsilon("rms_norm_eps", 1e-5),
            windows=WindowKeys(128, pattern=after_one),
            rope=Rope(listed=True),
        ),
    ),
    "gpt_neox": Family(
        "GPTNeoXForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv", "out")}, always=("mlp",), default=("attention_bias",)),
            KeyChoice(
                "use_parallel_residual", {True: {"branches": "parallel-norms"}, False: {"branches": "serial"}}, True
            ),
            Fixed(norm_bias=True),
            Dropouts(("hidden_dropout",)),
            kv=Fixed(),
            head_size=Fixed(),
            norm=LAYER,
            eps=epsilon("layer_norm_eps", 1e-5),
            act=Activates(gated=False, default="gelu"),
            rope=Rope(share=0.25, theta_key="rotary_emb_base", share_key="rotary_pct"),
        ),
    ),
    "stablelm": Family(
        "StableLmForCausalLM",
        llama_like(
            Biases({"use_qkv_bias": ("qkv",)}),
            KeyChoice("use_parallel_residual", {False: {"branches": "serial"}, True: {"branches": "parallel"}}, False),
            KeyChoice(
                "qk_layernorm", {False: {"qk_norm": False}, True: {"qk_norm": True, "qk_norm_over": "each"}}, False
            ),
            Fixed(norm_bias=True),
            Only("hidden_dropout", 0.0),
            head_size=Fixed(),
            norm=LAYER,
            eps=epsilon("layer_norm_eps", 1e-5),
            rope=Rope(share=0.25),
        ),
    ),
    "starcoder2": Family(
        "Starcoder2ForCausalLM",
        llama_like(
            Biases({"use_bias": ("qkv", "out", "mlp")}, default=("use_bias",)),
            Fixed(norm_bias=True),
            Dropouts(("residual_dropout", "embedding_dropout")),
            kv=KvHeads(2),
            norm=LAYER,
            eps=epsilon("norm_epsilon", 1e-5),
            act=Activates(gated=False, default="gelu_pytorch_tanh"),
            tie=True,
            windows=WindowKeys(default=None, types=False),
        ),
    ),
    "cohere": Family(
        "CohereForCausalLM",
        llama_like(
            ATTENTION,
            KeyChoice(
                "use_qk_norm", {False: {"qk_norm": False}, True: {"qk_norm": True, "qk_norm_over": "each"}}, False
            ),
            Key("logit_scale", "logit_scale", float, 0.0625),
            Fixed(branches="parallel", norm_bias=False, rotary_pairs="neighbors"),
            norm=LAYER,
            eps=epsilon("layer_norm_eps", 1e-5),
            tie=True,
            rope=Rope(500_000.0),
        ),
    ),
    "cohere2": Family(
        "Cohere2ForCausalLM",
        llama_like(
            ATTENTION,
            Key("logit_scale", "logit_scale", float, 0.0625),
            Fixed(branches="parallel", norm_bias=False, rotary_pairs="neighbors"),
            head_size=Fixed(),
            norm=LAYER,
            eps=epsilon("layer_norm_eps", 1e-5),
            tie=True,
            windows=WindowKeys(pattern=every(4, "sliding_window_pattern")),
            rope=Rope(without="full"),
        ),
    ),
    "falcon": Family(
        "FalconForCausalLM",
        llama_like(
            Biases({"bias": ("qkv", "out", "mlp")}),
            Falcon(),
            Only("alibi", False, "positions that weigh scores (ALiBi)"),
            Only("hidden_dropout", 0.0),
            Fixed(norm_bias=True),
            sizes=(
                *SIZES[:4],
                Key("sequence", "max_position_embeddings", default=2048),
                Key("ffn", "ffn_hidden_size", default=four_times),
            ),
            kv=Fixed(),
            head_size=Fixed(),
            norm=LAYER,
            eps=epsilon("layer_norm_epsilon", 1e-5),
            act=Activates("activation", gated=False, default="gelu"),
            tie=True,
        ),
    ),
    "gptj": Family(
        "GPTJForCausalLM",
        (
            *GPT2_SIZES,
            epsilon("layer_norm_epsilon", 1e-5),
            Activates("activation_function", **GELU_NEW),
            Key("rotary_size", "rotary_dim", default=64, written="rotated"),
            Fixed(bias="mlp", norm_bias=True, head_bias=True, branches="parallel", positions="rotary"),
            Fixed(rotary_pairs="neighbors"),
            tied(False),
            Dropouts(("resid_pdrop", "embd_pdrop"), attention="attn_pdrop"),
        ),
    ),
    "codegen": Family(
        "CodeGenForCausalLM",
        (
            *GPT2_SIZES,
            FourCores(),
            epsilon("layer_norm_epsilon", 1e-5),
            Activates("activation_function", **GELU_NEW),
            Key("rotary_size", "rotary_dim", default=64, written="rotated"),
            Fixed(bias="mlp", norm_bias=True, head_bias=True, branches="parallel", positions="rotary"),
            Fixed(rotary_pairs="neighbors"),
            tied(False),
            Dropouts(("resid_pdrop", "embd_pdrop"), attention="attn_pdrop"),
        ),
    ),
    "gpt_bigcode": Family(
        "GPTBigCodeForCausalLM",
        (
            *GPT2_SIZES,
            epsilon("layer_norm_epsilon", 1e-5),
            Activates("activation_function", gated=False, default="gelu_pytorch_tanh"),
            KeyChoice("multi_query", {True: {"kv_heads": 1}, False: {}}, True),
            Only("scale_attn_weights", True),
            Only("add_cross_attention", False, "attention to an encoder"),
            Fixed(bias="all", positions="learned"),
            tied(True),
            Dropouts(("resid_pdrop", "embd_pdrop"), 0.1, "attn_pdrop"),
        ),
    ),
    "gpt_neo": Family(
        "GPTNeoForCausalLM",
        (
            Key("layers", "num_layers"),
            Key("hidden", "hidden_size"),
            Key("heads", "num_heads"),
            Key("vocab", "vocab_size"),
            Key("sequence", "max_position_embeddings"),
            Key("ffn", "intermediate_size", default=four_times),
            epsilon("layer_norm_epsilon", 1e-5),
            Activates("activation_function", **GELU_NEW),
            LocalLayers(),
            Fixed(bias="out+mlp", norm_bias=True, positions="learned", attention_scale=1.0),
            tied(True),
            Dropouts(("resid_dropout", "embed_dropout"), attention="attention_dropout"),
        ),
    ),
    "glm": Family(
        "GlmForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv",)}, default=("attention_bias",)),
            Fixed(rotary_pairs="neighbors"),
            kv=KvHeads(2),
            head_size=Key("head_size", "head_dim", default=128),
            eps=epsilon("rms_norm_eps", 1.5625e-7),
            rope=Rope(share=0.5),
        ),
    ),
    "glm4": Family(
        "Glm4ForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv",)}, default=("attention_bias",)),
            Fixed(rotary_pairs="neighbors", norm_place="both"),
            kv=KvHeads(2),
            head_size=Key("head_size", "head_dim", default=128),
            eps=epsilon("rms_norm_eps", 1.5625e-7),
            rope=Rope(share=0.5),
        ),
    ),
    "exaone4": Family(
        "Exaone4ForCausalLM",
        llama_like(
            Fixed(bias="none", norm_place="after", qk_norm=True),
            kv=KvHeads(32),
            eps=epsilon("rms_norm_eps", 1e-5),
            windows=WindowKeys(pattern=every(4, "sliding_window_pattern")),
            rope=Rope(without="full-if"),
        ),
    ),
    "nemotron": Family(
        "NemotronForCausalLM",
        llama_like(
            ATTENTION_AND_MLP,
            Fixed(norm_weight="offset", norm_bias=True),
            norm=LAYER,
            eps=epsilon("norm_eps", 1e-5),
            act=Activates(gated=False, default="relu2"),
            rope=Rope(share=0.5),
        ),
    ),
    "arcee": Family(
        "ArceeForCausalLM",
        llama_like(ATTENTION_AND_MLP, eps=epsilon("rms_norm_eps", 1e-5), act=Activates(gated=False, default="relu2")),
    ),
    "jais2": Family(
        "Jais2ForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv", "out"), "mlp_bias": ("mlp",)}, default=("attention_bias", "mlp_bias")),
            Fixed(norm_bias=True),
            norm=LAYER,
            eps=epsilon("layer_norm_eps", 1e-5),
            act=Activates(gated=False, default="relu2"),
        ),
    ),
    "persimmon": Family(
        "PersimmonForCausalLM",
        llama_like(
            KeyChoice("qk_layernorm", {True: {"qk_norm": True}, False: {"qk_norm": False}}, True),
            Only("hidden_dropout", 0.0),
            Fixed(bias="all"),
            kv=Fixed(),
            head_size=Fixed(),
            norm=LAYER,
            eps=epsilon("layer_norm_eps", 1e-5),
            act=Activates(gated=False, default="relu2"),
            rope=Rope(share=0.5),
        ),
    ),
    "helium": Family(
        "HeliumForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv",), "mlp_bias": ("mlp",)}),
            Fixed(rotary_pairs="neighbors"),
            head_size=Key("head_size", "head_dim", default=128),
            eps=epsilon("rms_norm_eps", 1e-8),
            rope=Rope(100_000.0),
        ),
    ),
    "ernie4_5": Family(
        "Ernie4_5ForCausalLM",
        llama_like(
            Biases({"use_bias": ("qkv", "out", "mlp")}),
            Fixed(rotary_pairs="neighbors"),
            kv=KvHeads(2),
            head_size=Key("head_size", "head_dim", default=128),
            eps=epsilon("rms_norm_eps", 1e-5),
            tie=True,
            rope=Rope(500_000.0),
        ),
    ),
    "hunyuan_v1_dense": Family(
        "HunYuanDenseV1ForCausalLM",
        llama_like(ATTENTION, Fixed(qk_norm=True, qk_norm_late=True), eps=epsilon("rms_norm_eps", 1e-5)),
    ),
    "seed_oss": Family(
        "SeedOssForCausalLM",
        llama_like(
            Biases(
                {"attention_bias": ("qkv",), "attention_out_bias": ("out",), "mlp_bias": ("mlp",)},
                default=("attention_bias",),
            ),
            kv=KvHeads(8),
            head_size=Key("head_size", "head_dim", default=128),
            dropout=Fixed(),  # by default 0.1 of attention, which Heddle leaves out as it does GPT-2's
        ),
    ),
    "internlm3": Family(
        "LlamaForCausalLM",
        llama_like(
            ATTENTION_AND_MLP,
            kv=KvHeads(2),
            head_size=Key("head_size", "head_dim", default=128),
            eps=epsilon("rms_norm_eps", 1e-5),
        ),
        aliases={"qkv_bias": "attention_bias", "bias": "mlp_bias"},
    ),
    "iquestcoder": Family(
        "LlamaForCausalLM",
        llama_like(
            ATTENTION_AND_MLP,
            Only("clip_qkv", None, "clipping of queries, keys and values"),
            NO_WINDOWS,
            kv=KvHeads(8),
            head_size=Key("head_size", "head_dim", default=128),
            eps=epsilon("rms_norm_eps", 1e-5),
        ),
    ),
    "ministral": Family(
        "MinistralForCausalLM",
        llama_like(Fixed(bias="none"), kv=KvHeads(8), windows=WindowKeys(pattern=lambda *_: True)),
    ),
    "cwm": Family(
        "CwmForCausalLM",
        llama_like(
            Biases({"mlp_bias": ("mlp",)}),
            kv=KvHeads(8),
            head_size=Key("head_size", "head_dim", default=128),
            eps=epsilon("rms_norm_eps", 1e-5),
            windows=WindowKeys(8192, pattern=after_one),
            rope=Rope(1_000_000.0),
        ),
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        llama_like(
            Fixed(bias="none"),
            HasExperts(("num_local_experts",), 8, 2, normalized=True),
            Only("router_jitter_noise", 0.0, "noise before the router"),
            kv=KvHeads(8),
            eps=epsilon("rms_norm_eps", 1e-5),
            windows=WindowKeys(default=None, types=False),
            rope=Rope(1_000_000.0),
        ),
    ),
    "qwen2_moe": Family(
        "Qwen2MoeForCausalLM",
        llama_like(
            Biases({"qkv_bias": ("qkv",)}, default=("qkv_bias",)),
            HasExperts(
                ("num_experts", "num_local_experts"),
                60,
                4,
                ("moe_intermediate_size", 1408),
                ("shared_expert_intermediate_size", 5632),
                mixed=True,
            ),
            NO_WINDOWS,
            kv=KvHeads(16),
        ),
    ),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        llama_like(
            ATTENTION,
            HasExperts(("num_experts", "num_local_experts"), 128, 8, ("moe_intermediate_size", 768), mixed=True),
            Fixed(qk_norm=True),
            NO_WINDOWS,
            kv=KvHeads(4),
        ),
    ),
    "olmoe": Family(
        "OlmoeForCausalLM",
        llama_like(
            ATTENTION,
            HasExperts(("num_experts",), 64, 8),
            Only("clip_qkv", None, "clipping of queries, keys and values"),
            Fixed(qk_norm=True, qk_norm_over="all"),
            eps=epsilon("rms_norm_eps", 1e-5),
            head_size=Fixed(),
        ),
    ),
    "deepseek_v2": Family(
        "DeepseekV2ForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv", "out")}),
            DeepSeekExperts(
                ("n_routed_experts",), 64, 6, ("moe_intermediate_size", 1407), normalized=False, router="softmax"
            ),
            Only("norm_topk_prob", False, "weights that this family both normalizes and scales"),
            Only("scoring_func", "softmax"),
            Only("moe_layer_freq", 1),
            Only("mlp_bias", False),
            Fixed(rotary_pairs="neighbors"),
            kv=Fixed(),
            head_size=Latent(),
            rope=Rope(scores=True),
        ),
    ),
    "deepseek_v3": Family(
        "DeepseekV3ForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv", "out")}),
            DeepSeekExperts(
                ("n_routed_experts", "num_local_experts"),
                256,
                8,
                ("moe_intermediate_size", 2048),
                router="sigmoid",
                groups=(8, 4),
                scale=2.5,
            ),
            Fixed(router_bias="choice"),
            Only("scoring_func", "sigmoid"),
            Only("moe_layer_freq", 1),
            KeyChoice(
                "rope_interleave", {True: {"rotary_pairs": "neighbors"}, False: {"rotary_pairs": "halves"}}, True
            ),
            NoMoreLayers(),
            kv=Fixed(),
            head_size=Latent(),
            rope=Rope(scores=True),
        ),
    ),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        llama_like(
            Biases({"attention_bias": ("qkv", "out")}, always=("mlp",), default=("attention_bias",)),
            HasExperts(("num_local_experts", "num_experts"), 128, 4, normalized=True),
            Fixed(sinks=True, router_bias="score"),
            Key("gate_limit", "swiglu_limit", float, 7.0),
            Key("gate_alpha", "swiglu_alpha", float, 1.702),
            kv=KvHeads(8),
            head_size=Key("head_size", "head_dim", default=64),
            eps=epsilon("rms_norm_eps", 1e-5),
            act=Clamped(),
            windows=WindowKeys(128, pattern=every(2)),
            rope=Rope(
                150_000.0,
                default={
                    "rope_type": "yarn",
                    "factor": 32.0,
                    "original_max_position_embeddings": 4096,
                    "truncate": False,
                },
            ),
        ),
    ),
}


def _turns(layer: int, config: Config) -> bool:
    """Whether a layer of SmolLM3 has positions."""
    listed = config.get("no_rope_layers")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer])
    return bool((layer + 1) % get(config, "no_rope_layer_interval", int, 4))
