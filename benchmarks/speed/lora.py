"""Fine-tuning with adapters on one device: Heddle against PEFT in a plain loop, on a Llama of 110 million parameters.

The peer is what most people run: transformers' model, `get_peft_model` with the same rank and targets, its loss,
clip_grad_norm_, fused AdamW over the adapters. Both learn from the same tokens in fp32. The second copy of the peer is
the A/A arm: its ratio to the first is the noise of this machine. `qlora` is Heddle with its base in four bits, relative
to itself without; on a CPU that is slower, and is shown so that nobody expects otherwise.

Needs transformers and peft.

    python -m benchmarks.speed.lora [--rounds 10] [--microbatch 2]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from benchmarks.lib.rounds import alternate, report, speedup
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.hf.peft import MODULES
from heddle.spec.tune import Lora, Tune
from heddle.training.loop import Trainer

MODEL = ModelSpec(
    layers=12,
    hidden=768,
    heads=12,
    kv_heads=12,
    ffn=2048,
    vocab=16000,
    sequence=256,
    norm="rmsnorm",
    activation="swiglu",
    positions="rotary",
    bias="none",
    tied=False,
)
LORA = Lora(rank=16, alpha=32.0)


class PeftLoop:
    """A tutorial's loop over a PeftModel."""

    def __init__(self, job: Job, tokens: np.ndarray) -> None:
        import peft
        import transformers

        model, self.job, self.tokens = job.model, job, tokens
        config = transformers.LlamaConfig(
            hidden_size=model.hidden,
            intermediate_size=2048,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            num_key_value_heads=model.kv_heads,
            vocab_size=model.vocab,
            max_position_embeddings=model.sequence,
            tie_word_embeddings=False,
        )
        adapters = peft.LoraConfig(r=LORA.rank, lora_alpha=32, target_modules=list(MODULES), task_type="CAUSAL_LM")
        self.model: Any = peft.get_peft_model(transformers.LlamaForCausalLM(config), adapters)
        self.learned = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.learned, lr=1e-3, weight_decay=0.1, fused=True)

    def train_step(self) -> None:
        sequence, microbatch = self.job.sequence, self.job.plan.microbatch  # type: ignore[union-attr]
        microbatches = self.job.train.global_batch // microbatch
        for _ in range(microbatches):
            starts = np.random.randint(0, len(self.tokens) - sequence, microbatch)
            rows = torch.from_numpy(np.stack([self.tokens[i : i + sequence] for i in starts]).astype(np.int64))
            (self.model(input_ids=rows, labels=rows).loss / microbatches).backward()
        torch.nn.utils.clip_grad_norm_(self.learned, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def timed(loop: Any, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        loop.train_step()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"microbatch": 2, "rounds": 10, "steps": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    tokens = np.random.default_rng(0).integers(0, MODEL.vocab, 1 << 18).astype("<u2")
    train = Train(global_batch=2 * options.microbatch, learning_rate=1e-3, precision="fp32")
    plan = Plan(microbatch=options.microbatch)
    job = Job(model=MODEL, data=Data(text="-"), train=train, plan=plan, tune=Tune(lora=LORA))
    loops = {
        "heddle": Trainer(job, tokens),
        "qlora": Trainer(replace(job, tune=Tune(lora=LORA, base="nf4")), tokens),
        "peft": PeftLoop(job, tokens),
        "peft again": PeftLoop(job, tokens),
    }
    seconds = alternate(
        {name: lambda loop=loop: timed(loop, options.steps) for name, loop in loops.items()}, options.rounds
    )
    ratios = {
        "ratio": speedup(seconds, "heddle", "peft"),
        "a_a": speedup(seconds, "peft again", "peft"),
        "qlora": speedup(seconds, "qlora", "heddle"),
    }
    report(
        "lora",
        f"PEFT {version('peft')} and transformers {version('transformers')} in a plain loop",
        seconds,
        parameters=MODEL.parameters,
        threads=torch.get_num_threads(),
        **ratios,
    )


if __name__ == "__main__":
    main()
