"""What lanes and spans are called, by the simulator that predicts them and the recorder that measures them."""

from __future__ import annotations

from enum import StrEnum


class Lane(StrEnum):
    """What of a rank goes on side by side."""

    COMPUTE = "compute"  # forwards, backwards and what they recompute
    SEND = "send"  # messages to other stages
    RECEIVE = "receive"  # waiting for theirs
    TENSOR = "tensor"  # collectives along an axis of the mesh
    CONTEXT = "context"
    EXPERT = "expert"
    DATA = "data"
    EMBEDDING = "embedding"  # the gradient of a tied embedding, over the two stages that hold it
    OPTIMIZER = "optimizer"


# of each axis of the mesh, its lane; sums of gradients are drawn with what replicas exchange
COLLECTIVES = {
    "tensor": Lane.TENSOR,
    "context": Lane.CONTEXT,
    "context_inner": Lane.CONTEXT,  # the two dims of its exchange, where it has two
    "context_outer": Lane.CONTEXT,
    "expert": Lane.EXPERT,
    "data": Lane.DATA,
    "gradients": Lane.DATA,
    "shards": Lane.DATA,
    "mirrors": Lane.DATA,
    "gathers": Lane.DATA,
    "expert_data": Lane.DATA,
    "ends": Lane.EMBEDDING,
}


class Collective(StrEnum):
    """The spans of an axis."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    TURN = "turn of the ring"  # keys and values of one rank, or their gradients, on their way to another


class Phase(StrEnum):
    """The spans of the optimizer."""

    GRADIENTS = "gradients"  # waiting until they are whole
    UPDATE = "update"
    MEETING = "meeting"  # of replicas that take local steps, on the lane of their axis


def message_name(lane: Lane, payload: str) -> str:
    """The span of a message: "send activation"."""
    return f"{lane} {payload}"
