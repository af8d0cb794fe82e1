"""Options that no command expects, and what launchers may have left in the environment."""

from __future__ import annotations

import random

from .mutate import NUMBERS, WORDS, Raw

# Commands whose options are tried, with what they need to run at all.
COMMANDS = (
    ("plan", "job.toml"),
    ("plan", "--model", "gpt2", "--cluster", "cluster.toml"),
    ("simulate", "plan.toml"),
    ("launch", "plan.toml", "--slurm"),
    ("schedule", "1f1b", "-p", "4", "-m", "8"),
    ("schedule", "interleaved", "-p", "4", "-m", "8"),
    ("piper", "layers.json", "--time-limit", "2"),
    ("piper", "job.toml", "--time-limit", "2"),
    ("place", "operators.json", "--time-limit", "2"),
    ("validate", "rows.csv"),
    ("trace", "run"),
    ("report", "run", "-o", "made.html"),
    ("data", "prepare", "corpus/*.txt", "-o", "made"),
    ("inspect", "run"),
    ("plan", "layers.toml", "--by-layer"),
    ("simulate", "late.toml"),
    ("schedule", "searched", "-p", "3", "-m", "3"),
    ("regions", "regions.json", "--case", "spot", "--time-limit", "1"),
    ("regions", "network.toml", "--job", "sparse.toml", "--time-limit", "1"),
    ("lanes", "pack", "kernel.ll", "--time-limit", "1"),
    ("simulate", "experts.toml", "--mtbf", "100"),
    ("plan", "experts.toml", "--free"),
    ("plan", "long.toml", "--free"),
    ("launch", "plan.toml", "--kubernetes", "--image", "x"),
    ("launch", "plan.toml", "--kubeflow", "--image", "x"),
    ("launch", "plan.toml", "--skypilot"),
    ("launch", "plan.toml", "--mpi"),
    ("export", "megatron", "plan.toml"),
    ("export", "nemo", "experts.toml"),
    ("import", "megatron-args", "megatron.sh", "--no-search"),
    ("import", "torchtitan", "titan.toml", "--no-search", "--job", "plan.toml"),
    ("import", "deepspeed", "ds.json", "--no-search", "--job", "plan.toml"),
    ("models",),
)
# Those that import torch, or start processes.
WITH_TORCH = (
    ("compare", "run", "other", "-o", "made.html"),
    ("compare", "trained.toml", "tokens.toml", "-o", "made.html"),
    ("tiles", "simulate", "make.py:make", "--calls", "1"),
    ("tiles", "trace", "make.py:make", "-o", "made.json"),
    ("tiles", "bench", "nowhere.py:make", "--rounds", "1"),
    ("probe", "-o", "nowhere/made.toml"),
    ("train", "layers.toml", "--dry-run"),
    ("meeting", "--listen", "203.0.113.1:29700"),
    ("meeting",),
    ("generate", "hf", "--tokens", "2"),
    ("import", "hf", "sharded", "-o", "made", "--no-check"),
    ("export", "hf", "imported", "-o", "made", "--no-check"),
    ("inspect", "checkpoint"),
    ("data", "look", "chats.jsonl", "--tokenizer", "bytes", "--template", "chatml"),
    ("data", "prepare", "chats.jsonl", "-o", "made", "--chat", "--template", "chatml"),
    ("evaluate", "hf", "corpus/1.txt", "--sequence", "16"),
    ("train", "tuned.toml", "--dry-run"),
    ("train", "trained.toml", "--set", "train.steps=1", "--set", "train.runs=made"),
    ("export", "peft", "runs/tuned", "-o", "made"),
    ("selftest", "--plan", "nowhere.toml"),  # which is not there: a whole test takes minutes
)


def odd_options(chance: random.Random, torch: bool) -> list[str]:
    """A command with one to three options that were not meant so."""
    from typer.main import get_command

    from heddle.cli.app import app

    words = list(chance.choice(COMMANDS + WITH_TORCH if torch else COMMANDS))
    command = get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    options = [param for param in command.params if param.param_type_name == "option"]
    for _ in range(chance.randint(1, 3) if options else 0):  # a group of commands has none
        option = chance.choice(options)
        name = chance.choice([*option.opts, *option.secondary_opts])
        if name in ("--open",):  # starts a browser
            continue
        if option.is_flag:  # type: ignore[attr-defined]
            words.append(name)
            continue
        value = chance.choice(NUMBERS + WORDS + list(MEANT.get(name, ())) * 8)
        text = value.text if isinstance(value, Raw) else str(value)[:6000]
        if name in ("-o", "--output", "--trace", "--new-secret"):
            text = chance.choice(OUTPUTS)
        words += [name, text.replace("\0", "")]
    return words


def odd_environment(chance: random.Random) -> dict[str, str]:
    """What a launcher, a shell or a batch system may have left behind: mostly nothing."""
    if chance.random() < 0.6:
        return {}
    made = {}
    for name in chance.sample(sorted(LEFT), chance.randint(1, 4)):
        value = chance.choice(NUMBERS + WORDS) if LEFT[name] is None else chance.choice(LEFT[name])
        made[name] = (value.text if isinstance(value, Raw) else str(value)[:6000]).replace("\0", "")
    return made


