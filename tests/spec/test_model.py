"""The shape of a model: its exact parameter count, its FLOPs, what follows from what, and what is refused."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.spec import ModelSpec
from heddle.spec.presets import model_presets
from heddle.spec.shorthand import model_from_table
from heddle.spec.tables import to_table

# Counts that others state: the number of weights that the model's Hugging Face page shows, or, where the file
# there stores a tied output layer twice (Qwen3-0.6B: 751,632,384), `model.num_parameters()` of transformers.
# GPT-2's are also those of the model presets of Keras.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "tinyllama-1.1b": 1_100_048_384,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "qwen2-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "gemma-2b": 2_506_172_416,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "pythia-1.4b": 1_414_647_808,
    "olmo-2-7b": 7_298_617_344,
    "smollm3-3b": 3_075_098_624,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "olmoe-1b-7b": 6_919_161_856,
}

# Table 1 of the PTD-P paper (arXiv 2104.04473): billions of parameters, heads, hidden, layers.
PTDP = [
    ("1.7", 24, 2304, 24),
    ("3.6", 32, 3072, 30),
    ("7.5", 32, 4096, 36),
    ("18.4", 48, 6144, 40),
    ("39.1", 64, 8192, 48),
    ("76.1", 80, 10240, 60),
    ("145.6", 96, 12288, 80),
    ("310.1", 128, 16384, 96),
    ("529.6", 128, 20480, 105),
    ("1008", 160, 25600, 128),
]
V, S = 51200, 2048

TINY: dict[str, Any] = {"layers": 2, "hidden": 96, "heads": 6, "vocab": 257, "sequence": 32}


def model(name: str) -> ModelSpec:
    return model_from_table({"preset": name})


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_that_are_published(name: str) -> None:
    assert model(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", model_presets())
def test_every_preset_loads_under_its_own_name(name: str) -> None:
    assert model(name).name == name


@pytest.mark.parametrize(("billions", "a", "h", "l"), PTDP)
def test_ptdp_shapes_and_equation_2(billions: str, a: int, h: int, l: int) -> None:  # noqa: E741
    spec = model(f"megatron-{billions}b")
    assert (spec.heads, spec.hidden, spec.layers, spec.vocab, spec.sequence) == (a, h, l, V, S)
    # Eq. 2, P = 12 l h² (1 + 13/(12h) + (V+s)/(12lh)), multiplied out so that it stays whole. It counts all
    # but the final layer norm's weight and bias.
    equation_2 = 12 * l * h**2 + 13 * l * h + (V + S) * h
    assert spec.parameters - equation_2 == 2 * h
    assert f"{spec.parameters / 1e9:.1f}".removesuffix(".0") == billions


@pytest.mark.parametrize(("billions", "a", "h", "l"), PTDP)
def test_ptdp_equation_3(billions: str, a: int, h: int, l: int) -> None:  # noqa: E741
    spec = model(f"megatron-{billions}b")
    # Eq. 3, F = 96 B s l h² (1 + s/(6h) + V/(16lh)), with everything computed twice in the forward pass;
    # without recomputation it is 72 B s l h² (1 + s/(6h) + V/(12lh)) (arXiv 2205.05198, appendix A).
    recomputed = 96 * S * l * h**2 + 16 * S**2 * l * h + 6 * S * h * V
    once = 72 * S * l * h**2 + 12 * S**2 * l * h + 6 * S * h * V
    assert spec.flops(1, recompute=True) == float(recomputed)
    assert spec.flops(1) == float(once)
    assert spec.flops(512) == pytest.approx(512 * once, rel=1e-15)


def test_flops_of_grouped_queries_gates_and_windows() -> None:
    # Llama 3 8B, forward, one layer, by hand: query and output 4096², key and value 4096 × 1024, three
    # matrices of 4096 × 14336; then scores and their product with the values over the full square.
    s, h = 8192, 4096
    layer = 2 * s * (2 * h * h + 2 * h * 1024 + 3 * h * 14336) + 2 * 2 * s * s * h
    assert model("llama-3-8b").flops(1) == float(3 * (32 * layer + 2 * s * h * 128256))
    mistral = model("mistral-7b")
    beyond = replace(mistral, window=None).flops(1) - mistral.flops(1)
    assert beyond == float(3 * 32 * 4 * 32768 * (32768 - 4096) * 4096)
    assert mistral.flops(1, 4096) == replace(mistral, window=None).flops(1, 4096)


def test_fields_left_out_follow_from_the_others() -> None:
    gpt = ModelSpec(**TINY)
    assert (gpt.kv_heads, gpt.head_size, gpt.ffn, gpt.group) == (6, 16, 384, 1)
    llama = ModelSpec(**TINY, activation="swiglu", kv_heads=2)
    assert (llama.ffn, llama.group) == (256, 3)  # 8/3 × 96 = 256, a multiple of 64 already
    # 8/3 × 4096 is 10922.7; the next multiple of 64 is below Llama 7B's 11008, which rounds to 256
    assert ModelSpec(**TINY | {"hidden": 4096, "heads": 32}, activation="swiglu").ffn == 10944
    assert ModelSpec(**TINY | {"heads": 5}, head_size=20).head_size == 20  # heads need not divide hidden


@given(
    heads=st.integers(1, 8),
    size=st.sampled_from([2, 4, 6]),
    layers=st.integers(1, 5),
    vocab=st.integers(1, 300),
    tied=st.booleans(),
    bias=st.sampled_from(["all", "qkv", "none"]),
    activation=st.sampled_from(["gelu", "swiglu"]),
    positions=st.sampled_from(["learned", "rotary"]),
)
def test_the_parts_add_up_to_the_whole(
    heads: int, size: int, layers: int, vocab: int, tied: bool, bias: Any, activation: Any, positions: Any
) -> None:
    spec = ModelSpec(
        layers=layers,
        hidden=heads * size,
        heads=heads,
        vocab=vocab,
        sequence=16,
        tied=tied,
        bias=bias,
        activation=activation,
        positions=positions,
    )
    deeper = replace(spec, layers=layers + 1)
    assert deeper.parameters - spec.parameters == spec.layer(0).layer_parameters
    assert replace(spec, tied=False).parameters - replace(spec, tied=True).parameters == spec.hidden * vocab
    learned, rotary = replace(spec, positions="learned"), replace(spec, positions="rotary")
    assert learned.parameters - rotary.parameters == 16 * spec.hidden
    # Query, key and value together are 3 × hidden wide where every query head has its own key and value head.
    biased, bare = replace(spec, bias="qkv"), replace(spec, bias="none")
    assert biased.layer(0).layer_parameters - bare.layer(0).layer_parameters == 3 * spec.hidden
    normed = replace(spec, qk_norm=True).layer(0).layer_parameters - spec.layer(0).layer_parameters
    assert normed == 2 * size * (2 if bias == "all" else 1)  # of the model's kind: layernorms, here with a bias


def test_heads_divide_hidden() -> None:
    with pytest.raises(HeddleError, match="heads = 7 does not divide hidden = 96") as caught:
        ModelSpec(**TINY | {"heads": 7})
    (better,) = map(int, re.findall(r"\d+", caught.value.hint))
    assert ModelSpec(**TINY | {"heads": better}).heads == 6  # 6 and 8 are as near; the smaller is named


def test_kv_heads_divide_heads() -> None:
    with pytest.raises(HeddleError, match="kv_heads = 4 does not divide heads = 6") as caught:
        ModelSpec(**TINY, kv_heads=4)
    options = [int(word) for word in re.findall(r"\d+", caught.value.hint)]
    assert options == [1, 2, 3, 6]
    assert [ModelSpec(**TINY, kv_heads=option).group for option in options] == [6, 3, 2, 1]


def test_rotary_positions_need_an_even_head() -> None:
    with pytest.raises(HeddleError, match="head_size = 15 is odd"):
        ModelSpec(**TINY, head_size=15, positions="rotary")
    assert ModelSpec(**TINY, head_size=15).head_size == 15


DIFFERING = ModelSpec(
    layers=6, hidden=64, heads=4, vocab=100, sequence=32, ffn=(64, 64, 128, 128, 0, 0), window=(8, 8, 0, 8, 8, 0)
)


def test_layers_may_differ():
    assert DIFFERING.shape_of == (0, 0, 1, 2, 3, 4)
    assert [(shape.ffn, shape.window) for shape in DIFFERING.shapes] == [
        (64, 8), (128, None), (128, 8), (256, 8), (256, None),
    ]  # fmt: skip
    assert DIFFERING.layer(4).ffn == 4 * 64  # 0 is as usual
    alike = [replace(DIFFERING, ffn=DIFFERING.layer(i).ffn, window=DIFFERING.layer(i).window) for i in range(6)]
    assert DIFFERING.parameters == pytest.approx(sum(each.parameters for each in alike) / 6)
    assert DIFFERING.flops(3, 16) == pytest.approx(sum(each.flops(3, 16) for each in alike) / 6)
    assert DIFFERING.tensor_degrees == [1, 2, 4]
    assert model_from_table(to_table(DIFFERING)) == DIFFERING


def test_a_list_of_equal_layers_is_one_number():
    assert replace(DIFFERING, ffn=(64,) * 6).ffn == 64
    assert replace(DIFFERING, window=(0,) * 6).window is None
    assert replace(DIFFERING, ffn=(0,) * 6, window=(8,) * 6) == replace(DIFFERING, ffn=0, window=8)
    assert len(replace(DIFFERING, ffn=0, window=8).shapes) == 1


@pytest.mark.parametrize("field", ["ffn", "window"])
def test_a_list_has_an_entry_for_each_layer(field):
    with pytest.raises(HeddleError, match=f"model.{field} lists 2 layers, but the model has 6") as caught:
        replace(DIFFERING, **{field: (8, 16)})
    assert f'{field} = ["8 x 6"]' in caught.value.hint


@pytest.mark.parametrize("window", [None, 1, 3, 7, 8, 20])
def test_causal_flops_count_the_pairs_that_the_mask_leaves(window):
    model = ModelSpec(layers=2, hidden=8, heads=2, vocab=16, sequence=8, window=window)
    seen = sum(query - (window or 8) < key <= query for query in range(8) for key in range(8))
    all_pairs = 8 * min(8, window or 8)
    less = model.flops(1) - model.flops(1, causal=True)
    assert less == 3 * 2 * 4 * (all_pairs - seen) * model.heads * model.head_size
