"""Measured files to a calibrated cluster: training runs, layer times and collectives, each known by its header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from heddle.calibrate.fit import Fit, Floats, Predict, check_rows, fit, fit_collectives
from heddle.calibrate.row_header import read_csv
from heddle.calibrate.row_words import CannotModelError, cluster_of, count_of, nodes_of, number_of
from heddle.calibrate.runs_csv import Row, read_rows, stack
from heddle.cost import step as stage
from heddle.cost.model_columns import model_columns
from heddle.cost.work import Work
from heddle.errors import HeddleError, nearest
from heddle.simulating.closed_form import closed_form
from heddle.spec.cluster import Cluster
from heddle.spec.model import ModelSpec

CONSTANTS = ("matmul", "attention", "memory", "gather_gbs", "overlap", "jitter", "launch_us")
WEIGHT = 16  # a file counts as that many rows at most: a long one does not outvote the others

COLLECTIVES = {"n_ranks", "bytes", "time_ns"}
LAYERS = {"fwd_ms", "bwd_ms", "mode"}


@dataclass(frozen=True)
class MeasuredFile:
    """What one file says: seconds, and how to predict them."""

    path: Path
    seconds: Floats
    predict: Predict
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Calibration:
    """A calibrated cluster, how well it predicts what it was fitted to, and where that came from."""

    cluster: Cluster
    fit: Fit | None  # None: only collectives were given
    files: tuple[MeasuredFile, ...]
    collectives: int  # measured ones
    kept: bool = False  # the constants given predict rows that a fit has not seen better than the fit: they stay


def calibrate(
    cluster: Cluster, paths: Sequence[Path], names: Sequence[str] = CONSTANTS, loosen: float = 1.0
) -> Calibration:
    """Fit a cluster's constants to measured files; `loosen` lets them move that many times farther."""
    for name in names:
        if name not in CONSTANTS:
            raise HeddleError(
                f"There is no constant '{name}'.", "--fit names what is fitted.", nearest(name, CONSTANTS)
            )
    collectives: list[dict[str, str]] = []
    others: list[Path] = []
    for path in paths:
        header, rows = read_csv(path)
        if set(header) >= COLLECTIVES:
            collectives += rows
        else:
            others.append(path)
    if collectives:
        cluster = _with_collectives(cluster, collectives)
    files = tuple(_measured(path, cluster) for path in others)
    if not files:
        return Calibration(cluster, None, (), len(collectives))
    counts = [len(file.seconds) for file in files]
    check_rows(sum(counts), names)
    weights = np.concatenate([np.full(count, min(1.0, WEIGHT / max(count, 1))) for count in counts])

    def predict(candidate: Cluster) -> Floats:
        return np.concatenate([file.predict(candidate) for file in files])

    found = fit(cluster, predict, np.concatenate([file.seconds for file in files]), names, weights, loosen)
    source = (
        f"fitted to {', '.join(f'{count} rows of {path.name}' for count, path in zip(counts, others, strict=True))}"
    )
    if collectives:
        source += f"; links to {len(collectives)} all-reduces"
    if not found.helps:
        return Calibration(cluster, found, files, len(collectives), kept=True)
    efficiency = {
        name: float(f"{value:.3g}") for name, value in found.constants.items()
    }  # more digits than rows can tell would only look exact
    calibrated = replace(cluster, efficiency=replace(cluster.efficiency, **efficiency, source=source))
    return Calibration(calibrated, found, files, len(collectives))


def _with_collectives(cluster: Cluster, rows: list[dict[str, str]]) -> Cluster:
    """The innermost link as measured all-reduces show it."""
    if not cluster.links:
        raise HeddleError(
            f"Cluster '{cluster.name}' has no links.", "Collectives run over links.", "Add [[cluster.links]]."
        )
    try:
        ranks, count, seconds = (
            np.array([number_of(row, name) for row in rows]) for name in ("n_ranks", "bytes", "time_ns")
        )
    except CannotModelError as error:
        raise HeddleError("A measured collective has no number.", f"{error}.", "Fix or remove the row.") from None
    if len(rows) < 6:
        raise HeddleError(
            f"{len(rows)} collectives are too few to fit 3 constants.",
            "Every constant needs at least two.",
            "Measure more.",
        )
    for name, values, least, most in (
        ("n_ranks", ranks, 2, 1e6),
        ("bytes", count, 1, 1e18),
        ("time_ns", seconds, 1, 1e18),
    ):
        odd = np.flatnonzero(~((values >= least) & (values <= most)))
        if len(odd):
            raise HeddleError(
                f"{name} must be in [{least:g}, {most:g}], got {values[odd[0]]:g}.",
                f"Measured collective {odd[0] + 1} has that value.",
                "Fix or remove the row.",
            )
    start, hop, speed = fit_collectives(count, ranks, seconds * 1e-9)
    inner = cluster.links[0]
    link = replace(
        inner,
        latency_us=round(max(hop, 0.0) * 1e6, 2),
        efficiency=round(min(1.0, speed / (inner.gbs * 1e9)), 3),
    )
    efficiency = replace(cluster.efficiency, collective_us=round(max(start, 0.0) * 1e6, 1))
    return replace(cluster, links=(link, *cluster.links[1:]), efficiency=efficiency)


