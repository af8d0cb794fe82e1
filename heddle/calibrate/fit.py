"""Fitting a cluster's few constants to measured rows.

A constant moves from its value in the cluster given only as far as rows pull it: each has a prior, log-normal around
that value. So rows that say nothing about a constant leave it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import HeddleError
from heddle.spec.cluster import Cluster, Efficiency

Floats = NDArray[np.float64]
Predict = Callable[[Cluster], Floats]  # seconds of every row on a cluster

# How far each constant may lie from the one given, as a factor e^±this; and the most that it can be.
PRIORS: dict[str, tuple[float, float]] = {
    "matmul": (0.15, 1.0),
    "attention": (0.4, 1.0),
    "memory": (0.15, 1.0),
    "gather_gbs": (1.0, np.inf),
    "overlap": (0.1, 1.0),
    "jitter": (0.7, 1.0),
    "launch_us": (1.0, np.inf),
}
# The most that each constant was ever seen at, and which effect a fit beyond it may stand for.
PLAUSIBLE = {
    "matmul": (
        0.9,
        "overlap or skip work that is priced: name their software, or fp8 products and fewer recomputed layers",
    ),
    "attention": (0.85, "use a faster attention kernel than they state (column attn), or a window"),
    "memory": (0.95, "fuse more kernels than is priced (fused_kernels), or have no dropout"),
    "gather_gbs": (45.0, "overlap gathers, or have a faster network than they state (column interconnect)"),
    "overlap": (0.98, "exchange less than is priced: bucket_mb, the bytes of a gradient, or the software's overlap"),
    "jitter": (0.06, "wait for something that is not priced: data loading, a slower network, few large buckets"),
    "launch_us": (120.0, "be held up by the host: data loading, garbage collection, a debugger or a profiler"),
}
NOISE = 0.04  # what a good model misses a row by; a row that is missed by far more counts little (Cauchy's loss)
STEPS = 30
SCALES = (16.0, 4.0, 1.0)  # times NOISE, from where every row pulls to where outliers do not
FREE = 10.0  # times as wide as the priors: then the rows decide alone
HELD = 0.25  # of the mean error, which a prior must cost to be named


@dataclass(frozen=True)
class Fit:
    """A calibrated cluster and how well it does."""

    cluster: Cluster
    constants: dict[str, float]
    errors: Floats  # relative error of each row, in per cent, with all rows known
    left_out: Floats  # the same when the row itself was not used
    before: Floats  # the same with the cluster as it was given
    alone: dict[str, float]  # the constants that the rows ask for without priors
    errors_alone: Floats  # and the errors with these
    loosened: float = 1.0  # how much wider than usual the priors were

    @property
    def mape(self) -> float:
        """Mean error in per cent over the rows that were fitted."""
        return float(np.abs(self.errors).mean())

    @property
    def leave_one_out(self) -> float:
        """Mean error in per cent of a row that the fit has not seen."""
        return float(np.abs(self.left_out).mean())

    @property
    def unfitted(self) -> float:
        """Mean error in per cent with the constants that were given."""
        return float(np.abs(self.before).mean())

    @property
    def helps(self) -> bool:
        """Whether rows that the fit has not seen are predicted better than with the constants that were given.

        By more than chance: the mean gain is above its own standard error.
        """
        gains = np.abs(self.before) - np.abs(self.left_out)
        error = float(gains.std()) / float(np.sqrt(max(1, len(gains) - 1)))
        return float(gains.mean()) > error

    @property
    def held(self) -> tuple[str, ...]:
        """Constants that their priors kept from where the rows pull, if that costs accuracy, and those at a limit."""
        without = float(np.abs(self.errors_alone).mean())
        costly = self.mape - without > HELD * self.mape
        words = []
        for name, value in self.constants.items():
            width, most = PRIORS[name]
            wanted = self.alone[name]
            if wanted > (1 - NOISE) * most and without > 100 * NOISE:
                words.append(f"{name} = {value:.3g} cannot exceed {most:g}, and the rows ask for more")
            elif costly and abs(np.log(wanted / value)) > NOISE:
                factor = float(np.exp(self.loosened * width))
                words.append(
                    f"{name} = {value:.3g} is held back by its prior, a factor of {factor:.3g} either way of the value "
                    f"given; the rows alone ask for {wanted:.3g}, and would then be {without:.1f} % off"
                )
        return tuple(words)

    @property
    def implausible(self) -> tuple[str, ...]:
        """Constants that went where no hardware is, and what may hide behind each."""
        return tuple(
            f"{name} = {value:.3g} is more than such hardware reaches ({most:g}): the rows may {hides}"
            for name, (most, hides) in PLAUSIBLE.items()
            if (value := self.constants.get(name, 0.0)) > most
        )


def fit(
    cluster: Cluster,
    predict: Predict,
    measured: Floats,
    names: Sequence[str],
    weights: Floats | None = None,
    loosen: float = 1.0,
) -> Fit:
    """Fit the named constants so that `predict` meets `measured` seconds; `loosen` widens the priors by that factor.

    Gauss-Newton on the logarithms of constants and of seconds. Leave-one-out by the hat matrix: exact for a linear
    model, and the fit is one at its optimum (Cook and Weisberg 1982, §2.2).
    """
    check_rows(len(measured), names)
    given = [getattr(cluster.efficiency, name) or getattr(Efficiency(), name) for name in names]
    start = np.log(given)
    priors = np.array([PRIORS[name][0] for name in names])
    most = np.log([PRIORS[name][1] for name in names])
    weight = np.ones(len(measured)) if weights is None else weights

    def residuals(theta: Floats) -> Floats:
        return np.log(predict(with_constants(cluster, names, theta)) / measured) / NOISE

    def optimum(widths: Floats) -> Floats:
        """The best of two descents: from the constants given and, where most rows are far off, from where they pull."""
        descent = _Descent(residuals, weight, start, widths, most)
        # A floor that no row reaches has no slope: begin from where one might.
        starts = [start + np.log(factor) * np.equal(names, "launch_us") for factor in (1.0, 5.0)]
        near = descent.from_(min(starts, key=descent.loss))
        if np.median(np.abs(residuals(near))) < 1:
            return near
        # Each of these rows looks like an outlier, and none pulls: first take that much for noise.
        far = near
        for scale in SCALES:
            far = descent.from_(far, scale)
        return min((near, far), key=descent.loss)

    theta = optimum(loosen * priors)
    alone = theta if np.abs(residuals(theta)).mean() < 1 else optimum(FREE * loosen * priors)
    misses, normal, jacobian, robust = _Descent(residuals, weight, start, loosen * priors, most).normal(theta)
    leverage = robust * np.einsum("ij,jk,ik->i", jacobian, np.linalg.inv(normal), jacobian)
    unseen = misses / (1 - np.minimum(leverage, 0.999))
    return Fit(
        cluster=with_constants(cluster, names, theta),
        constants=dict(zip(names, np.exp(theta).tolist(), strict=True)),
        errors=100 * np.expm1(NOISE * misses),
        left_out=100 * np.expm1(NOISE * unseen),
        before=100
        * np.expm1(NOISE * residuals(np.log([getattr(cluster.efficiency, name) + 1e-300 for name in names]))),
        alone=dict(zip(names, np.exp(alone).tolist(), strict=True)),
        errors_alone=100 * np.expm1(NOISE * residuals(alone)),
        loosened=loosen,
    )


@dataclass(frozen=True)
class _Descent:
    """Gauss-Newton with damping, on Cauchy's loss of the rows and the priors of the constants."""

    residuals: Callable[[Floats], Floats]
    weight: Floats
    start: Floats
    widths: Floats
    most: Floats

    def loss(self, theta: Floats, scale: float = 1.0) -> float:
        """What is minimized; residuals below `scale` count as noise."""
        misses = self.residuals(theta) / scale
        prior = (((theta - self.start) / self.widths) ** 2).sum()
        return float((self.weight * np.log1p(misses**2)).sum() + prior / scale**2)

    def normal(self, theta: Floats, scale: float = 1.0) -> tuple[Floats, Floats, Floats, Floats]:
        """Residuals, the matrix of the normal equations, slopes, and what each row counts."""
        misses, jacobian = self.residuals(theta) / scale, _jacobian(self.residuals, theta) / scale
        robust = self.weight / (1 + misses**2)
        return (
            misses,
            jacobian.T @ (robust[:, None] * jacobian) + np.diag(1 / (scale * self.widths) ** 2),
            jacobian,
            robust,
        )

    def from_(self, theta: Floats, scale: float = 1.0) -> Floats:
        """The optimum below a place."""
        damping, best, moved = 1e-3, self.loss(theta, scale), True
        for _ in range(STEPS):
            if moved:
                misses, normal, jacobian, robust = self.normal(theta, scale)
            gradient = jacobian.T @ (robust * misses) + (theta - self.start) / (scale * self.widths) ** 2
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            candidate = np.minimum(theta - step, self.most)
            if np.array_equal(candidate, theta):  # at a limit
                break
            if moved := (found := self.loss(candidate, scale)) < best:
                small = best - found < 1e-6 * best
                theta, best, damping = candidate, found, damping / 3
                if small:
                    break
            else:
                damping *= 5
                if damping > 1e6:
                    break
        return theta


