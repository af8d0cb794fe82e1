"""A model, its optimizer and its data, and how far they have come together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from heddle.models import Microbatch, Transformer, initialize, materialize
from heddle.models.random import token_keys
from heddle.spec.job import Job
from heddle.spec.plan import Plan
from heddle.train import checkpoint
from heddle.train.checkpoint import Progress
from heddle.train.data import Samples
from heddle.train.device import DTYPES, pick_device
from heddle.train.learning_rate import learning_rate
from heddle.train.optimizer import Optimizer

Tokens = NDArray[Any]


class Trainer:
    """Everything that one optimizer step needs and changes."""

    def __init__(self, job: Job, tokens: Tokens) -> None:
        self.job = job
        self.device = pick_device()
        self.plan = job.plan or Plan(microbatch=job.train.global_batch)
        self.model = self._build_model()
        # A tied output layer is the embedding itself and has no name of its own.
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = Optimizer(self.parameters, job.train)
        self.samples = Samples(tokens, job.sequence, job.train.seed)
        self.step = 0

    def _build_model(self) -> Transformer:
        train = self.job.train
        with torch.device("meta"):
            model = Transformer(self.job.model)
        materialize(model, self.device, DTYPES[train.precision])
        initialize(model, train.seed)
        if train.compile:
            for layer in model.layers.values():
                layer.compile()
        return model

    def train_step(self) -> tuple[float, float]:
        """One optimizer step over one global batch; gives its loss and gradient norm."""
        batch = self.job.train.global_batch
        microbatches = self.plan.microbatches(batch)
        total = torch.zeros((), device=self.device)
        for start in range(self.step * batch, (self.step + 1) * batch, self.plan.microbatch):
            ids, following = self._fetch(self.samples, start)
            loss = self._loss(ids, following, self._dropout_keys(start)) / microbatches
            (loss * self.optimizer.scale.value).backward()
            total += loss.detach()
        norm = self.optimizer.step(learning_rate(self.job.train, self.step))
        self.step += 1
        return float(total), norm

    @torch.no_grad()
    def evaluate(self, tokens: Tokens) -> float | None:
        """Mean loss over the first samples of `tokens`; None where they are fewer than one sample takes."""
        if len(tokens) <= self.job.sequence:
            return None
        samples = Samples(tokens, self.job.sequence, self.job.train.seed)
        batches = min(self.job.train.eval_batches, max(1, samples.count // self.plan.microbatch))
        starts = range(0, batches * self.plan.microbatch, self.plan.microbatch)
        return sum(float(self._loss(*self._fetch(samples, start))) for start in starts) / batches

    def save(self, folder: Path) -> None:
        """Write a checkpoint of the present step."""
        scale = self.optimizer.scale
        progress = Progress(self.step, self.step * self.job.train.global_batch, scale.value, scale.quiet)
        checkpoint.save(folder, progress, self.parameters, self.optimizer.state())

    def load(self, folder: Path) -> None:
        """Take up the newest checkpoint in a folder."""
        newest = checkpoint.newest(folder)
        progress = checkpoint.load_progress(newest)
        tensors = checkpoint.load_tensors(newest / "model.safetensors", self.parameters)
        checkpoint.copy_into(self.parameters, tensors)
        self.optimizer.load_state(checkpoint.load_tensors(newest / "optimizer.safetensors"))
        self.optimizer.scale.value, self.optimizer.scale.quiet = progress.loss_scale, progress.quiet_steps
        self.step = progress.step

    def _fetch(self, samples: Samples, start: int) -> tuple[Tensor, Tensor]:
        """One microbatch of the samples numbered from start: flat token ids, and the ids that follow them."""
        inputs, targets = samples.batch(start, self.plan.microbatch)
        ids, following = (torch.from_numpy(part).flatten().to(self.device) for part in (inputs, targets))
        return ids, following

    def _loss(self, ids: Tensor, following: Tensor, keys: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of predicting what follows, in nats a token."""
        logits = self.model(ids, Microbatch(sequence=self.job.sequence, keys=keys))
        return F.cross_entropy(logits.float(), following)

    def _dropout_keys(self, start: int) -> Tensor | None:
        if not self.job.model.dropout:
            return None
        numbers = torch.arange(start, start + self.plan.microbatch, device=self.device)
        return token_keys(self.job.train.seed, numbers, self.job.sequence)
