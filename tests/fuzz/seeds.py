"""A folder of valid files, of every kind that a command reads."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

JOB = """
[model]
layers = 4
hidden = 64
heads = 4
vocab = 257
sequence = 32

[cluster]
file = "cluster.toml"

[data]
text = "corpus/*.txt"
validation = 0.2

[train]
name = "small"
steps = 3
global_batch = 8
learning_rate = 1e-2
"""
PLAN = """
[plan]
tensor = 2
sequence = true
pipeline = 2
virtual = 1
data = 2
zero = 1
microbatch = 1
schedule = "1f1b"
stages = [2, 2]
recompute = "selective"
"""
CLUSTER = """
[cluster]
name = "small"
nodes = 2
devices = 4
device = { name = "A100", memory_gib = 80, memory_gbs = 2000, tflops = { fp32 = 19.5, bf16 = 312 }, processors = 108 }
links = [{ name = "nvlink", devices = 4, gbs = 300, latency_us = 2 }, { name = "ib", gbs = 25, latency_us = 5 }]
efficiency = { matmul = 0.7, launch_us = 5 }
"""
LAYERS = (
    PLAN.replace('recompute = "selective"', 'recompute = "full"')
    + """
offload = ["optimizer:host"]
prefetch = 2

[[plan.layers]]
layers = "0-1"
recompute = "none"
zero = 3

[[plan.layers]]
layers = "3"
offload = ["input:disk", "optimizer:disk"]
"""
)
LATE = """delay_warmup = 1
delay_correction = "rate"

[plan]
pipeline = 3
stages = [1, 1, 1, 1]
update = "ouroboros"
"""
SPARSE = """save_every = 2
outer_learning_rate = 0.5
outer_momentum = 0.8

[plan]
pipeline = 2
data = 2
schedule = "deep-1f1b"
extra_warmup = 1
compress_gradients = "int8"
compress_activations = "bf16"
local_steps = 2
"""
NETWORK = """
[network]
name = "campuses"
across = { latency_ms = 20.0, gbps = 1.0 }

[[network.groups]]
name = "north"
devices = 3
device = "A100-SXM4-80GB"
inside = { latency_ms = 0.05, gbps = 100.0 }

[[network.groups]]
name = "desk"

[[network.links]]
between = ["north:0", "desk"]
latency_ms = 11.0
gbps = 0.5

[[network.links]]
from = "desk"
to = "north"
gbps = 0.2
"""
AWS = """
[network]
preset = "aws"
regions = { Ohio = 2, Ireland = 2 }
inside = { latency_ms = 1.0, gbps = 5.0 }
"""
KERNEL = """
void f(float *restrict a, const float *restrict b, float c) {
    a[0] = b[0] * c + 1; a[1] = b[1] * c + 2; a[2] = b[2] * c + 3; a[3] = b[3] * c + 4;
}
int g(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; }
"""
IR = """
target triple = "x86_64-unknown-linux-gnu"

