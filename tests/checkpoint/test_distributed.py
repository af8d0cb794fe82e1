"""Checkpoints in PyTorch's distributed format, by torchtitan's and Megatron-LM's names, as Hugging Face folders.

They are written here by torch's own writer; rows are put in the trainers' order one by one, as those describe it.
"""

import json
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import heddle  # noqa: E402
from heddle.errors import HeddleError  # noqa: E402
from heddle.spec.huggingface import read_config  # noqa: E402
from tests.helpers.commands import call  # noqa: E402

HEADS, GROUPS, SIZE, HIDDEN, LAYERS, VOCAB = 4, 2, 8, 32, 3, 50


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A small Llama of transformers, its weights, and the file that describes it."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        vocab_size=VOCAB,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config)
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    return model, {name: value.detach() for name, value in model.state_dict().items()}, path


def save(state, folder):
    """By torch's own writer, in one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)


def neighbors(weight):
    """Rows as a Llama has them whose positions turn neighbors: 0 and half, 1 and half + 1, …"""
    rows = []
    for head in weight.split(SIZE):
        for at in range(SIZE // 2):
            rows += [head[at], head[at + SIZE // 2]]
    return torch.stack(rows)


def as_torchtitan(state):
    found = {
        "tok_embeddings.weight": state["model.embed_tokens.weight"],
        "norm.weight": state["model.norm.weight"],
        "output.weight": state["lm_head.weight"],
        "optimizer.state.tok_embeddings.weight.exp_avg": torch.zeros(3),
    }
    for layer in range(LAYERS):
        of, to = f"model.layers.{layer}.", f"layers.{layer}."
        found |= {
            f"{to}attention.wq.weight": neighbors(state[f"{of}self_attn.q_proj.weight"]),
            f"{to}attention.wk.weight": neighbors(state[f"{of}self_attn.k_proj.weight"]),
            f"{to}attention.wv.weight": state[f"{of}self_attn.v_proj.weight"],
            f"{to}attention.wo.weight": state[f"{of}self_attn.o_proj.weight"],
            f"{to}feed_forward.w1.weight": state[f"{of}mlp.gate_proj.weight"],
            f"{to}feed_forward.w2.weight": state[f"{of}mlp.down_proj.weight"],
            f"{to}feed_forward.w3.weight": state[f"{of}mlp.up_proj.weight"],
            f"{to}attention_norm.weight": state[f"{of}input_layernorm.weight"],
            f"{to}ffn_norm.weight": state[f"{of}post_attention_layernorm.weight"],
        }
    return found


def as_megatron(state, stacked):
    padding = torch.zeros(128 - VOCAB, HIDDEN)
    found = {
        "embedding.word_embeddings.weight": torch.cat([state["model.embed_tokens.weight"], padding]),
        "decoder.final_layernorm.weight": state["model.norm.weight"],
        "output_layer.weight": torch.cat([state["lm_head.weight"], padding]),
        "optimizer.state.exp_avg.embedding.word_embeddings.weight": torch.zeros(3),
    }
    layers = []
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        q, k, v = (state[f"{of}self_attn.{name}_proj.weight"] for name in "qkv")
        rows = []
        for group in range(GROUPS):
            heads = range(group * HEADS // GROUPS, (group + 1) * HEADS // GROUPS)
            rows += [q[head * SIZE : (head + 1) * SIZE] for head in heads]
            rows += [k[group * SIZE : (group + 1) * SIZE], v[group * SIZE : (group + 1) * SIZE]]
        layers.append(
            {
                "self_attention.linear_qkv.weight": torch.cat(rows),
                "self_attention.linear_qkv.layer_norm_weight": state[f"{of}input_layernorm.weight"],
                "self_attention.linear_proj.weight": state[f"{of}self_attn.o_proj.weight"],
                "mlp.linear_fc1.weight": torch.cat([state[f"{of}mlp.{name}_proj.weight"] for name in ("gate", "up")]),
                "mlp.linear_fc1.layer_norm_weight": state[f"{of}post_attention_layernorm.weight"],
                "mlp.linear_fc2.weight": state[f"{of}mlp.down_proj.weight"],
            }
        )
    if stacked:
        return found | {f"decoder.layers.{name}": torch.stack([each[name] for each in layers]) for name in layers[0]}
    return found | {
        f"decoder.layers.{at}.{name}": value for at, each in enumerate(layers) for name, value in each.items()
    }


@pytest.mark.parametrize("form", ["torchtitan", "megatron", "megatron stacked"])
def test_a_checkpoint_becomes_a_folder_that_transformers_reads(theirs, tmp_path, form):
    model, state, config = theirs
    trainer = form.split()[0]
    written = as_torchtitan(state) if trainer == "torchtitan" else as_megatron(state, "stacked" in form)
    folder = tmp_path / "checkpoint" / "step-10"
    save(written, folder)
    made = heddle.import_dcp(
        tmp_path / "checkpoint", tmp_path / "hf", trainer=trainer, model=str(config), shard_gib=2e-5
    )
    found = transformers.LlamaForCausalLM.from_pretrained(made).state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name]) for name in state)
    assert len(list(made.glob("*.safetensors"))) > 1
    tokens = torch.arange(12).view(1, 12)
    again = transformers.LlamaForCausalLM.from_pretrained(made)
    assert torch.equal(again(tokens).logits, model(tokens).logits)


def test_the_command_writes_what_heddle_reads(theirs, tmp_path, capsys):
    _, state, config = theirs
    save(as_torchtitan(state), tmp_path / "dcp")
    options = ("--trainer", "torchtitan", "--model", config, "--dtype", "bf16", "-o", tmp_path / "hf")
    assert call("import", "dcp", tmp_path / "dcp", *options) == 0
    assert "parameters" in capsys.readouterr().out
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    assert {each.dtype for each in weights.values()} == {torch.bfloat16}
    assert call("import", "hf", tmp_path / "hf", "-o", tmp_path / "ours", "--no-check") == 0


def test_the_wrong_model_or_trainer_is_told(theirs, tmp_path):
    _, state, config = theirs
    folder = tmp_path / "dcp"
    save(as_torchtitan(state), folder)
    with pytest.raises(HeddleError, match=r"lacks|do not"):
        heddle.import_dcp(folder, tmp_path / "out", trainer="megatron", model=str(config))
    with pytest.raises(HeddleError, match="does not hold"):
        heddle.import_dcp(folder, tmp_path / "out", trainer="torchtitan", model="llama-3-8b")
    with pytest.raises(HeddleError, match="are not read"):
        heddle.import_dcp(folder, tmp_path / "out", trainer="torchtitan", model="gpt2")
    with pytest.raises(HeddleError, match="not a distributed checkpoint"):
        heddle.import_dcp(config.parent, tmp_path / "out", trainer="torchtitan", model=str(config))
    assert not (tmp_path / "out").exists()


class Harmful:
    def __reduce__(self):
        return print, ("run",)


def test_a_file_that_would_run_code_is_refused(theirs, tmp_path, capsys):
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(HeddleError, match=r"holds builtins\.print"):
        heddle.import_dcp(tmp_path, tmp_path / "out", trainer="torchtitan", model="llama-3-8b")
    assert capsys.readouterr().out == ""


def test_families_are_read_as_configured(theirs):
    assert read_config(json.loads(theirs[2].read_text())).kv_heads == GROUPS
