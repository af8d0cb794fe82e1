"""A mixture of experts: one process against transformers, and two processes that share its experts or do not.

One process: forward and backward of a small Qwen3-MoE, from the same weights, against transformers' own class as it
comes, which computes grouped products, and with its loop over experts (`experts_implementation = "eager"`). Gradients
are compared first; `cpu` has the same ratios of CPU seconds, which other load on the machine changes less. Two
processes: the same training with expert = 2 and with data = 2; both compute the same losses. The second copy of each
peer is the A/A arm: its ratio to the first is the noise of this machine.

    python -m benchmarks.speed.experts [--layers 4 --hidden 256 --experts 32 --top-k 4 --width 128 --rounds 9]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lib.processes import measure, run  # before torch: one thread

# isort: split
import numpy as np
import torch
import transformers

from benchmarks.lib.rounds import alternate, report_cases, speedup
from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import huggingface_source
from heddle.models import Microbatch
from heddle.parallel.mesh import build_mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.huggingface import read_config
from heddle.training.loop import Trainer

RANKS = 2
CLOSE = 1e-4  # of gradients, relative to their norm


def config_of(options: argparse.Namespace) -> Any:
    return transformers.Qwen3MoeConfig(
        hidden_size=options.hidden,
        intermediate_size=4 * options.hidden,
        moe_intermediate_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 32,
        num_key_value_heads=options.hidden // 64,
        head_dim=32,
        num_experts=options.experts,
        num_experts_per_tok=options.top_k,
        norm_topk_prob=True,
        vocab_size=4096,
        max_position_embeddings=options.sequence,
    )


class Theirs:
    """A pass through transformers' class."""

    def __init__(self, folder: Path, experts: str | None, ids: torch.Tensor) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        if experts is not None:
            self.model.set_experts_implementation(experts)
        self.ids = ids

    def __call__(self) -> float:
        self.model.zero_grad(set_to_none=True)
        start = time.perf_counter()
        logits = self.model(self.ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.ids[:, 1:].flatten())
        loss.backward()
        return time.perf_counter() - start

    def norm(self) -> float:
        return float(torch.stack([p.grad.norm() for p in self.model.parameters()]).norm())


class Ours:
    """The same through Heddle's."""

    def __init__(self, folder: Path, ids: torch.Tensor) -> None:
        self.model = load_model(huggingface_source(folder), torch.float32, torch.device("cpu"))
        self.ids = ids.flatten()
        targets = torch.full_like(ids, -100)
        targets[:, :-1] = ids[:, 1:]
        count = float((targets >= 0).sum())
        self.batch = Microbatch(sequence=ids.shape[1], targets=targets.flatten(), count=count)

    def __call__(self) -> float:
        self.model.zero_grad(set_to_none=True)
        start = time.perf_counter()
        self.model(self.ids, self.batch).backward()
        return time.perf_counter() - start

    def norm(self) -> float:
        return float(torch.stack([p.grad.norm() for p in self.model.parameters()]).norm())


def one_process(options: argparse.Namespace) -> dict[str, object]:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        transformers.AutoModelForCausalLM.from_config(config_of(options)).save_pretrained(folder)
        ids = torch.randint(0, 4096, (options.samples, options.sequence))
        arms: dict[str, Any] = {
            "heddle": Ours(folder, ids),
            "transformers": Theirs(folder, None, ids),
            "transformers again": Theirs(folder, None, ids),
            "transformers, loop": Theirs(folder, "eager", ids),
        }
    for arm in arms.values():
        arm()
    norms = [arm.norm() for arm in arms.values()]
    assert max(norms) - min(norms) < CLOSE * min(norms), norms
    cpu: dict[str, list[float]] = {name: [] for name in arms}

    def timed(name: str) -> float:
        start = time.process_time()
        seconds: float = arms[name]()
        cpu[name].append(time.process_time() - start)
        return seconds

    seconds = alternate({name: partial(timed, name) for name in arms}, options.rounds)
    pairs = {
        "ratio": ("heddle", "transformers"),
        "a_a": ("transformers again", "transformers"),
        "ratio_loop": ("heddle", "transformers, loop"),
    }
    return {
        "processes": 1,
        "median_seconds": {name: round(float(np.median(values)), 4) for name, values in seconds.items()},
        **{name: round(speedup(seconds, *pair), 3) for name, pair in pairs.items()},
        "cpu": {name: round(speedup(cpu, *pair), 3) for name, pair in pairs.items()},
    }


class Training:
    """Steps of a trainer."""

    def __init__(self, model: ModelSpec, plan: Plan, options: argparse.Namespace, rank: int) -> None:
        train = Train(global_batch=RANKS * options.samples, learning_rate=1e-3, sequence=options.sequence)
        job = Job(model=model, data=Data(text="-"), train=train, plan=plan)
        tokens = np.random.default_rng(0).integers(0, model.vocab, 1 << 20).astype("<u2")
        self.trainer = Trainer(job, tokens, build_mesh(plan, rank, RANKS))

    def train_step(self) -> float:
        return float(self.trainer.train_step().loss)


def two_processes(rank: int, options: argparse.Namespace) -> dict[str, Any]:
    model = read_config(config_of(options).to_dict())
    plans = {"expert = 2": Plan(data=2, expert=2, microbatch=options.samples)}
    plans |= dict.fromkeys(("data = 2", "data = 2 again"), Plan(data=2, microbatch=options.samples))
    arms = {name: Training(model, plan, options, rank) for name, plan in plans.items()}
    ratios = {"ratio": ("expert = 2", "data = 2"), "a_a": ("data = 2 again", "data = 2")}
    return measure(arms, ratios, options.rounds, 1, processes=RANKS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"layers": 4, "hidden": 256, "experts": 32, "top-k": 4, "width": 128, "sequence": 256, "samples": 4}
    for name, default in {**sizes, "rounds": 9}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    cases = [one_process(options), run(RANKS, two_processes, options)]
    shape = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in sizes}
    report_cases("experts", f"transformers {transformers.__version__} Qwen3MoeForCausalLM", cases, **shape)


if __name__ == "__main__":
    main()