# None: any word. What names folders is kept to those where nothing can be harmed.
FOLDERS = ("made", "corpus/1.txt", "/dev/zero", "", "x" * 300)
LEFT: dict[str, tuple[str, ...] | None] = {
    **dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "SLURM_PROCID")),
    **dict.fromkeys(("SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "COLUMNS", "LINES", "TERM")),
    "HEDDLE_SECRET_FILE": ("job.toml", "corpus", "corpus/1.txt", "/dev/zero", "/dev/null", "none", "", "x" * 5000),
    **dict.fromkeys(("XDG_CACHE_HOME", "HEDDLE_TILES_CACHE", "TMPDIR", "HOME"), FOLDERS),
}
OUTPUTS = (
    "made.toml",
    "made.json",
    "made.svg",
    "made.html",
    "nowhere/made.json",
    "/dev/full",
    "/dev/null",
    "loop",
    "made",
    "corpus",
)
OUTPUTS += ("job.toml", "x" * 300, "corpus/1.txt/made.json", "", "made.json/", ".")
MEANT = {
    "--set": (
        "plan.tensor=4",
        "model.layers=0",
        "train.steps=nan",
        "cluster.nodes=99999999",
        "model.hidden=1e3",
        "plan.stages=[1,3]",
        "plan.recompute=['full','none','none','none']",
        "=",
        "a.b",
        "plan=3",
        "plan.update='2bw'",
        "plan.local_steps=3",
        "plan.compress_gradients='int4'",
        "plan.codes=[{gradients='int8'}]",
        "plan.codes=[{links='inside',groups=['x','y'],activations='int8'}]",
        "plan.fragments=2",
        "plan.overlap_steps=9",
        "plan.offload=['weights:disk']",
        "plan.layers=[{layers='0-999999999',zero=3}]",
        "train.delay_warmup=-1",
        "train.checkpoints='s3://'",
        "train.checkpoints='nothing://x'",
        "train.checkpoints='file:made/x'",
        "train.checkpoints='memory://x'",
        "train.checkpoints='simplecache::s3://x/y'",
        "plan.expert=3",
        "plan.context=3",
        "plan.context_exchange='all-to-all'",
        "model.experts=[0,8,8,8]",
        "model.top_k=99",
        "model.router_dtype='bf16'",
        "model.capacity_factor=1.25",
        "tune.lora.rank=1e9",
        "tune={lora={targets=[]}}",
        "preference.beta=0",
        "data.pack=true",
        "data.chat=[{path='chats.jsonl',weight=1e300},{path='chats.csv',weight=1e-300}]",
        "model.x.y=2",
        f"train.steps={'9' * 400}",
        f"train.name={'[' * 500}",
    ),
    "--listen": (
        "[]:29781",
        "[[[[:1",
        ":1",
        "0:1",
        "0x0:1",
        "127.0.0.1:80:80",
        "a..b:80",
        f"a:{'9' * 5000}",
        "203.0.113.1:0",
        "[2001:db8::1]:29700",
        "[::1%nowhere]:29700",
        f"{'a' * 64}.b:1",
        "no-such-host.invalid:1",
        "é:80",
    ),
    "--learn": ("each", "last", "all", "preference"),
    "--template": ("chatml", "chat.jinja", "corpus", "make.py"),
    "--tasks": ("", "a,b", "corpus"),
    "--mem": ("500G", "1e3", "-1"),
    "--rdma": ("rdma/ib=8", "=", "a=b"),
    "--image": ("a b", "$(id)"),
    "--model": ("llama.json", "mixtral.json", "qwen-moe.json", "gpt2"),
    "--method": ("dp", "dpl", "ip", "greedy", "local", "one", "policy", "ilp", "pairs"),
    "--threads": ("1,2", "²", "1,", "9" * 5000, "0x2", "-1"),
    "--slow": ("8x0.45", "x", "1x", "9999999x0.5", "2x-1", "2xnan", "x0.5", "²x1"),
    "--cpu": ("znver4", "neoverse-n1", "pdp-11"),
    "--temperature": ("0", "1e-300", "5e-324", "1e9", "1e-45"),
    "--tokens": ("1", "2"),  # of generate; each takes a while
    "--shard-gib": ("1e-9", "1e-300", "1e300"),
    "--case": ("spot", "one-way", "nowhere"),
    "--weights": ("policy.safetensors", "job.toml", "corpus"),
    "--job": ("late.toml", "layers.toml", "trained.toml", "network.toml"),
    "--parts": ("1",),
    "--function": ("f", "g", "@f"),
    "--objective": ("latency", "cheapest", "smallest", "fewest", "throughput"),
    "--schedule": ("1f1b", "gpipe", "interleaved", "zb-v", "dualpipev", "deep-1f1b", "all"),
    "--cluster": ("cluster.toml", "dgx-h100", "job.toml", "this"),
    "--tokenizer": ("bytes", "bpe:300", "bpe:99999999999", "bpe:²", "llama.json"),
}
