"""Plans drawn at random train Hugging Face's own models as a plain loop over them does, from the same files.

The loop has its own forward, backward, AdamW, clipping, learning rate, late updates and meetings; only which samples
make a batch is Heddle's to say. HEDDLE_SEED=7 draws other plans.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch.func import functional_call

from heddle.checkpoint.source import huggingface_source
from heddle.data import Samples
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.schedule import NAMES
from heddle.schedule.late import UPDATES, LateSchedule
from heddle.spec import Data, Job, Plan, Train
from heddle.spec.huggingface import read_config
from heddle.spec.layer_memory import Recompute
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.choose import make_trainer
from tests.helpers.cases import thinned
from tests.helpers.hf_folder import CONFIGS, Weights, random_weights, write_folder
from tests.helpers.world import SIZE

transformers = pytest.importorskip("transformers")

SEED, PLANS, STEPS = int(os.environ.get("HEDDLE_SEED", "0")), int(os.environ.get("HEDDLE_PLANS", "15")), 10
LIMIT = 1e-5  # relative, of a loss in fp32
KINDS = ("synchronous", "late", "local", "bf16")


def drawn(rng: random.Random, kind: str) -> tuple[dict[str, Any], Job]:
    """A model and a job of one kind, whose parts can be combined."""
    while True:
        config = dict(rng.choice(list(CONFIGS.values())))
        layers = rng.choice((4, 5, 6))
        config |= {"n_layer": layers} if config["model_type"] == "gpt2" else {"num_hidden_layers": layers}
        if config["model_type"] == "mistral":
            config["sliding_window"] = rng.choice((3, 8))
        config["tie_word_embeddings"] = rng.random() < 0.5
        if config["model_type"] == "qwen2":
            config["use_sliding_window"] = False
        schedule, update = rng.choice(NAMES), rng.choice(list(UPDATES))
        pipeline = rng.choice((2, 3) if kind == "late" else (1, 2, 3))
        keys: dict[str, Any] = {
            "tensor": rng.choice((1, 2)),
            "context": rng.choice((1, 1, 2)),
            "context_exchange": rng.choice(("ring", "gather", "all-to-all")),
            "pipeline": pipeline,
            "data": 2 if kind == "local" else rng.choice((1, 2)),
            "microbatch": rng.choice((1, 2)),
            "zero": 0 if kind == "local" else rng.choice((0, 1, 2, 3)),
            "recompute": rng.choice(get_args(Recompute)),
            "schedule": schedule if kind != "late" and pipeline > 1 else "1f1b",
            "virtual": 2 if schedule in ("interleaved", "zb-v", "dualpipev") and pipeline > 1 and kind != "late" else 1,
            "update": update if kind == "late" else "synchronous",
            "local_steps": rng.choice((2, 3)) if kind == "local" else 0,
        }
        keys["sequence"] = keys["tensor"] > 1 and rng.random() < 0.5
        train = Train(
            steps=STEPS,
            global_batch=rng.choice((4, 8)) * keys["data"],
            learning_rate=3e-3,
            warmup=4,
            weight_decay=0.1,
            clip=0.0 if kind == "late" else rng.choice((0.0, 0.5)),
            precision="bf16" if kind == "bf16" else "fp32",
            schedule=rng.choice(("cosine", "linear", "constant")),
        )
        try:
            model = dataclasses.replace(read_config(config), sequence=16)
            job = Job(model=model, data=Data(text="-"), train=train, plan=Plan(**keys))
            job.planned.plan.check(model, train.global_batch, 16)
        except HeddleError:
            continue
        if job.planned.plan.world <= SIZE:
            return config, job


def trained(mesh: Mesh, job: Job, folder: Path) -> list[float]:
    trainer = make_trainer(job, synthetic_tokens(job), mesh)
    trainer.start_from(huggingface_source(folder, mesh))
    losses = [trainer.train_step().loss for _ in range(STEPS)]
    trainer.steps.drain()
    return losses


class Loop:
    """Training as anybody would write it over transformers."""

    def __init__(self, job: Job, config: dict[str, Any], weights: Weights, dtype: torch.dtype = torch.float32) -> None:
        kind = {key: value for key, value in config.items() if key != "architectures"}
        off = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout"), 0.0)
        made = transformers.AutoConfig.for_model(**kind | off, attn_implementation="eager", use_cache=False)
        self.model = transformers.AutoModelForCausalLM.from_config(made).train()
        self.job, self.dtype = job, dtype
        self.tied = bool(made.tie_word_embeddings)
        held = {name: tensor.clone() for name, tensor in weights.items()}
        self.embed = next(name for name in held if name.endswith(("wte.weight", "embed_tokens.weight")))
        # A tied weight is two here, so that its two gradients may be of different ages.
        self.weights = held | ({"lm_head.weight": held[self.embed]} if self.tied else {})
        self.samples = Samples(synthetic_tokens(job), 16, job.train.seed)

    def gradients(self, weights: Weights, first: int, count: int) -> tuple[float, Weights]:
        """Loss and gradients over some samples."""
        ids, targets = (torch.from_numpy(part) for part in self.samples.batch(first, count))
        leaves = {name: tensor.detach().clone().to(self.dtype).requires_grad_() for name, tensor in weights.items()}
        found = functional_call(self.model, leaves, (ids,), tie_weights=False, strict=False).logits
        loss = torch.nn.functional.cross_entropy(found.float().flatten(0, 1), targets.flatten())
        made = torch.autograd.grad(loss, list(leaves.values()))
        return loss.item(), {name: g.float() for name, g in zip(leaves, made, strict=True)}

    def rate(self, step: int) -> float:
        train = self.job.train
        if step < train.warmup:
            return train.learning_rate * (step + 1) / train.warmup
        done = (step - train.warmup) / (train.steps - 1 - train.warmup)
        falling = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[train.schedule]
        last = 1.0 if train.schedule == "constant" else train.final_learning_rate
        return train.learning_rate * (last + (1 - last) * falling)


class Adam:
    """AdamW by its formulas, over named tensors."""

    def __init__(self, loop: Loop, weights: Weights) -> None:
        self.loop, self.weights = loop, weights
        self.m, self.v = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))
        self.count: dict[str, int] = defaultdict(int)

    def step(self, gradients: Weights, step: int, clip: bool = True) -> None:
        train, tied = self.loop.job.train, self.loop.tied
        if tied:  # one parameter
            parts = [gradients.pop(name) for name in ("lm_head.weight", self.loop.embed) if name in gradients]
            gradients |= {self.loop.embed: sum(parts)} if parts else {}  # type: ignore[dict-item]
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients.values()))
        scale = min(1.0, train.clip / norm) if train.clip and clip else 1.0
        rate = self.loop.rate(step)
        for name, gradient in gradients.items():
            g, w = gradient * scale, self.weights[name]
            self.count[name] += 1
            self.m[name] = train.beta1 * self.m[name] + (1 - train.beta1) * g
            self.v[name] = train.beta2 * self.v[name] + (1 - train.beta2) * g * g
            m = self.m[name] / (1 - train.beta1 ** self.count[name])
            v = self.v[name] / (1 - train.beta2 ** self.count[name])
            w.mul_(1 - rate * train.weight_decay * (w.dim() > 1)).sub_(rate * m / (v.sqrt() + train.epsilon))
        if tied:
            self.weights["lm_head.weight"].copy_(self.weights[self.loop.embed])


def plain(loop: Loop) -> list[float]:
    adam, count, losses = Adam(loop, loop.weights), loop.job.train.global_batch, []
    for step in range(STEPS):
        loss, gradients = loop.gradients(loop.weights, step * count, count)
        adam.step(gradients, step)
        losses.append(loss)
    return losses


def late(loop: Loop) -> list[float]:
    """Each chunk applies the gradient that is as old as its delay; the first step is not late."""
    plan, count = loop.job.planned.plan, loop.job.train.global_batch
    delays = LateSchedule(plan.late, plan.pipeline, 1).delays
    layer_chunk = {layer: k for k in range(plan.chunks) for layer in plan.layers_of(k, loop.job.model.layers)}

    def delay(name: str) -> int:
        layer = re.search(r"\.(?:h|layers)\.(\d+)\.", name)
        first = name.endswith(("wte.weight", "wpe.weight", "embed_tokens.weight"))
        return delays[layer_chunk[int(layer[1])] if layer else 0 if first else -1]

    adam, losses, kept = Adam(loop, loop.weights), [], {}
    for step in range(STEPS):
        loss, kept[step] = loop.gradients(loop.weights, step * count, count)
        losses.append(loss)
        old = {name: step - delay(name) if step else 0 for name in kept[step]}
        adam.step({name: kept[of][name] for name, of in old.items() if of >= min(step, 1)}, step)
    return losses


def local(loop: Loop) -> list[float]:
    """DiLoCo: replicas by themselves, and a step of Nesterov's along the mean of what they learned."""
    plan, train = loop.job.planned.plan, loop.job.train
    own = train.global_batch // plan.data
    replicas = [Adam(loop, {name: w.clone() for name, w in loop.weights.items()}) for _ in range(plan.data)]
    before = {name: w.clone() for name, w in loop.weights.items()}
    momentum = {name: torch.zeros_like(w) for name, w in before.items()}
    losses = []
    for step in range(STEPS):
        found = []
        for number, adam in enumerate(replicas):
            loss, gradients = loop.gradients(adam.weights, step * train.global_batch + number * own, own)
            adam.step(gradients, step)
            found.append(loss)
        meets = (step + 1) % plan.local_steps == 0 or step == STEPS - 1
        losses.append(sum(found) / len(found) if meets else found[0])
        for name, start in before.items() if meets else ():
            moved = start - torch.stack([adam.weights[name] for adam in replicas]).mean(0)
            momentum[name].mul_(train.outer_momentum).add_(moved)
            start.sub_(train.outer_learning_rate * (moved + train.outer_momentum * momentum[name]))
            for adam in replicas:
                adam.weights[name].copy_(start)
    return losses


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("number", range(PLANS))
def test_a_random_plan_trains_as_a_loop_over_transformers_does(world, tmp_path, number):
    rng = random.Random(f"{SEED} {number}")
    kind = KINDS[number % len(KINDS)]
    config, job = drawn(rng, kind)
    while kind == "late" and job.plan.update == "features-replay":  # goes through old inputs again: see the grid
        config, job = drawn(rng, kind)
    weights = {name: 0.3 * w if w.dim() > 1 else w for name, w in random_weights(config, number).items()}
    folder = write_folder(tmp_path / "model", config, weights)
    losses, *_ = world.run(trained, job.plan, job, folder)
    loop = Loop(job, config, weights)
    expected = {"late": late, "local": local}.get(kind, plain)(loop)
    off = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
    limit = LIMIT
    if kind == "bf16":  # as far off as a bf16 loop over transformers, and another sample of rounding may be
        low = plain(Loop(job, config, weights, torch.bfloat16))
        limit = 4 * max(abs(a - b) / b for a, b in zip(low, expected, strict=True))
    assert off <= limit, (off, limit, config, job.plan)
    assert abs(losses[-1] - losses[0]) > 100 * LIMIT


