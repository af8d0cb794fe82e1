"""What of a model Muon updates – the matrices of its layers, each as the model means it – and under which plans."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from heddle.errors import HeddleError
from heddle.schedule.late import SYNCHRONOUS
from heddle.spec.layer_memory import LayerRun
from heddle.spec.model import LayerSpec, ModelSpec


class MuonFields(Protocol):
    """What of a plan it depends on."""

    @property
    def update(self) -> str: ...
    @property
    def check_step(self) -> str: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def whole_experts(self) -> bool: ...
    @property
    def offload(self) -> tuple[str, ...]: ...
    @property
    def layers(self) -> tuple[LayerRun, ...]: ...


class Optimizing(Protocol):
    """What of a training it depends on."""

    @property
    def optimizer(self) -> str: ...
    @property
    def meeting(self) -> str | None: ...


def check_muon(plan: MuonFields, train: Optimizing, model: ModelSpec) -> None:
    """Refuse what corrects, undoes or moves AdamW's moments, which matrices do not have then; and latent attention."""
    if train.optimizer != "muon":
        return
    if model.kv_latent:
        raise HeddleError(
            f"train.optimizer = 'muon' cannot be combined with kv_latent = {model.kv_latent}.",
            "Latent attention keeps several matrices in one, and Muon makes each orthogonal by itself.",
            "Use optimizer = 'adamw'.",
        )
    offloads = (plan.offload, *(run.offload or () for run in plan.layers))
    leaves = next((word for words in offloads for word in words if word.startswith("optimizer")), None)
    apart = "How replicas that learn by themselves come together was tried with AdamW alone."
    reasons = {
        f"update = '{plan.update}'": (plan.update != SYNCHRONOUS, "Late updates are corrected by AdamW's moments."),
        "check_step = 'after'": (plan.check_step == "after", "An update is undone from a copy of AdamW's moments."),
        f"local_steps = {plan.local_steps}": (plan.local_steps > 0, apart),
        "train.meeting": (train.meeting is not None, apart),
        "expert_tensor = 1": (plan.whole_experts, "Ranks put matrices together that tensor ranks split."),
        f'offload "{leaves}"': (leaves is not None, "Matrices are made orthogonal on the device, whole."),
    }
    for what, (given, why) in reasons.items():
        if given:
            raise HeddleError(
                f"train.optimizer = 'muon' cannot be combined with {what}.",
                why,
                f"Use optimizer = 'adamw', or leave {what} out.",
            )


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
