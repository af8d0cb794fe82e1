"""What follows from the degrees of a split and the level of ZeRO, for many plans at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heddle.cost import memory
from heddle.cost import step as stage
from heddle.cost.work import Column, Work
from heddle.spec.cluster import Cluster


class Split(NamedTuple):
    """Of each plan."""

    first_end: Column  # parameters of the first rank beside its layers
    last_end: Column
    states: memory.StateBytes
    exchange: stage.Exchange
    sharing: Column  # ranks that share the optimizer
    slowdown: Column


def split_of(work: Work, cluster: Cluster) -> Split:
    """The same for all plans with these degrees."""
    alone = work.pipeline == 1
    return Split(
        first_end=memory.end_parameters(work, True, alone),
        last_end=memory.end_parameters(work, alone, True),
        states=memory.state_bytes(work),
        exchange=stage.replicas_exchange(cluster, work),
        sharing=np.where(work.zero >= 1, work.replicas, 1),
        slowdown=stage.slowdown(cluster, work),
    )
