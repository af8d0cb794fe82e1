"""Two observations of the same training, laid side by side: how far apart they are, and what that looks like."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heddle.spec.data import Data
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.training.prove.collect import Array, ShardBox, assemble
from heddle.training.prove.routes import RouteComparison, Routes, compare_routes

LOSS_LIMIT = 1e-5  # relative, in full precision over some twenty steps
CANCELED = 1e-6  # of the largest gradient: one that is smaller in full precision is the rounding of a sum of zero
ROUNDINGS = 10  # a gradient may differ by this many times the rounding measured for one device
# In bf16 and fp16 rounding is the error of one device, measured against full or double precision from the same weights:
# e, the largest over steps or parameters. A parallel run has an error of its own, of the same size, so the two are at
# most 2 e apart; and e is one sample of what rounding does, which the next one may well exceed, by less than twice.
LOW_ROUNDINGS = 4
# Of losses where updates are late, which make more of what tensor-parallel sums round: 235 plans were off by up to 8 e.
LATE_ROUNDINGS = 12

TIED, EXPERTS = "embed.tokens.weight", ".mlp.experts."


@dataclass(frozen=True)
class Observed:
    """What one run showed: the loss and the gradient norm of every step, and all gradients of the first."""

    losses: list[float]
    norms: list[float]
    boxes: list[ShardBox] = field(repr=False)  # of every rank: the first step's gradients
    start: list[ShardBox] = field(default_factory=list, repr=False)  # of every rank: the weights before it, in fp32
    outputs: list[Any] = field(default_factory=list, repr=False)  # of own modules, see `own.py`
    routes: Routes = field(default_factory=dict, repr=False)  # of every rank: the experts of the first step's tokens


@dataclass(frozen=True)
class GradientDifference:
    """How the gradient of one parameter compares."""

    relative: float  # largest difference of an element, over the largest absolute value of an element
    factor: float  # by which the one is the other, in the sense of least squares
    cosine: float  # of the angle between the two: 1 where the factor is all there is


@dataclass(frozen=True)
class Comparison:
    """How far apart a parallel run and a serial one are. All differences are relative."""

    losses: list[float]  # by step
    norm: float  # of the whole gradient, first step
    gradients: dict[str, GradientDifference]  # by parameter, in the order of the model; first step
    rounding: float  # of gradients, measured
    loss_limit: float = LOSS_LIMIT
    roundings: int = ROUNDINGS  # that a gradient may be off by
    unequal_start: tuple[str, ...] = ()  # parameters that do not begin with the same bits
    routes: RouteComparison | None = None  # whether tokens went to the same experts, where there are some

    @property
    def max_loss_diff(self) -> float:
        """The largest over the steps."""
        return largest(self.losses)

    @property
    def max_gradient_diff(self) -> float:
        """The largest over the parameters, and over the norm that clipping uses."""
        return largest([self.norm, *(difference.relative for difference in self.gradients.values())])

    @property
    def gradient_limit(self) -> float:
        """What rounding explains."""
        return self.roundings * self.rounding

    @property
    def equal(self) -> bool:
        """Whether both begin with the same weights, and everything else is within what rounding explains."""
        within = self.max_loss_diff <= self.loss_limit and self.max_gradient_diff <= self.gradient_limit
        return within and not self.unequal_start

    @property
    def near_tie(self) -> bool:
        """Whether some tokens went to other experts, and rounding alone may have sent them there."""
        flips = () if self.routes is None else self.routes.flips
        return bool(flips) and max(flips) <= self.gradient_limit

    @property
    def worst(self) -> str:
        """The parameter whose gradient differs most."""
        return max(self.gradients, key=lambda name: self.gradients[name].relative)

    @property
    def wrong(self) -> list[str]:
        """The parameters whose gradients differ by more than rounding, in the order of the model."""
        return [name for name, difference in self.gradients.items() if difference.relative > self.gradient_limit]


def compare(
    parallel: Observed,
    serial: Observed,
    rounding: float,
    low_precision_loss_rounding: float | None = None,
    late: bool = False,
) -> Comparison:
    """Lay a parallel run beside a serial one of the same job.

    `low_precision_loss_rounding` is what one device's losses in bf16 or fp16 are off by; None in full precision.
    `late`: updates are.
    """
    low, most = low_precision_loss_rounding, LATE_ROUNDINGS if late else LOW_ROUNDINGS
    start = compare_boxes(parallel.start, assemble(serial.start))
    return Comparison(
        losses=[relative(a, b) for a, b in zip(parallel.losses, serial.losses, strict=True)],
        norm=relative(parallel.norms[0], serial.norms[0]),
        gradients=compare_boxes(parallel.boxes, assemble(serial.boxes)),
        rounding=rounding,
        loss_limit=LOSS_LIMIT if low is None else max(LOSS_LIMIT, most * low),
        roundings=ROUNDINGS if low is None else LOW_ROUNDINGS,
        unequal_start=tuple(name for name, difference in start.items() if difference.relative > 0),
        routes=compare_routes(parallel.routes, serial.routes) if parallel.routes else None,
    )


def compare_boxes(boxes: Iterable[ShardBox], reference: dict[str, Array]) -> dict[str, GradientDifference]:
    """Every box, of every rank, against its place in the whole; what no rank holds differs infinitely."""
    boxes = list(boxes)
    idle = {box.name: np.zeros(box.shape) for box in boxes if box.name not in reference}  # no loss depends on these
    reference = reference | idle
    held = {name: np.zeros(whole.shape, bool) for name, whole in reference.items()}
    furthest = dict.fromkeys(reference, 0.0)
    products = {name: np.zeros(3) for name in reference}
    for box in boxes:
        ours, theirs = box.values.astype(np.float64), reference[box.name][box.place].astype(np.float64)
        held[box.name][box.place] = True
        furthest[box.name] = largest([furthest[box.name], float(np.abs(ours - theirs).max(initial=0.0))])
        products[box.name] += (ours * theirs).sum(), (theirs * theirs).sum(), (ours * ours).sum()
    scales = {name: float(np.abs(whole).max(initial=0.0)) for name, whole in reference.items()}
    overall = largest(scales.values()) or 1.0
    differences = {}
    for name in reference:
        # what is zero but for rounding, as the gradient of a key's bias is, is held against the others
        scale = scales[name] if scales[name] > CANCELED * overall else overall
        along, theirs_squared, ours_squared = map(float, products[name])
        differences[name] = GradientDifference(
            relative=furthest[name] / scale if held[name].all() else math.inf,
            factor=along / (theirs_squared or 1.0),
            cosine=along / (math.sqrt(theirs_squared * ours_squared) or 1.0),
        )
    return differences


def relative(value: float, reference: float) -> float:
    """The difference as a share of the reference."""
    return abs(value - reference) / (abs(reference) or 1.0)


def largest(values: Iterable[float]) -> float:
    """The maximum, where what is not a number counts as infinite."""
    return max((value if value == value else math.inf for value in values), default=0.0)


def likely_cause(comparison: Comparison, plan: Plan, model: ModelSpec, data: Data | None = None) -> str:
    """What kind of mistake the differences look like: a place to start, not a proof."""
    if comparison.unequal_start:
        return f"the initial weights differ ({comparison.unequal_start[0]} first): they depend on the plan"
    if comparison.near_tie:
        return "experts that are as probable but for rounding were chosen otherwise: prove it with another train.seed"
    # no update has come before the first loss, so that it is no further off than gradients are by rounding
    if comparison.losses[0] > min(comparison.loss_limit, comparison.gradient_limit):
        return _forward_cause(plan, model, data)
    wrong, names = comparison.wrong, list(comparison.gradients)
    if wrong:
        return _backward_cause(comparison, wrong, names, plan, model)
    if comparison.norm > comparison.gradient_limit:
        shared = " (each expert counts once, not on every rank that shares experts)" * (plan.expert > 1)
        return f"every gradient is right, their norm is not: some gradient is counted by two ranks, or by none{shared}"
    step = next(i for i, loss in enumerate(comparison.losses) if not loss <= comparison.loss_limit)
    counts = ", or the number of targets that are learned in a batch" * (data is not None and bool(data.chat))
    return (
        f"the first gradients are right, the loss differs from step {step + 1} on: the update, or who gets it{counts}"
    )


def _forward_cause(plan: Plan, model: ModelSpec, data: Data | None) -> str:
    suspects = []
    if data is not None and data.chat:
        suspects.append("which targets are learned, or their number in a batch")
        if data.pack:
            suspects.append("documents of a sample that see each other")
    if plan.tensor > 1:
        suspects.append("a sum over the tensor axis")
        if model.vocab % plan.tensor:
            suspects.append("the vocabulary's padding in the softmax")
    if plan.pipeline > 1:
        suspects.append("a message between stages")
    if plan.context > 1:
        suspects.append("what ranks that share a sample read of it, or see of each other's keys")
    if plan.expert > 1:
        suspects.append("tokens on their way to experts and back")
    if plan.data > 1:
        suspects.append("which samples each replica reads")
    if model.dropout:
        suspects.append("what dropout depends on")
    return f"the loss of step 1 differs: the forward pass ({', '.join(suspects) or 'microbatches'})"


def _backward_cause(comparison: Comparison, wrong: list[str], names: list[str], plan: Plan, model: ModelSpec) -> str:
    factors, cosines = zip(*((d.factor, d.cosine) for d in comparison.gradients.values()), strict=True)
    if wrong == names and min(cosines) > 0.999 and max(factors) - min(factors) < 1e-3 * abs(factors[0]):
        return f"every gradient is {factors[0]:.4g} times the serial one: scaling, over replicas or microbatches"
    if wrong == [TIED] and model.tied and plan.pipeline > 1:
        return "only the tied embedding differs: the sum over the first and the last stage"
    if plan.expert > 1 and all(EXPERTS in name for name in wrong):
        return _expert_cause(comparison, wrong, plan)
    if plan.tensor > 1 and all(_replicated(name) for name in wrong):
        return "only parameters that tensor ranks hold whole differ: the sum of their gradients over the tensor axis"
    if wrong == names:
        summed = [*["replicas"] * (plan.data > 1), *["ranks that share a sample"] * (plan.context > 1)]
        replicas = f"the sum over {' and '.join(summed)}, or " if summed else ""
        return f"every gradient differs: {replicas}the backward pass from its start"
    losses = ", or a router's losses" if model.balance_loss or model.z_loss else ""
    start = f"the loss is right, gradients are wrong from {wrong[-1]} back to the input"
    return f"{start}: the backward pass behind it{losses}"


def _expert_cause(comparison: Comparison, wrong: list[str], plan: Plan) -> str:
    found = [comparison.gradients[name] for name in wrong]
    factor = found[0].factor
    if min(each.cosine for each in found) > 0.999 and max(abs(each.factor - factor) for each in found) < 1e-3 * factor:
        return (
            f"only experts differ, whose gradients are {factor:.4g} times the serial ones: their scale is that of "
            f"all {plan.replicas} replicas and not of those that hold the same experts"
        )
    return f"only experts differ: the sum over the {plan.expert_replicas} ranks that hold the same ones"


# norms aside: routers, what is added after a row-parallel product, and what makes latents
WHOLE = (
    *("out.bias", "down.bias", "router.weight", "router.bias", "router.choice_bias", "shared_gate.weight"),
    *("experts.down_bias", "attention.down.weight"),
)


def _replicated(name: str) -> bool:
    """Whether tensor ranks each hold all of a parameter."""
    return "norm" in name or name.endswith(WHOLE)
