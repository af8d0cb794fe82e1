"""Forward and backward of native families on one core: Heddle's transformer against transformers' own modules.

The peer is transformers with `attn_implementation = "eager"`, the same weights and tokens, its loss and its backward.
The second copy of the peer is the A/A arm: its ratio to the first is the noise of this machine.

Needs transformers.

    python -m benchmarks.speed.families [--families llama gemma2 …] [--rounds 8]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.lib.rounds import alternate, report_cases, speedup
from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import huggingface_source
from heddle.models import Microbatch

FAMILIES = ("llama", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2", "gpt_neox", "granite", "cohere2", "starcoder2")
SAMPLES, SEQUENCE, VOCAB = 2, 256, 4096
SIZES = {
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": 64,
    "vocab_size": VOCAB,
    "max_position_embeddings": SEQUENCE,
    "sliding_window": 128,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def pair(family: str, folder: Path) -> dict[str, Callable[[], Any]]:
    """One step of gradients by either."""
    import transformers

    config = transformers.AutoConfig.for_model(family)
    known = {key: value for key, value in SIZES.items() if hasattr(config, key)}
    config = transformers.AutoConfig.for_model(family, **known)
    theirs = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    theirs.save_pretrained(folder / family)
    ours = load_model(huggingface_source(folder / family), torch.float32, torch.device("cpu"))
    for parameter in ours.parameters():
        parameter.requires_grad_(True)
    rows = torch.randint(0, VOCAB, (SAMPLES, SEQUENCE + 1))
    ids, following = rows[:, :-1], rows[:, 1:].contiguous()
    batch = Microbatch(sequence=SEQUENCE, targets=following.flatten())

    def native() -> None:
        ours.zero_grad(set_to_none=True)
        ours(ids.flatten(), batch).backward()

    def eager() -> None:
        theirs.zero_grad(set_to_none=True)
        theirs(ids, labels=following, shift_labels=following).loss.backward()

    return {"heddle": native, "transformers": eager, "transformers again": eager}


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for family in options.families:
            arms = {
                name: lambda work=work: timed(work)  # type: ignore[misc]
                for name, work in pair(family, Path(folder)).items()
            }
            seconds = alternate(arms, options.rounds)
            ratio, noise = (speedup(seconds, name, "transformers") for name in ("heddle", "transformers again"))
            cases.append({"family": family, "ratio": round(ratio, 4), "a_a": round(noise, 4)})
    report_cases("families", f"transformers {version('transformers')}, eager", cases, samples=SAMPLES, tokens=SEQUENCE)


if __name__ == "__main__":
    main()
