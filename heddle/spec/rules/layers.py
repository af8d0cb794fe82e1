"""That a plan carries every layer of its model exactly once."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import HeddleError
from heddle.spec.layer_memory import LayerRun, Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.rules.even import even_stages


class LayerFields(Protocol):
    """What of a plan decides over its layers."""

    @property
    def pipeline(self) -> int: ...
    @property
    def virtual(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def stages(self) -> tuple[int, ...]: ...
    @property
    def layers(self) -> tuple[LayerRun, ...]: ...
    @property
    def recompute(self) -> Recompute | tuple[Recompute, ...]: ...


def check_layers(plan: LayerFields, model: ModelSpec) -> None:
    """Refuse a plan that loses a layer, or has a chunk without one."""
    if model.layers < plan.chunks:
        raise HeddleError(
            f"{model.layers} layers cannot fill {_chunks_in_words(plan)} chunks.",
            "Every chunk holds at least one layer.",
            f"Use {_fewer_chunks(plan, model.layers)}.",
        )
    if plan.stages:
        even = list(even_stages(model.layers, plan.chunks))
        if len(plan.stages) != plan.chunks:
            raise HeddleError(
                f"stages lists {len(plan.stages)} chunks, but the plan has {plan.chunks}.",
                f"It needs {_chunks_in_words(plan)} entries.",
                f"As even as can be: stages = {even}.",
            )
        if sum(plan.stages) != model.layers:
            raise HeddleError(
                f"stages = {list(plan.stages)} carries {sum(plan.stages)} layers, but the model has {model.layers}.",
                "Every layer is trained exactly once, and every chunk holds at least one.",
                f"As even as can be: stages = {even}.",
            )
    if plan.layers and plan.layers[-1].numbers.stop > model.layers:
        raise HeddleError(
            f"plan.layers has the range {plan.layers[-1].layers!r}, but the model has {model.layers} layers.",
            "Layers are counted from 0.",
            f"The last one is {model.layers - 1}.",
        )
    if not isinstance(plan.recompute, str) and len(plan.recompute) != model.layers:
        raise HeddleError(
            f"recompute lists {len(plan.recompute)} layers, but the model has {model.layers}.",
            "It is one word for all layers, or one per layer.",
            'For example recompute = "selective".',
        )


def _in_a_ring(plan: LayerFields) -> bool:
    """Whether the first and the last chunk share a rank: there is one more then."""
    return plan.chunks > plan.pipeline * plan.virtual


def _chunks_in_words(plan: LayerFields) -> str:
    if _in_a_ring(plan):
        return f"pipeline + 1 = {plan.chunks}"
    return f"pipeline × virtual = {plan.pipeline} × {plan.virtual}"


def _fewer_chunks(plan: LayerFields, layers: int) -> str:
    """The ways to have no more chunks than layers; several chunks per rank still need a pipeline."""
    if _in_a_ring(plan):
        synchronous = "update = 'synchronous'"
        return f"pipeline = {layers - 1}, or {synchronous}" if layers > 2 else synchronous
    ways = []
    if plan.virtual > 1 and layers >= plan.pipeline:
        ways.append(f"virtual = {layers // plan.pipeline}")
    if layers // plan.virtual > 1 or plan.virtual == 1:
        ways.append(f"pipeline = {layers // plan.virtual}")
    return ", or ".join(ways) or f"virtual = 1 and pipeline = {layers}"
