"""What is done about gradients that come late: a late update is larger than the weights it meets can bear."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heddle.parallel.shards import Piece
from heddle.schedule.late import LateSchedule
from heddle.spec.job import PlannedJob, Train


class Correction(NamedTuple):
    """Of one chunk."""

    rate: float  # that its learning rate is multiplied by
    beta1: float


def corrected(train: Train, delay: int, step: int) -> Correction:
    """How a chunk with so late gradients is updated in a step, counted from 0.

    On a quadratic, the largest stable rate falls with one step of delay from 38 over the curvature to 1 at beta1 = 0.9,
    and from 2 to 1 without momentum: so either the rate is divided by the delay (PipeMare, arXiv 1910.05124), or there
    is no momentum, or the step looks ahead; see `_look_ahead`.
    """
    match train.delay_correction:
        case "rate":
            return Correction(1 / max(1, delay), train.beta1)
        case "beta1":
            return Correction(1.0, 0.0 if delay else train.beta1)
        case "nesterov":
            # When a gradient shows what came of an earlier one, as much is left of that one as without delay. Memory is
            # no longer than a third of the steps so far: while beta1^t counts, Adam's m / (1 - beta1^t) is a mean only
            # if beta1 has not changed.
            longer = train.beta1 ** (1 / (1 + delay))
            return Correction(1.0, max(train.beta1, min(longer, 1 - 3 / (step + 1))))
    return Correction(1.0, train.beta1)


class Mending:
    """AdamW's step, and after it what corrections change about weights whose gradients come late.

    A parameter group says in "late" by how many steps its gradients do.
    """

    def __init__(self, train: Train) -> None:
        self.correction = train.delay_correction
        self.before: dict[Tensor, deque[Tensor]] = {}  # the last updates of a parameter, for feedback
        self.rehearsed = False

    def step(self, adam: torch.optim.AdamW) -> None:
        """Update what has a gradient."""
        late = [group for group in adam.param_groups if group["late"]]
        if not late and not self.rehearsed:
            self._rehearse([p for group in adam.param_groups for p in group["params"]])
        due = [(group, p) for group in late for p in group["params"] if p.grad is not None]
        if self.correction == "feedback":
            olds = [p.detach().clone() for _, p in due]
            adam.step()
            for (group, p), old in zip(due, olds, strict=True):
                self._feed_back(p, old, group["late"])
        else:
            adam.step()
            if self.correction == "nesterov":
                for group, p in due:
                    _look_ahead(group, p, adam.state[p])

    def forget(self) -> None:
        """Nothing is late any more."""
        self.before.clear()

    def _rehearse(self, params: list[Tensor]) -> None:
        """Correct numbers that nobody needs, while nothing is late. A device loads a kernel when it first runs, and
        waits for its messages then: in a pipeline that does not drain, for others that may wait for it in turn.
        """
        self.rehearsed = True
        if not params or self.correction not in ("feedback", "nesterov"):
            return
        p = torch.ones(4096, dtype=params[0].dtype, device=params[0].device)
        p.grad = torch.ones_like(p)
        if self.correction == "feedback":
            for _ in range(2):
                self._feed_back(p, p.detach().clone(), 1)
            del self.before[p]
        else:
            state = {"step": torch.ones((), device=p.device), "exp_avg": p.grad, "exp_avg_sq": p.grad}
            _look_ahead({"betas": (0.9, 0.9), "lr": 0.0, "eps": 1e-8, "late": 1}, p, state)

    def _feed_back(self, p: Tensor, old: Tensor, delay: int) -> None:
        """Add what the update of `delay` steps ago, which stood in for this one at the time, turns out to have missed:
        after the error feedback of arXiv 2606.30634, for any delay.
        """
        update = old - p
        kept = self.before.setdefault(p, deque(maxlen=delay))
        if len(kept) == delay:
            p -= update - kept[0]
        kept.append(update)


def _look_ahead(group: dict[str, Any], p: Tensor, state: dict[str, Tensor]) -> None:
    """From Adam's step to Nesterov's, as many steps ahead as will have been made when a gradient of these weights is
    applied: the delay and one.

    A step moves m by (1 - beta1)(g - m). NAdam looks one step ahead, and so do Ajanthan et al. 2025 (arXiv 2505.01099)
    at any delay, with a long memory of beta1 = 0.99; to look ahead by the delay is SpecTrain's (arXiv 1809.02839). On a
    quadratic at a delay of 4 steps and beta1 = 0.98, the largest stable rate times curvature is 1.4, against 0.33 one
    step ahead, 0.25 of Adam, and 0.35 without momentum; at 1 step and 0.95 it is 5.5, against 3.7, 1.0 and 1.0.
    """
    assert p.grad is not None
    beta1, beta2 = group["betas"]
    count = state["step"].to(p.device)
    fresh = min(1.0, (1 + group["late"]) * (1 - beta1))  # no further than to the gradient itself
    now, following = 1 - beta1**count, 1 - beta1 ** (count + 1)
    direction = state["exp_avg"] * ((1 - fresh) / following - 1 / now) + p.grad * (fresh / now)
    p -= group["lr"] * direction / ((state["exp_avg_sq"] / (1 - beta2**count)).sqrt() + group["eps"])


def delay_of(job: PlannedJob) -> Callable[[Piece], int]:
    """By how many updates the gradients of a piece come late."""
    plan = job.plan
    if plan.late is None:
        return lambda _piece: 0
    delays = LateSchedule(plan.late, plan.pipeline, plan.microbatches(job.train.global_batch)).delays
    return lambda piece: delays[chunk_of(piece, job)]


def chunk_of(piece: Piece, job: PlannedJob) -> int:
    """The chunk that a parameter is in; a tied weight is in the first."""
    kind, _, rest = piece.name.partition(".")
    if kind == "embed":
        return 0
    if kind != "layers":
        return job.plan.chunks - 1
    layer = int(rest.partition(".")[0])
    return next(chunk for chunk in range(job.plan.chunks) if layer in job.plan.layers_of(chunk, job.model.layers))
