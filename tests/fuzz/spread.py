"""Experts, long samples and modules of one's own: their files, and the commands that read them."""

from __future__ import annotations

import json
from pathlib import Path

from .cases import Case
from .seeds import HEADER, JOB, ROW

MODERN = """norm = "rmsnorm"
activation = "swiglu"
positions = "rotary"
bias = "none"
tied = false
"""
EXPERTS = """experts = 8
top_k = 2
expert_ffn = 32
balance_loss = 0.01
z_loss = 1e-3
shared_ffn = 16
shared_gate = true
"""
EXPERT_PLAN = """
[plan]
data = 4
expert = 2
context = 2
zero = 1
"""
LONG_PLAN = """
[plan]
tensor = 1
context = 4
context_exchange = "2d"
context_inner = 2
data = 2
microbatch = 1
"""
MODULE = """
import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(257, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(16, 257)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make():
    return Net()


def loss(module, batch):
    logits, targets = module(batch.ids).flatten(0, 1), batch.targets.flatten()
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100), targets.ne(-100).sum()


plan = {"blocks": "blocks.*", "column": ["*.up"], "row": ["*.down"], "replicated": ["embed", "head"]}
"""
OWN = """
[model]
module = "mine.py:make"
vocab = 257
sequence = 32

[data]
text = "corpus/*.txt"

[train]
name = "own"
steps = 1
global_batch = 4

[plan]
pipeline = 2
stages = [1, 1]
"""
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.02,
    "vocab_size": 257,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "sliding_window": None,
}
QWEN = {name: value for name, value in MIXTRAL.items() if name != "num_local_experts"} | {
    "model_type": "qwen2_moe",
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 32,
    "num_experts": 8,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [0],
    "norm_topk_prob": True,
    "use_sliding_window": False,
}
CASES = (
    Case(
        "experts.toml",
        "toml",
        (
            "simulate experts.toml --json",
            "simulate experts.toml --memory",
            "plan experts.toml --json --top 1",
            "plan experts.toml --free --expert 2 --explain --top 1",
            "launch experts.toml --mpi",
            "export megatron experts.toml",
            "report experts.toml -o made.html",
        ),
        weight=2,
    ),
    Case("experts.toml", "toml", ("train experts.toml --dry-run --json",), torch=True, weight=0.3),
    Case(
        "long.toml",
        "toml",
        (
            "simulate long.toml --json",
            "simulate long.toml --trace made.json",
            "plan long.toml --json --top 1",
            "plan long.toml --free --context 4 --top 1",
            "export torchtitan long.toml -o made.toml",
        ),
        weight=1.5,
    ),
    Case("long.toml", "toml", ("train long.toml --dry-run --json",), torch=True, weight=0.3),
    Case("mixtral.json", "json", ("plan --model mixtral.json --cluster cluster.toml --json --top 1",)),
    Case("qwen-moe.json", "json", ("plan --model qwen-moe.json --cluster cluster.toml --json --top 1",)),
    Case("moe.csv", "csv", ("validate moe.csv --json", "validate moe.csv")),
    Case("own.toml", "toml", ("train own.toml --dry-run --json", "simulate own.toml --json"), torch=True, weight=0.6),
    Case("mine.py", "bytes", ("train own.toml --dry-run", "plan own.toml --free"), torch=True, weight=0.5),
)


def write(folder: Path) -> None:
    """Their files."""
    model = JOB.replace("sequence = 32\n", "sequence = 32\n" + MODERN, 1)
    (folder / "experts.toml").write_text(model.replace("tied = false\n", "tied = false\n" + EXPERTS) + EXPERT_PLAN)
    (folder / "long.toml").write_text(model.replace("heads = 4\n", "heads = 4\nkv_heads = 2\n") + LONG_PLAN)
    (folder / "mixtral.json").write_text(json.dumps(MIXTRAL, indent=1))
    (folder / "qwen-moe.json").write_text(json.dumps(QWEN, indent=1))
    (folder / "own.toml").write_text(OWN)
    (folder / "mine.py").write_text(MODULE)
    rows = [f"{ROW.format(n, 2.5 + n / 7, 2, 8)},{1 + n % 2},8,2,1024,4,2" for n in range(6)]
    (folder / "moe.csv").write_text("\n".join([f"{HEADER},ep,experts,top_k,expert_ffn,kv_heads,cp", *rows]))


def write_trained(_folder: Path) -> None:
    """Nothing of them is trained."""
