"""Counts the tokens of each expert while a run goes on, on the devices; ranks add up every so many steps."""

from __future__ import annotations

from pathlib import Path

import torch

from heddle.models.experts import ExpertMLP
from heddle.parallel.collectives import start_sum_numbers
from heddle.runs.experts import EXPERTS, ExpertUses
from heddle.training.step.trainer import Trainer


class UseCounter:
    """The counters of one rank; a model without experts has none."""

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self.trainer, self.path = trainer, folder / EXPERTS
        model = trainer.job.model
        counts = [model.layer(index).experts for index in range(model.layers)] if model.experts else []
        self.layers = [] if trainer.job.train.compile else [index for index, count in enumerate(counts) if count]
        if not self.layers:
            return
        self.used = torch.zeros(len(self.layers), max(counts), dtype=torch.int64, device=trainer.device)
        self.sizes = [counts[index] for index in self.layers]
        for chunk in trainer.parallel.chunks.values():
            for name, layer in chunk.layers.items():
                if isinstance(layer.mlp, ExpertMLP):
                    row = self.used[self.layers.index(int(name))]
                    layer.mlp.experts.note = row[: counts[int(name)]].add_

    def take(self) -> ExpertUses | None:
        """What all ranks counted since they were last asked; every rank asks. None where there are no experts."""
        if not self.layers:
            return None
        mesh, numbers = self.trainer.mesh, self.used.double()
        if mesh.tensor.rank > 0 and not self.trainer.plan.whole_experts:  # tensor ranks see the same tokens
            numbers.zero_()
        rows = start_sum_numbers(numbers, mesh.world).wait().tolist()
        self.used.zero_()
        every = zip(self.layers, rows, self.sizes, strict=True)
        return ExpertUses(self.trainer.step, {layer: [int(n) for n in row[:size]] for layer, row, size in every})

    def write(self, uses: ExpertUses) -> None:
        """Add a line to the run's file."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(uses.line + "\n")