define void @f(ptr noalias %a, ptr noalias %b) {
entry:
"""
IR += "".join(
    f"""  %p{k} = getelementptr inbounds double, ptr %b, i64 {k}
  %x{k} = load double, ptr %p{k}, align 8
  %y{k} = fmul double %x{k}, 2.0
  %q{k} = getelementptr inbounds double, ptr %a, i64 {k}
  store double %y{k}, ptr %q{k}, align 8
"""
    for k in range(4)
)
IR += "  ret void\n}\n"
# What a checkpoint is made of: one process, no cluster.
TRAINED = (
    JOB.replace('[cluster]\nfile = "cluster.toml"\n', "").replace("layers = 4", "layers = 1")
    + "[plan]\ndata = 1\nmicrobatch = 8\n"
)
HEADER = "id,step_s,layers,hidden,heads,vocab,seq,gbs,mbs,tp,pp,dp,gpu,n_gpus,precision,attn,recompute,framework"
HEADER += ",mem_gb,interconnect"
ROW = "r{0},{1},24,2048,16,50257,1024,64,2,2,2,{2},A100-80GB,{3},fp16,unfused,full,Megatron-LM,20,8x200Gb/s HDR IB"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 257,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}
QWEN = {key: value for key, value in LLAMA.items() if key != "rope_scaling"} | {
    "model_type": "qwen2",
    "use_sliding_window": True,
    "sliding_window": 16,
    "max_window_layers": 0,
}


def write_seeds(folder: Path) -> None:
    """All of them, as a user would have them lie about."""
    from heddle.cli import main  # noqa: F401 - fails here rather than in every input
    from heddle.schedule import build
    from heddle.simulating.replay import replay
    from heddle.spec.job import dumps_job, load_job
    from heddle.trace import Trace
    from heddle.trace.steps import write_rank

    (folder / "corpus").mkdir(parents=True)
    for number in range(4):
        words = f"Document {number}: the weaver leads each thread, naïve or not, to its place.\n"
        (folder / "corpus" / f"{number}.txt").write_text(words * (3 + number), encoding="utf-8")
    lines = [{"text": f"line {number} of a corpus", "id": number} for number in range(9)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "job.toml").write_text(JOB)
    (folder / "plan.toml").write_text(JOB + PLAN)
    (folder / "layers.toml").write_text(JOB + LAYERS)
    (folder / "late.toml").write_text(JOB + LATE)
    (folder / "sparse.toml").write_text(JOB + SPARSE)
    (folder / "network.toml").write_text(NETWORK)
    (folder / "aws.toml").write_text(AWS)
    (folder / "kernel.c").write_text(KERNEL)
    (folder / "kernel.ll").write_text(IR)
    (folder / "trained.toml").write_text(TRAINED)
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "hf.toml").write_text(
        '[model]\nconfig = "llama.json"\n[data]\ntext = "corpus/*.txt"\n[cluster]\nfile = "cluster.toml"\n'
    )
    for name in ("layers.json", "operators.json", "regions.json"):
        shutil.copyfile(REPOSITORY / "examples" / name, folder / name)
    (folder / "llama.json").write_text(json.dumps(LLAMA, indent=1))
    (folder / "qwen.json").write_text(json.dumps(QWEN, indent=1))
    rows = [ROW.format(n, 2.5 + n / 7, 1 + n % 4, 4 * (1 + n % 4)) for n in range(16)]
    (folder / "rows.csv").write_text("\n".join([HEADER, *rows]))
    (folder / "collectives.csv").write_text(
        "\n".join(
            ["n_ranks,bytes,time_ns", *(f"{2 ** (1 + n % 3)},{2 ** (10 + n)},{10_000 + 40 * 2**n}" for n in range(9))]
        )
    )
    layers = [f"1,1024,16,{512 * (1 + n % 2)},{1 + n},1,A100,full,{1.2 + n},{3.4 + n}" for n in range(8)]
    (folder / "layers.csv").write_text("\n".join(["layers,hidden,heads,seq,mbs,tp,gpu,mode,fwd_ms,bwd_ms", *layers]))
    (folder / "records.json").write_text(json.dumps([{"instruction": "Say it.", "output": "It."}]))
    run = folder / "run"
    run.mkdir()
    job = load_job(folder / "plan.toml").planned
    (run / "job.toml").write_text(dumps_job(job))
    steps = [
        {"step": n, "loss": 6 - n / 10, "learning_rate": 1e-3, "gradient_norm": 1.0, "seconds": 0.1}
        | {"tokens_per_second": 2048, "mfu": 0.3, "memory_gib": 0.5}
        for n in range(1, 12)
    ]
    steps.append({"step": 11, "validation_loss": 5.0})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    pipe = replay(build("1f1b", 2, 4), 2e-3, 4e-3)
    for rank in range(8):
        own = [span._replace(rank=rank) for span in pipe.spans if span.rank == rank // 4]
        write_rank(run / "traces", 2, rank, Trace(8, own))
    shutil.copytree(run, folder / "other")
    (folder / "make.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)\n"
    )


def commanded(folder: Path, *commands: tuple[str, ...]) -> None:
    """Let Heddle make files, by commands that must go well."""
    from .harness import answer

    before = Path.cwd()
    os.chdir(folder)
    try:
        for command in commands:
            found = answer(command, 60.0)
            assert found.code == 0, found
    finally:
        os.chdir(before)


def write_trained(folder: Path) -> None:
    """What needs torch: a run with a checkpoint, tokens, a Hugging Face folder."""
    commanded(
        folder,
        ("data", "prepare", "corpus/*.txt", "-o", "tokens"),
        ("train", "trained.toml", "--set", "train.steps=1"),
        ("export", "hf", "runs/small", "-o", "hf", "--no-check"),
        ("import", "hf", "hf", "-o", "imported", "--no-check"),
        ("meeting", "--new-secret", "site.pem"),
    )
    _write_sharded(folder)
    shutil.copyfile(REPOSITORY / "heddle" / "lanes" / "policy" / "weights.safetensors", folder / "policy.safetensors")
    checkpoint = next((folder / "runs" / "small" / "checkpoints").iterdir())
    checkpoint.rename(folder / "checkpoint")
    site = '[train]\nmeeting = "203.0.113.1:29700"\nmeet_every = 2\nsite = "ohio"\n'
    (folder / "site.toml").write_text(TRAINED.replace("[train]\n", site))
    (folder / "tokens.toml").write_text(TRAINED.replace('text = "corpus/*.txt"\nvalidation = 0.2', 'tokens = "tokens"'))


def _write_sharded(folder: Path) -> None:
    """Folders as others write them: layers that differ in several files, and a tokenizer of whole words."""
    import tokenizers

    from heddle.data.tokenizer import ByteTokenizer
    from tests.helpers.hf_folder import UNLIKE, random_weights, write_folder

    config = UNLIKE["qwen3-alternating"] | {"eos_token_id": 256, "bos_token_id": None}
    for name in ("sharded", "words"):
        write_folder(folder / name, config, random_weights(config), shards=3)
        ByteTokenizer().save(folder / name)
    words = {"</s>": 0, "[UNK]": 1, "Document": 2, "x": 3}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(folder / "words" / "tokenizer.json"))
    (folder / "words" / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "</s>", "model_max_length": 10**30})
    )
