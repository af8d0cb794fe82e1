"""What of a model Muon updates: the matrices of its layers, each as the model means it."""

from __future__ import annotations

from typing import NamedTuple

from heddle.spec.model import LayerSpec, ModelSpec


class MatrixKind(NamedTuple):
    """Matrices of one shape in one layer."""

    rows: int
    columns: int
    number: int


def matrices_of(layer: LayerSpec) -> list[MatrixKind]:
    """Those of a layer: queries, keys and values apart, and each expert's by itself."""
    queries, keys = layer.heads * layer.head_size, layer.kv_heads * layer.head_size
    found = [
        MatrixKind(queries, layer.hidden, 1),
        MatrixKind(keys, layer.hidden, 2),
        MatrixKind(layer.hidden, queries, 1),
    ]
    widths = [(layer.ffn, 1, 3 if layer.gated else 2)]
    if layer.experts:
        widths = [(layer.expert_ffn, layer.experts, 3), (layer.shared_ffn, 1, 3)]
    return [*found, *(MatrixKind(width, layer.hidden, several * each) for width, several, each in widths if width)]


def matrix_share(model: ModelSpec) -> float:
    """Of all parameters, those in these matrices."""
    kinds = [kind for layer in range(model.layers) for kind in matrices_of(model.layer(layer))]
    return sum(kind.rows * kind.columns * kind.number for kind in kinds) / model.parameters
