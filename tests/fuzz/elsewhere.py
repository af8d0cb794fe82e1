"""What comes from elsewhere: other trainers' files, and requests of the live pages."""

from __future__ import annotations

import json
from pathlib import Path

from .cases import Case
from .seeds import commanded

NOW = "--cluster cluster.toml --nodes 2 --no-search"
CASES = (
    Case(
        "megatron.sh",
        "bytes",
        (
            f"import megatron-args megatron.sh {NOW} --json",
            f"import megatron-args megatron.sh {NOW} -o made.toml",
            "import megatron-args megatron.sh --cluster cluster.toml",
        ),
        weight=1.5,
    ),
    Case("titan.toml", "toml", (f"import torchtitan titan.toml {NOW} --json --job plan.toml",)),
    Case(
        "ds.json",
        "json",
        (
            f"import deepspeed ds.json {NOW} --model llama.json --json",
            f"import deepspeed ds.json {NOW} --job plan.toml",
        ),
    ),
    Case(
        "plan.toml",
        "toml",
        tuple(f"export {name} plan.toml" for name in ("megatron", "torchtitan", "deepspeed", "accelerate", "nemo"))
        + tuple(f"launch plan.toml --image x --{kind}" for kind in ("kubernetes", "kubeflow", "skypilot"))
        + (
            "launch plan.toml --mpi",
            "simulate plan.toml --mtbf 1000 --tokens 1e9 --price 2 --json",
        ),
    ),
    Case(
        "request.json",
        "json",
        ("page /plan request.json", "page /show request.json", "page /scaling request.json"),
        weight=2,
    ),
    Case("run/metrics.jsonl", "lines", ("page /events run",)),
    Case("run/job.toml", "toml", ("page /events run",), weight=0.5),
    Case("run/traces/step-00000002-rank-00003.jsonl", "lines", ("page /events run",), weight=0.5),
    # an address that no machine has: what is right in all else ends there
    Case("plan.toml", "toml", ("explore plan.toml --no-open --host 203.0.113.1",), weight=0.5),
)


def write(folder: Path) -> None:
    """Files as Heddle itself writes them for others, and a request with every field."""
    commanded(
        folder,
        ("export", "megatron", "plan.toml", "-o", "megatron.sh"),
        ("export", "torchtitan", "plan.toml", "-o", "titan.toml"),
        ("export", "deepspeed", "plan.toml", "-o", "ds.json"),
    )
    request = {
        "model": "tiny",
        "cluster": "dgx-a100-80gb",
        "nodes": 1,
        "sequence": 64,
        "global_batch": "32",
        "memory_gib": 40.5,
        "tokens": "1e9",
        "price": 2,
        "precision": "bf16",
        "pins": {"tensor": 2, "zero": 1, "schedule": "1f1b", "recompute": "full"},
        "selected": 1,
        "other": 0,
        "plans": [{"tensor": 2, "data": 4, "microbatch": 2}, {"data": 8, "zero": 1}],
    }
    (folder / "request.json").write_text(json.dumps(request))


def write_trained(_folder: Path) -> None:
    """Nothing of them is trained."""
