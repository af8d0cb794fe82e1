"""A GPT as a careful person writes it by hand, for the peers to make parallel; and what all arms have in common.

Parameters have the names, shapes and initial values of Heddle's model, and samples are Heddle's, so that all arms
train the same model on the same data and their losses must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.data import Samples
from heddle.models.init import initialize_parameter
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer


class Embedding(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.tokens = nn.Embedding(spec.vocab, spec.hidden)
        self.positions = nn.Embedding(spec.sequence, spec.hidden)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions.weight[: ids.shape[1]]


class Attention(nn.Module):
    """One product makes queries, keys and values, head by head, so that a slice of its rows is a slice of heads."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head_size = spec.head_size
        self.qkv = nn.Linear(spec.hidden, 3 * spec.hidden)
        self.out = nn.Linear(spec.hidden, spec.hidden)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x)
        batch, sequence, _ = qkv.shape
        q, k, v = (part.transpose(1, 2) for part in qkv.view(batch, sequence, -1, 3, self.head_size).unbind(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, sequence, -1))


class MLP(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(spec.hidden, spec.ffn), nn.Linear(spec.ffn, spec.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(spec.hidden), nn.LayerNorm(spec.hidden)
        self.attention, self.mlp = Attention(spec), MLP(spec)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """All of it, or some layers of it with the embedding or the head or neither."""

    def __init__(self, spec: ModelSpec, layers: Iterable[int] | None = None, first: bool = True, last: bool = True):
        super().__init__()
        self.embed = Embedding(spec) if first else None
        indices = range(spec.layers) if layers is None else layers
        self.layers = nn.ModuleDict({str(i): Layer(spec) for i in indices})
        self.norm = nn.LayerNorm(spec.hidden) if last else None
        self.head = nn.Linear(spec.hidden, spec.vocab, bias=False) if last else None
        if spec.tied and self.embed is not None and self.head is not None:
            self.head.weight = self.embed.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.layers.values():
            x = layer(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class Setting:
    """What all arms of one case train, on what and how."""

    model: ModelSpec
    plan: Plan
    microbatches: int  # of each replica

    @cached_property
    def job(self) -> Job:
        batch = self.microbatches * self.plan.microbatch * self.plan.data
        train = Train(global_batch=batch, learning_rate=1e-3, schedule="constant")
        return Job(model=self.model, data=Data(text="-"), train=train, plan=self.plan)

    @cached_property
    def tokens(self) -> np.ndarray:
        return np.random.default_rng(0).integers(0, self.model.vocab, 1 << 20).astype("<u2")

    def initialized(self, model: nn.Module) -> nn.Module:
        """The same model with Heddle's initial weights; parts keep the names they have in the whole."""
        for name, parameter in model.named_parameters():
            shape, start = parameter.shape, (0,) * parameter.dim()
            initialize_parameter(parameter.data, name, self.model, self.job.train.seed, shape, start)
        return model

    def groups(self, parameters: Iterable[Tensor]) -> list[dict[str, object]]:
        """Norms and biases are left out of weight decay, as in GPT-2 and all its heirs."""
        parameters = list(parameters)
        decay = self.job.train.weight_decay
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]

    @property
    def adamw(self) -> dict[str, object]:
        """The options of the optimizer."""
        train = self.job.train
        return {
            "lr": train.learning_rate,
            "betas": (train.beta1, train.beta2),
            "eps": train.epsilon,
            "fused": True,
        }

    def optimizer(self, parameters: Iterable[Tensor]) -> torch.optim.AdamW:
        return torch.optim.AdamW(self.groups(parameters), **self.adamw)


class Batches:
    """The microbatches that Heddle's trainer sees, as [batch, sequence]."""

    def __init__(self, setting: Setting, replica: int = 0) -> None:
        job = setting.job
        self.samples = Samples(setting.tokens, job.sequence, job.train.seed)
        self.size, self.batch = setting.plan.microbatch, job.train.global_batch
        self.share = self.batch // setting.plan.data
        self.start = replica * self.share

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Those of the next step."""
        start, self.start = self.start, self.start + self.batch
        return (self._at(first) for first in range(start, start + self.share, self.size))

    def _at(self, first: int) -> tuple[Tensor, Tensor]:
        inputs, targets = self.samples.batch(first, self.size)
        return torch.from_numpy(inputs), torch.from_numpy(targets)


class Heddle:
    """Our arm: the trainer that `heddle train` runs."""

    def __init__(self, setting: Setting, rank: int, world: int, mesh: Mesh | None = None) -> None:
        self.trainer = Trainer(setting.job, setting.tokens, mesh or build_mesh(setting.plan, rank, world))

    def train_step(self) -> float:
        return self.trainer.train_step().loss
