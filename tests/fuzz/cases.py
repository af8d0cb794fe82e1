"""Which commands read which file."""

from __future__ import annotations

from dataclasses import dataclass


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
        "layers.toml",
        "toml",
        (
            "simulate layers.toml --json",
            "simulate layers.toml --memory",
            "plan layers.toml --json --top 1",
            "plan layers.toml --by-layer --json --top 1",
            "plan layers.toml --by-layer --free --explain",
            "report layers.toml -o made.html",
        ),
        weight=1.5,
    ),
    Case("layers.toml", "toml", ("train layers.toml --dry-run --json",), torch=True, weight=0.3),
    Case(
        "late.toml",
        "toml",
        (
            "simulate late.toml --json",
            "simulate late.toml --trace made.json",
            "plan late.toml --json --top 1",
            "plan late.toml --free --set plan.update=synchronous --allow-delay --json --top 2",
            "report late.toml -o made.html",
        ),
    ),
    Case("late.toml", "toml", ("train late.toml --dry-run --json",), torch=True, weight=0.3),
    Case(
        "sparse.toml",
        "toml",
        (
            "simulate sparse.toml --json",
            "plan sparse.toml --json --top 1",
            f"regions network.toml --job sparse.toml --json {QUICK}",
            "launch sparse.toml --slurm",
        ),
    ),
    Case("sparse.toml", "toml", ("train sparse.toml --dry-run --json",), torch=True, weight=0.3),
    Case(
        "network.toml",
        "toml",
        (f"regions network.toml --job sparse.toml --json {QUICK}", f"regions network.toml --job job.toml {QUICK}"),
    ),
    Case("aws.toml", "toml", (f"regions aws.toml --job sparse.toml --json {QUICK}",), weight=0.7),
    Case(
        "regions.json",
        "json",
        (
            f"regions regions.json --case spot --json {QUICK}",
            f"regions regions.json --case two-sites {QUICK}",
            f"regions regions.json --case one-way --pipeline 4 --json {QUICK}",
        ),
        weight=1.5,
    ),
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
    # an address that no machine has: what is right in all else ends there
    Case("site.pem", "bytes", ("meeting --listen 203.0.113.1:29700",), torch=True, weight=0.5),
    Case("site.toml", "toml", ("train site.toml --dry-run --json",), torch=True, weight=0.3),
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
    Case("other/metrics.jsonl", "lines", ("compare run other -o made.html --json",), torch=True),
    Case("other/job.toml", "toml", ("compare run other -o made.html --json",), torch=True, weight=0.5),
    Case(
        "kernel.ll",
        "bytes",
        (
            "lanes kernel.ll --json --time-limit 1",
            "lanes kernel.ll --explain --method ilp --time-limit 1",
            "lanes kernel.ll -S --method llvm",
        ),
    ),
    Case("kernel.c", "bytes", ("lanes kernel.c --json --time-limit 1", "lanes kernel.c -o made.ll"), weight=0.5),
    Case(
        "policy.safetensors",
        "bytes",
        ("lanes kernel.ll --method policy --weights policy.safetensors --json",),
        torch=True,
        weight=0.5,
    ),
    Case("run/job.toml", "toml", ("report run -o made.html", "trace run -o made.json", "inspect run")),
    Case(
        "corpus.jsonl", "lines", ("data prepare corpus.jsonl -o made", "data prepare corpus.jsonl -o made -t bpe:300")
    ),
    Case(
        "corpus/1.txt", "bytes", ("data prepare corpus/*.txt -o made", "data prepare corpus/*.txt -o made -t bpe:270")
    ),
    Case("make.py", "bytes", ("place make.py:make --times modeled",), torch=True, weight=0.3),
    Case(
        "make.py",
        "bytes",
        (
            "tiles trace make.py:make --threads 2 -o made.json",
            "tiles simulate make.py:make --cores 4 --slow 2x0.5 --calls 1 --json",
        ),
        torch=True,
        weight=0.4,
    ),
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
    Case(
        "words/tokenizer.json",
        "json",
        ("data prepare corpus/1.txt -o made -t words/tokenizer.json", "generate words --tokens 2 --prompt x"),
        torch=True,
        weight=0.5,
    ),
    Case("records.json", "json", ("data prepare records.json -o made", "data prepare *.json -o made"), weight=0.2),
    Case(
        "checkpoint/index.json",
        "json",
        ("inspect checkpoint --json", "inspect checkpoint --all", "inspect checkpoint --verify"),
        torch=True,
    ),
    Case(
        "checkpoint/checkpoint.json",
        "json",
        ("inspect checkpoint --json", "inspect checkpoint", "inspect checkpoint --verify --json"),
        torch=True,
    ),
    Case(
        "sharded/model.safetensors.index.json",
        "json",
        ("inspect sharded --json", "import hf sharded -o made --no-check", "import hf sharded -o made"),
        torch=True,
    ),
    Case(
        "sharded/config.json",
        "json",
        ("import hf sharded -o made", "generate sharded --tokens 2", "inspect sharded --verify"),
        torch=True,
        weight=0.7,
    ),
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
