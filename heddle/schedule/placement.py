"""Which pipeline rank holds which chunk of the model: the one place that says it."""

from __future__ import annotations

from enum import StrEnum


class ChunkPlacement(StrEnum):
    """How chunks, in model order, are dealt to the ranks of a pipeline."""

    LOOP = "loop"  # 0 … p-1, 0 … p-1: like cards, each rank gets early and late ones (PTD-P §2.2.2)
    V = "v"  # 0 … p-1, p-1 … 0: the first rank has both ends of the model, the last its middle (arXiv 2401.10241 §6)

    RING = "ring"  # 0 … p-1, 0: one chunk more than ranks, and both ends of the model on the first (arXiv 1909.06695)

    def chunks(self, pipeline: int, virtual: int) -> int:
        """How many chunks there are."""
        return pipeline * virtual + (self is ChunkPlacement.RING)

    def rank_of(self, chunk: int, pipeline: int) -> int:
        """The rank that holds a chunk."""
        lap, place = divmod(chunk, pipeline)
        return pipeline - 1 - place if self is ChunkPlacement.V and lap % 2 else place

    def chunks_of(self, rank: int, pipeline: int, virtual: int) -> tuple[int, ...]:
        """The chunks that a rank holds, in model order: one of each lap."""
        if self is not ChunkPlacement.V:
            return tuple(range(rank, self.chunks(pipeline, virtual), pipeline))
        return tuple(lap * pipeline + (pipeline - 1 - rank if lap % 2 else rank) for lap in range(virtual))