def _measured(path: Path, cluster: Cluster) -> MeasuredFile:
    header, tables = read_csv(path)
    if set(header) >= LAYERS:
        return _layer_times(path, tables, cluster)
    rows, skipped = read_rows(path, fallback=cluster)
    skipped += [(row.id, "its layers differ") for row in rows if row.work.shapes]
    rows = [row for row in rows if not row.work.shapes]
    groups: dict[tuple[str, float, Cluster], list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault((row.work.precision, row.work.spread, _hardware(row, cluster)), []).append(index)
    stacked = [
        (np.array(indices), stack([rows[index].work for index in indices]), hardware)
        for (_, _, hardware), indices in groups.items()
    ]

    def predict(candidate: Cluster) -> Floats:
        seconds = np.empty(len(rows))
        for indices, work, hardware in stacked:
            seconds[indices] = closed_form(work, calibrated_like(hardware, candidate)).seconds
        return seconds

    return MeasuredFile(path, np.array([row.seconds for row in rows]), predict, tuple(skipped))


def _hardware(row: Row, cluster: Cluster) -> Cluster:
    """The cluster being calibrated, with the network that the row states; or what it ran on, if other devices."""
    if row.cluster.device.name != cluster.device.name:
        return replace(row.cluster, nodes=1)  # costs look at the plan's devices, not at the cluster's
    if row.cluster.devices != cluster.devices:
        cluster = nodes_of(cluster, row.cluster.devices)
    links = cluster.links
    if row.network is not None and len(links) > 1:
        links = (*links[:-1], replace(links[-1], gbs=row.network))
    return replace(cluster, device=row.cluster.device, links=links, nodes=1)


def calibrated_like(cluster: Cluster, other: Cluster) -> Cluster:
    """A cluster with the constants of another: its efficiencies, and those of its links, innermost first."""
    links = [
        replace(link, efficiency=known.efficiency, latency_us=known.latency_us)
        for link, known in zip(cluster.links, other.links, strict=False)
    ]
    return replace(cluster, efficiency=other.efficiency, links=(*links, *cluster.links[len(links) :]))


def _layer_times(path: Path, tables: list[dict[str, str]], cluster: Cluster) -> MeasuredFile:
    """Forward and backward of one layer, in the modes of Table 4 of arXiv 2205.05198."""
    works, seconds, skipped = [], [], []
    if not tables:
        raise HeddleError(f"{path} has no rows.", "It only has a header.", "Add measured layers.")
    for number, row in enumerate(tables, 1):
        try:
            layers, hidden, heads, sequence = (count_of(row, name) for name in ("layers", "hidden", "heads", "seq"))
            model = ModelSpec(layers=layers, hidden=hidden, heads=heads, sequence=sequence, vocab=128, dropout=0.1)
            batch, tensor, mode = count_of(row, "mbs"), count_of(row, "tp"), row.get("mode") or ""
            taken = number_of(row, "fwd_ms") / 1e3, number_of(row, "bwd_ms") / 1e3
            if not min(taken) > 0:
                raise CannotModelError("a layer takes some time")
        except (CannotModelError, HeddleError) as error:
            skipped.append((f"row {number}", str(error).replace("\n", " ")))
            continue
        works.append(
            Work(
                **model_columns(model),
                batch=batch,
                microbatch=batch,
                tensor=tensor,
                precision="fp16",
                fused=0,
                stops_early=0,
                sequence_parallel=int("sequence" in mode),
                full=float("full" in mode),
                selective=float("selective" in mode),
            )
        )
        seconds.append(taken)
    if not works:
        raise HeddleError(f"No row of {path} can be modeled.", f"{skipped[0][0]}: {skipped[0][1]}.", "Fix its rows.")
    try:
        hardware = replace(calibrated_like(cluster_of(tables[0]), cluster), nodes=1)
    except CannotModelError as error:
        raise HeddleError(f"{path}: {error}.", "Its first row names the GPU.", "Name one that has a preset.") from None
    work = stack(works)

    def predict(candidate: Cluster) -> Floats:
        price = stage.layer_cost(calibrated_like(hardware, candidate), work)
        return np.concatenate([price.forward, price.backward + stage.recompute_seconds(work, price)])

    return MeasuredFile(path, np.array(seconds).T.ravel(), predict, tuple(skipped))