def check_rows(rows: int, names: Sequence[str]) -> None:
    """Refuse more constants than the rows can carry: one for every two rows."""
    if rows < 2 * len(names):
        raise HeddleError(
            f"{rows} row{'s' * (rows != 1)} cannot determine {len(names)} constants ({', '.join(names)}).",
            "Every constant needs at least two rows, or the fit follows their noise.",
            f"Give {2 * len(names)} rows, or fit fewer: --fit {' --fit '.join(names[: max(1, rows // 2)])}."
            if rows >= 2
            else f"Give at least {2 * len(names)} rows.",
        )


def with_constants(cluster: Cluster, names: Sequence[str], theta: Floats) -> Cluster:
    """The cluster with some efficiencies replaced by e^theta."""
    values: dict[str, Any] = {name: float(value) for name, value in zip(names, np.exp(theta), strict=True)}
    return replace(cluster, efficiency=replace(cluster.efficiency, **values))


def _jacobian(function: Callable[[Floats], Floats], at: Floats) -> Floats:
    small = 1e-4
    here = function(at)
    columns = []
    for index in range(len(at)):
        moved = np.zeros(len(at))
        moved[index] = small
        columns.append((here - function(at - moved)) / small)  # downwards: a share may be 1, and no more
    return np.stack(columns, axis=1)


def fit_collectives(sizes: Floats, ranks: Floats, seconds: Floats) -> tuple[float, float, float]:
    """Seconds to start an all-reduce, seconds of a ring's hop, and bytes per second past each rank.

    seconds = start + hops · hop + 2 (n-1)/n bytes / speed as `network.all_reduce` has it, by least squares of relative
    errors.
    """
    hops = 2 * np.minimum(ranks - 1, np.ceil(np.log2(ranks)))
    columns = np.stack([np.ones_like(sizes), hops, 2 * (ranks - 1) / ranks * sizes], axis=1)
    found, *_ = np.linalg.lstsq(columns / seconds[:, None], np.ones_like(seconds), rcond=None)
    start, hop, inverse = (float(value) for value in found)
    return start, hop, 1 / inverse