SHARED = {
    "ring": ("llama", Plan(context=4, zero=1)),
    "gather": ("mistral", Plan(context=2, context_exchange="gather", data=2, microbatch=2)),
    "all-to-all": ("llama", Plan(context=2, context_exchange="all-to-all", pipeline=2)),
}


@pytest.mark.dist
@pytest.mark.parametrize("exchange", thinned(SHARED, slow=["gather", "ring"]))
def test_ranks_that_share_samples_train_as_a_loop_over_transformers_does(world, tmp_path, exchange):
    """The loop sees whole samples, from the same files, for ten steps."""
    kind, plan = SHARED[exchange]
    config = dict(CONFIGS[kind])
    weights = {name: 0.3 * w if w.dim() > 1 else w for name, w in random_weights(config, 5).items()}
    folder = write_folder(tmp_path / "model", config, weights)
    train = Train(steps=STEPS, global_batch=4, learning_rate=3e-3, warmup=4, weight_decay=0.1, clip=0.5)
    train = dataclasses.replace(train, precision="fp32")
    model = dataclasses.replace(read_config(config), sequence=16)
    job = Job(model=model, data=Data(text="-"), train=train, plan=plan)
    losses, *_ = world.run(trained, plan, job, folder)
    expected = plain(Loop(job, config, weights))
    assert max(abs(a - b) / b for a, b in zip(losses, expected, strict=True)) <= LIMIT
    assert abs(losses[-1] - losses[0]) > 100 * LIMIT
