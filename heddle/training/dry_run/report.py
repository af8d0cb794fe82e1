"""What a dry run found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from heddle.cost.outside import outside
from heddle.data.useful import useful_share
from heddle.format import runs_of, size
from heddle.planning.search.describe import headline
from heddle.simulating.stage_memory import memory_verdict
from heddle.spec.axes import AXES
from heddle.training.dry_run.dry_run import DryRun, KindOfRank
from heddle.training.dry_run.observe import GRADIENTS, CommKind, Tally

BESIDE = {"host": "the host", "disk": "disk"}
ABREAST = 4  # kinds of rank in one table; more would not fit on a line


def show(found: DryRun, as_json: bool, console: Console) -> None:
    """Print what a dry run found."""
    if as_json:
        console.out(json.dumps(facts(found)), highlight=False)
        return
    job, plan = found.job, found.plan
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {plan.world:,} ranks "
        f"({headline(plan)}), {job.precision_in_words}, "
        f"{found.microbatches:,} microbatches per step; {_number(len(found.kinds), 'kind')} of rank",
        soft_wrap=True,
        highlight=False,
    )
    for start in range(0, len(found.kinds), ABREAST):
        console.print(table(found, found.kinds[start : start + ABREAST]), highlight=False)
    most = max(kind.bytes for kind in found.kinds)
    console.print(
        f"Every kind of rank took its step. The fullest holds {size(most, 2)} of tensors at its peak.",
        soft_wrap=True,
        highlight=False,
    )
    if (useful := useful_share(job)) is not None:
        console.print(useful.of_a_step(job.tokens_per_step), soft_wrap=True, highlight=False)
    if job.cluster is not None:
        slack = job.cluster.efficiency.slack
        console.print(
            f"With {slack:.0%} that the allocator cannot use, {memory_verdict(job, job.cluster)}.",
            soft_wrap=True,
            highlight=False,
        )
        if (beside := outside(plan, job.cluster.device, job.model.tied)) is not None:
            console.print(f"Beside tensors, {beside}.", soft_wrap=True, highlight=False)


def table(found: DryRun, kinds: Sequence[KindOfRank]) -> Table:
    """One column a kind of rank; traffic is that of one step."""
    out = Table(box=None, pad_edge=False)
    out.add_column("")
    for kind in kinds:
        out.add_column(_called(kind), justify="right")

    def row(name: str, text: Callable[[KindOfRank], str]) -> None:
        out.add_row(name, *map(text, kinds))

    row("tensor ranks", lambda kind: spans(kind.tensor))
    row("ranks", lambda kind: f"{len(found.ranks(kind)):,}")
    row("layers", lambda kind: " + ".join(map(str, kind.layers)))
    row("parameters", lambda kind: f"{kind.held.parameters:,}")
    row("weights", lambda kind: size(kind.held.parameter_bytes, 2))
    row("gradients", lambda kind: size(kind.peak.gradients, 2))
    row("optimizer", lambda kind: size(kind.held.optimizer_bytes, 2))
    if any(kind.peak.fetched for kind in found.kinds):
        row("fetched weights", lambda kind: size(kind.peak.fetched, 2))
    row("saved per microbatch", lambda kind: " + ".join(size(saved, 2) for saved in kind.saved))
    row("microbatches held", lambda kind: _extremes(kind.peak_stash))
    row("activations", lambda kind: size(kind.peak.saved, 2))
    row("for a moment", lambda kind: size(max(0, kind.temporary), 2))
    row("in all", lambda kind: size(kind.bytes, 2))
    for tier in sorted({name for kind in found.kinds for name in kind.away}):
        row(f"on {BESIDE[tier]}", lambda kind, of=tier: size(kind.away.get(of, 0), 2))  # type: ignore[misc]
    for channel in sorted({channel for kind in kinds for channel in kind.traffic}, key=_order):
        row(f"{channel.axis} {channel.operation}", lambda kind, of=channel: _traffic(kind, of))  # type: ignore[misc]
    return out


def facts(found: DryRun) -> dict[str, Any]:
    """All numbers of a dry run, ready for JSON; sizes are in bytes, traffic is that of one step."""
    return {
        "model": found.job.model.name,
        "model_parameters": found.job.model.parameters,
        "precision": found.job.precision,
        "world": found.plan.world,
        "microbatches": found.microbatches,
        **_useful(found),
        **_verdict(found),
        "kinds": [
            {
                "ranks": found.ranks(kind),
                "tensor": kind.tensor,
                "stages": kind.stages,
                "layers": kind.layers,
                **asdict(kind.held),
                "saved_bytes": kind.saved,
                "peak_stash": kind.peak_stash,
                "peak_saved_bytes": kind.peak.saved,
                "peak_gradient_bytes": kind.peak.gradients,
                "fetched_bytes": kind.peak.fetched,
                "moment_bytes": max(0, kind.temporary),
                "bytes": kind.bytes,
                "traffic": [
                    {"axis": axis, "operation": operation, "count": number, "bytes": size}
                    for (axis, operation), (number, size) in sorted(
                        kind.traffic.items(), key=lambda item: _order(item[0])
                    )
                ],
            }
            for kind in found.kinds
        ],
    }


def _useful(found: DryRun) -> dict[str, float]:
    """Which of a step's tokens are not padding, and which are learned; nothing where that is all."""
    useful = useful_share(found.job)
    return {} if useful is None else {"filled": useful.filled, "learned": useful.learned}


def _verdict(found: DryRun) -> dict[str, Any]:
    """What `heddle simulate` would say, too; nothing without a cluster."""
    if found.job.cluster is None:
        return {"needs_bytes": None, "fits": None, "outside_bytes": None}
    verdict = memory_verdict(found.job, found.job.cluster)
    beside = outside(found.plan, found.job.cluster.device, found.job.model.tied)
    return {"needs_bytes": verdict.needs, "fits": verdict.fits, "outside_bytes": 0 if beside is None else beside.bytes}


def spans(numbers: Iterable[int]) -> str:
    """Ascending numbers in few words: "0-3, 7"."""
    return ", ".join(runs_of(numbers))


def _called(kind: KindOfRank) -> str:
    return f"{'stage' if len(kind.stages) == 1 else 'stages'} {spans(kind.stages)}"


def _extremes(stash: Sequence[int]) -> str:
    low, high = min(stash), max(stash)
    return str(high) if low == high else f"{low} to {high}"


def _order(channel: CommKind) -> tuple[int, str, str]:
    """Messages first, then the axes from the innermost out; that of the pipeline's two ends before the others."""
    inner = [axis for axis in AXES if axis != "pipeline"]
    axes = ("pipeline", inner[0], "ends", *inner[1:], GRADIENTS, "world")
    return axes.index(channel.axis) if channel.axis in axes else len(axes), *channel


def _traffic(kind: KindOfRank, channel: CommKind) -> str:
    number, moved = kind.traffic.get(channel, Tally())
    return f"{number:,}: {size(moved, 2)}" if number else "-"


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
