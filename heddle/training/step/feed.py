"""This replica's microbatches: read from the data, cut to what this rank holds, and sent to the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from heddle.data import AnySamples, Trained, samples_of
from heddle.models.preference import PreferencePairs, document_numbers
from heddle.models.random import token_keys
from heddle.parallel.collectives import all_reduce, slice_of
from heddle.parallel.context.held import Held
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.transformer import MicrobatchInput
from heddle.runtime.device import on_gpu
from heddle.spec.job import PlannedJob


class Batch(NamedTuple):
    """What was read of a microbatch."""

    ids: Tensor
    targets: Tensor
    lengths: list[list[int]]  # of the documents of each sample; see heddle.models.documents


class Feed:
    """Global batches by the number of their first sample; each rank reads its own part of them."""

    def __init__(
        self, job: PlannedJob, tokens: Trained, mesh: Mesh, device: torch.device, note: Callable[[Tensor], None]
    ) -> None:
        """`note` is called with the rewards of each microbatch of pairs that is learned from."""
        self.job, self.plan, self.mesh, self.device, self.note = job, job.plan, mesh, device, note
        self.own = self.plan.samples(job.train.global_batch, mesh.data.rank)  # of a global batch
        self.held = Held(job.sequence, mesh.context, device)  # of each sample
        self.samples = samples_of(tokens, job.sequence, job.train.seed)
        self.drops = bool(job.model.dropout or (job.tune is not None and job.tune.adapters.dropout))

    def first_sample(self, position: int) -> int:
        """Of this replica, in the global batch that starts with sample number `position`."""
        return position + self.own.start

    def read(self, samples: AnySamples, position: int) -> list[Batch]:
        """This replica's microbatches of a global batch, in host memory that a GPU can copy."""
        size, share = self.plan.microbatch, len(self.own)
        first = self.first_sample(position)
        batches = []
        for start in range(first, first + share, size):
            # what follows a token is known before the sample is cut: it may lie on another rank
            ids, following = (self.held.cut(torch.from_numpy(part)) for part in samples.batch(start, size))
            if on_gpu(self.device):
                ids, following = ids.pin_memory(), following.pin_memory()
            batches.append(Batch(ids, following, samples.lengths_of(range(start, start + size))))
        return batches

    def works(self, batches: list[Batch], position: int, samples: AnySamples, training: bool) -> list[MicrobatchInput]:
        """What was read of the global batch that starts with sample number `position`, on its way to the device."""
        works, count = [], self.targets(samples, position, training)
        for number, (inputs, targets, lengths) in enumerate(batches):
            ids, following = (part.to(self.device, non_blocking=True) for part in (inputs, targets))
            start = self.first_sample(position) + number * self.plan.microbatch
            keys = self.dropout_keys(start) if training and self.drops else None
            batch = replace(self.held.microbatch(lengths), keys=keys, count=count)
            if self.job.model.own:  # such a module sees whole samples
                whole = ids.view(-1, self.job.sequence), following.view(-1, self.job.sequence)
                batch = replace(batch, samples=whole, first=start if training else None)
            if self.job.preference is not None:
                batch = replace(batch, pairs=self.pairs(lengths, training))
            works.append(MicrobatchInput(ids, following, batch))
        return works

    def pairs(self, lengths: list[list[int]], training: bool) -> PreferencePairs:
        """Which document each token of a microbatch is of."""
        assert self.job.preference is not None
        numbers, count = document_numbers(lengths, self.job.sequence)
        document = self.held.cut(numbers)
        if on_gpu(self.device):
            document = document.pin_memory()
        pairs = PreferencePairs(
            document.to(self.device, non_blocking=True),
            count,
            self.job.preference.beta,
            note=self.note if training else None,
        )
        if self.plan.context == 1:
            return pairs
        return replace(pairs, summed=partial(all_reduce, axis=self.mesh.context), ranks=self.plan.context)

    def targets(self, samples: AnySamples, position: int, training: bool) -> float | None:
        """How many targets a rank has on average of a microbatch of this global batch; None where every token is one.

        The sum of a microbatch's losses is divided by it, and those of all microbatches and ranks are averaged: so
        every target counts the same, wherever it is. A pipeline's first backward precedes its last forward, so the
        number comes from the data, of which every rank knows what the others read.
        """
        apart = training and bool(self.plan.local_steps)  # replicas that learn by themselves have a mean each
        first, size = position, self.job.train.global_batch
        if apart:
            first, size = self.first_sample(position), len(self.own)
        targets = samples.targets(first, size)
        return None if targets is None else max(targets, 1) * self.plan.microbatch / size / self.plan.context

    def dropout_keys(self, start: int) -> Tensor:
        numbers = torch.arange(start, start + self.plan.microbatch, device=self.device)
        keys = token_keys(self.job.train.seed, numbers, self.job.sequence)
        keys = self.held.cut(keys.view(-1, self.job.sequence))
        return slice_of(keys, self.mesh.tensor) if self.plan.sequence else keys
