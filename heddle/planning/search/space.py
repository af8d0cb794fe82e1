"""The legal space: every plan that a model, a batch and a number of devices allow, each exactly once, as columns.

Two plans that would do the same count as one: a pipeline of one stage has no order of work to choose, interleaving one
chunk per rank is 1F1B, and one replica shares nothing with itself. GPipe takes as long as 1F1B and holds more, so it is
among them only where it is asked for; so is every schedule but 1F1B and its interleaved form. Of the many ways to
recompute in some layers and not in others one is there: in as few of each rank's layers as memory allows, its first
ones. How many that are is known once plans are priced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from heddle.cost.plan_columns import exchange_columns
from heddle.planning.fields import default
from heddle.planning.search.expert_space import whole_experts
from heddle.planning.search.given import GIVEN, Fixed
from heddle.planning.search.legal import RECOMPUTE, SOME
from heddle.planning.search.splits import CHOSEN, Keep, legal_splits, plans_of
from heddle.schedule import NAMES, RULES, ChunkPlacement
from heddle.spec.axes import AXES
from heddle.spec.layer_memory import Recompute
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.rules.even import even_stages
from heddle.spec.software import CONTEXT_EXCHANGES


@dataclass(frozen=True)
class Space:
    """Plans as columns of whole numbers; schedules and words of recompute by their place in their lists.

    Where `recompute` is SOME, `recomputed` says in how many layers of each rank, at least.
    """

    layers: int
    columns: dict[str, np.ndarray]
    fixed: Fixed
    floor: np.ndarray  # bytes that ranks hold at least as a mean, where that was asked for
    left_out: int = 0  # legal plans that are not here: too large to be worth a row

    def __len__(self) -> int:
        return len(self.columns["tensor"])

    @property
    def devices(self) -> np.ndarray:
        """How many each plan uses."""
        return np.asarray(prod(self.columns[axis] for axis in AXES))

    def take(self, rows: np.ndarray) -> Space:
        """Some of them."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, floor=self.floor[rows])

    def plan(self, index: int, more: int = 0) -> Plan:
        """One of them, as a plan; with so many more layers of each rank that recompute, where some do."""
        fields: dict[str, Any] = {name: int(column[index]) for name, column in self.columns.items()}
        count = fields.pop("recomputed") + more
        fields["sequence"] = bool(fields["sequence"])
        fields["context_exchange"] = CONTEXT_EXCHANGES[fields["context_exchange"]]
        if fields["context_exchange"] != "2d":
            del fields["context_inner"]
        fields["schedule"] = NAMES[fields["schedule"]]
        fields["stages"] = tuple(self.fixed.get("stages", ()))
        fields |= {name: self.fixed[name] for name in GIVEN if name in self.fixed}
        if fields["recompute"] == SOME:
            stages = fields["stages"] or even_stages(self.layers, fields["pipeline"] * fields["virtual"])
            placement = RULES[fields["schedule"]].placement
            fields["recompute"] = recompute_first(stages, fields["pipeline"], count, placement)
        else:
            fields["recompute"] = self.fixed.get("recompute", RECOMPUTE[fields["recompute"]])
        return Plan(
            **fields, **{name: self.fixed[name] for name in ("offload", "prefetch", "layers") if name in self.fixed}
        )

    def where(self, plan: Plan) -> int | None:
        """The place of a plan, its stages and the layers that it recomputes aside; None where it is not among them."""
        given = [getattr(plan, name) == self._given(name) for name in GIVEN]
        if plan.extra_warmup is not None or plan.schedule not in NAMES or not all(given):
            return None
        wanted: dict[str, Any] = {name: getattr(plan, name) for name in CHOSEN if name != "recompute"}
        whole = self._whole_experts == (wanted.pop("expert_tensor") == 1 < plan.tensor)
        wanted["context_exchange"] = CONTEXT_EXCHANGES.index(plan.context_exchange if plan.context > 1 else "ring")
        if plan.context_exchange != "2d":
            del wanted["context_inner"]
        one_chunk = RULES[plan.schedule].one_chunk if plan.virtual == 1 else ""
        wanted["schedule"] = NAMES.index(one_chunk or plan.schedule)
        if "recompute" not in self.fixed:
            wanted["recompute"] = recompute_number(plan)
        same = [self.columns[name] == value for name, value in wanted.items()]
        found = np.flatnonzero(np.logical_and.reduce([whole, *same]))
        return int(found[0]) if len(found) else None

    @property
    def _whole_experts(self) -> np.ndarray:
        return np.asarray(whole_experts(self.columns))

    @property
    def _replicas(self) -> np.ndarray:
        return np.asarray(self.columns["data"] * self.columns["context"])

    def _given(self, name: str) -> Any:
        return self.fixed[name] if name in self.fixed else default(name)

    def work_columns(self) -> dict[str, Any]:
        """The same as the columns of a `heddle.cost.Work`."""
        names = (*AXES, "expert", "context_exchange", "context_inner", "virtual", "zero", "microbatch")
        words = self.fixed.get("recompute")
        shares: dict[str, Any]
        if words is None or isinstance(words, str):
            some = self.columns["recomputed"] * self.columns["pipeline"] / self.layers
            shares = {
                word: (self.columns["recompute"] == number).astype(float)
                for number, word in enumerate(RECOMPUTE)
                if word != "none"
            }
            shares["full"] = np.maximum(shares["full"], some)
        else:
            shares = {word: list(words).count(word) / self.layers for word in RECOMPUTE if word != "none"}
        return {
            **{name: self.columns[name] for name in names},
            "shard_ranks": np.where(self.columns["zero_within"], self.columns["zero_within"], self._replicas),
            "groups_once": 1,
            "whole_experts": self._whole_experts.astype(np.int32),
            "sequence_parallel": self.columns["sequence"],
            "tensor_chunks": self._given("tensor_chunks"),
            "schedule": self.columns["schedule"],
            **shares,
            **exchange_columns(
                self._given("compress_gradients"), self._given("compress_activations"), self._given("local_steps")
            ),
        }


def legal_space(
    model: ModelSpec,
    sequence: int,
    batch: int,
    counts: Iterable[int],
    fixed: Fixed,
    node: int | None = None,
    keep: Keep | None = None,
) -> Space:
    """Every legal plan for any of these numbers of devices that has the fixed fields; `node`: devices of one.

    Replicas in one node may share what ZeRO-2 and 3 shard by themselves. `keep`: which of the plans are worth a row.
    """
    splits = legal_splits(model, sequence, batch, counts, fixed, node)
    kept = keep(splits) if keep is not None and len(splits) else None
    columns, floor, left_out = plans_of(splits, batch, fixed, not model.own, kept)
    columns["recomputed"] = np.zeros_like(columns["tensor"])
    return Space(model.layers, columns, fixed, floor, left_out)


def recompute_number(plan: Plan) -> int:
    """What a plan recomputes as a number of the column."""
    return RECOMPUTE.index(plan.recompute) if isinstance(plan.recompute, str) else SOME


def recompute_first(
    stages: Sequence[int], pipeline: int, count: int, placement: ChunkPlacement = ChunkPlacement.LOOP
) -> tuple[Recompute, ...]:
    """A word for each layer: each rank recomputes everything in that many of its first layers, nothing in the rest."""
    left, words = [count] * pipeline, list[Recompute]()
    for chunk, layers in enumerate(stages):
        rank = placement.rank_of(chunk, pipeline)
        again = min(layers, left[rank])
        left[rank] -= again
        words.extend("full" if place < again else "none" for place in range(layers))
    return tuple(words)
