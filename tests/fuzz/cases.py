"""Which commands read which file, and options that no command expects."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .mutate import NUMBERS, WORDS, Raw


@dataclass(frozen=True)
class Case:
    """A file of a kind, and commands that read it."""

    file: str
    kind: str
    commands: tuple[str, ...]
    torch: bool = False  # what `write_trained` makes
    weight: float = 1.0

    @property
    def name(self) -> str:
        return self.file


QUICK = "--time-limit 2"
CASES = (
    Case("job.toml", "toml", ("plan job.toml --json --top 2", "plan job.toml -o made.toml", f"piper job.toml {QUICK}")),
    Case(
        "plan.toml",
        "toml",
        (
            "simulate plan.toml --json",
            "simulate plan.toml --trace made.json",
            "plan plan.toml --json --top 1",
            "launch plan.toml --slurm",
            "launch plan.toml --torchrun",
            f"piper plan.toml --json --uniform {QUICK}",
            "report plan.toml -o made.html",
        ),
        weight=2,
    ),
    Case("plan.toml", "toml", ("train plan.toml --dry-run --json",), torch=True, weight=0.3),
    Case(
        "cluster.toml",
        "toml",
        ("simulate plan.toml --json", "plan job.toml --json", "validate rows.csv --cluster cluster.toml --json"),
    ),
    Case(
        "llama.json",
        "json",
        ("plan hf.toml --json --top 1", "plan --model llama.json --cluster cluster.toml --json --top 1"),
    ),
    Case("qwen.json", "json", ("plan --model qwen.json --cluster cluster.toml --json --top 1",)),
    Case(
        "layers.json",
        "json",
        (
            f"piper layers.json --json {QUICK}",
            f"piper layers.json --uniform {QUICK}",
            f"piper layers.json -k 3 --also 2 {QUICK}",
        ),
        weight=2,
    ),
    Case(
        "operators.json",
        "json",
        (
            f"place operators.json --json {QUICK}",
            f"place operators.json --objective latency --method greedy {QUICK}",
            f"place operators.json --any --method local --json {QUICK}",
            f"place operators.json --method dpl -o made.json {QUICK}",
        ),
        weight=2,
    ),
    Case("rows.csv", "csv", ("validate rows.csv --json", "validate rows.csv")),
    Case(
        "rows.csv",
        "csv",
        ("calibrate --cluster cluster.toml --from rows.csv -o made.toml --fit matmul --json",),
        weight=0.15,
    ),
    Case("collectives.csv", "csv", ("calibrate --cluster cluster.toml --from collectives.csv -o made.toml --json",)),
    Case(
        "layers.csv",
        "csv",
        ("calibrate --cluster cluster.toml --from layers.csv -o made.toml --fit matmul --json",),
        weight=0.3,
    ),
    Case("run/metrics.jsonl", "lines", ("report run -o made.html",), weight=0.7),
    Case(
        "run/traces/step-00000002-rank-00000.jsonl",
        "lines",
        ("trace run", "trace run -o made.json", "trace run -o made.svg", "report run -o made.html"),
    ),
    Case("run/traces/step-00000002-rank-00003.jsonl", "lines", ("trace run", "trace run -o made.json")),
    Case("run/job.toml", "toml", ("report run -o made.html", "trace run -o made.json", "inspect run")),
    Case(
        "corpus.jsonl", "lines", ("data prepare corpus.jsonl -o made", "data prepare corpus.jsonl -o made -t bpe:300")
    ),
    Case(
        "corpus/1.txt", "bytes", ("data prepare corpus/*.txt -o made", "data prepare corpus/*.txt -o made -t bpe:270")
    ),
    Case("make.py", "bytes", ("place make.py:make --times modelled",), torch=True, weight=0.3),
    Case(
        "tokens/data.json",
        "json",
        ("train tokens.toml --dry-run", "train tokens.toml --dry-run --json"),
        torch=True,
        weight=0.5,
    ),
    Case("tokens/train.bin", "bytes", ("train tokens.toml --set train.runs=made",), torch=True, weight=0.1),
    Case(
        "tokens/tokenizer.json",
        "json",
        ("data prepare corpus/1.txt -o made -t tokens/tokenizer.json",),
        torch=True,
        weight=0.5,
    ),
    Case("checkpoint/index.json", "json", ("inspect checkpoint --json", "inspect checkpoint --all"), torch=True),
    Case("checkpoint/checkpoint.json", "json", ("inspect checkpoint --json", "inspect checkpoint"), torch=True),
    Case(
        "imported/model.toml", "toml", ("inspect imported --json", "export hf imported -o made --no-check"), torch=True
    ),
    Case(
        "checkpoint/part-00000.safetensors",
        "bytes",
        ("inspect checkpoint --verify", "export hf checkpoint -o made --no-check"),
        torch=True,
    ),
    Case(
        "hf/config.json",
        "json",
        ("inspect hf --json", "import hf hf -o made --no-check", "generate hf --tokens 2"),
        torch=True,
    ),
    Case(
        "hf/model.safetensors",
        "bytes",
        ("inspect hf --json", "import hf hf -o made --no-check", "inspect hf --verify"),
        torch=True,
    ),
    Case("hf/tokenizer.json", "json", ("generate hf --tokens 2 --prompt x",), torch=True, weight=0.5),
    Case("hf/tokenizer_config.json", "json", ("generate hf --tokens 2 --prompt x",), torch=True, weight=0.5),
)

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
)


def odd_options(chance: random.Random) -> list[str]:
    """A command with one to three options that were not meant so."""
    from typer.main import get_command

    from heddle.cli.app import app

    words = list(chance.choice(COMMANDS))
    command = get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    options = [param for param in command.params if param.param_type_name == "option"]
    for _ in range(chance.randint(1, 3)):
        option = chance.choice(options)
        name = chance.choice([*option.opts, *option.secondary_opts])
        if name in ("--open",):  # starts a browser
            continue
        if option.is_flag:
            words.append(name)
            continue
        value = chance.choice(NUMBERS + WORDS + list(MEANT.get(name, ())) * 8)
        text = value.text if isinstance(value, Raw) else str(value)[:6000]
        if name in ("-o", "--output", "--trace"):
            text = chance.choice(OUTPUTS)
        words += [name, text.replace("\0", "")]
    return words


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
        "model.x.y=2",
        f"train.steps={'9' * 400}",
        f"train.name={'[' * 500}",
    ),
    "--method": ("dp", "dpl", "ip", "greedy", "local", "one"),
    "--objective": ("latency", "cheapest", "smallest", "fewest", "throughput"),
    "--schedule": ("1f1b", "gpipe", "interleaved"),
    "--cluster": ("cluster.toml", "dgx-h100", "job.toml", "this"),
    "--tokenizer": ("bytes", "bpe:300", "bpe:99999999999", "bpe:²", "llama.json"),
}
