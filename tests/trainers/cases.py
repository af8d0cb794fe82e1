"""Jobs whose plans are taken to other trainers and back."""

import csv
from pathlib import Path

from heddle.spec.job import job_from_tables, load_job

HERE = Path(__file__).parent
EXAMPLE = HERE.parent.parent / "examples" / "plans" / "gpt3-175b.toml"
H100 = {"preset": "dgx-h100", "nodes": 4}


def settings(trainer):
    """What a trainer defines, by name: its kind, and the words that it takes."""
    with (HERE / "settings.csv").open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["name"]: (row["kind"], row["words"].split()) for row in rows if row["trainer"] == trainer}


def job(model="llama-3-8b", cluster=None, train=None, **plan):
    return job_from_tables(
        {
            "model": {"preset": model} if isinstance(model, str) else model,
            "cluster": cluster or H100,
            "train": {"global_batch": 64, "precision": "bf16"} | (train or {}),
            "plan": plan,
        }
    ).planned


JOBS = {
    "example": lambda: load_job(EXAMPLE).planned,
    "replicas": lambda: job(data=32, microbatch=2),
    "zero 1": lambda: job(tensor=4, sequence=True, data=8, zero=1, recompute="selective"),
    "zero 2": lambda: job(data=32, zero=2, recompute="full"),
    "zero 3": lambda: job(data=32, zero=3, recompute="full"),
    "tensor in zero 3": lambda: job(tensor=4, sequence=True, data=8, zero=3),
    "pipeline": lambda: job(tensor=2, sequence=True, pipeline=4, data=4, zero=1, recompute="full"),
    "uneven": lambda: job(pipeline=4, data=8, zero=2, stages=[7, 9, 9, 7]),
    "interleaved": lambda: job(pipeline=4, virtual=2, data=8, zero=2, schedule="interleaved"),
    "uneven interleaved": lambda: job(
        pipeline=2, virtual=2, data=16, schedule="interleaved", stages=[7, 9, 9, 7], microbatch=1
    ),
    "zb-v": lambda: job(pipeline=4, virtual=2, data=8, zero=1, schedule="zb-v"),
    "context": lambda: job(tensor=2, sequence=True, context=4, data=4, zero=3, context_exchange="ring"),
    "context gathered": lambda: job(context=4, data=8, zero=3, context_exchange="gather"),
    "context by heads": lambda: job(context=8, data=4, zero=1, context_exchange="all-to-all"),
    "block": lambda: job(pipeline=2, data=16, zero=1, recompute=["full x 3", "none x 13"] * 2),
    "offload": lambda: job(data=32, zero=1, offload=["optimizer:host"]),
    "experts": lambda: job("qwen3-30b-a3b", data=32, zero=3, recompute="full", microbatch=1),
    "gemma": lambda: job("gemma-2-2b", data=32, zero=1),
    "smollm": lambda: job("smollm3-3b", data=32, zero=1),
    "qwen2": lambda: job("qwen2-7b", tensor=4, sequence=True, data=8, zero=1),
    "phi": lambda: job("phi-2", data=32, zero=1),
    "one": lambda: job("tiny", data=1),
}
