"""`heddle prove`: does a plan compute what one device computes?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.ranged import COUNT, ranged

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.spec.job import Job, PlannedJob
    from heddle.training.prove.conserved import Conserved
    from heddle.training.prove.prove import Proof


def prove(
    job: Annotated[
        Path, typer.Argument(help="The job file; without a [plan] it is planned first.", metavar="PLAN.toml")
    ],
    steps: Annotated[int, ranged(within=COUNT, help="Steps to train.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: --set plan.tensor=2", metavar="TABLE.KEY=VALUE"),
    ] = None,
) -> None:
    """Check that a plan trains like one device: losses and every gradient, on a shrunken model."""
    from heddle.cli.common import require_torch
    from heddle.spec.changes import load_with_changes

    require_torch("prove")
    loaded = load_with_changes(job, changes or [])

    import json

    from heddle.console import plain_console
    from heddle.runtime import forkserver
    from heddle.training.planned import plan_to_train

    loaded, found = plan_to_train(loaded, dry_run=True)
    forkserver.start_early(loaded.planned.plan)

    from heddle.training.prove.prove import prove as run_proof

    proof = run_proof(loaded, steps)
    if proof is None:  # rank 0 prints
        return
    console = plain_console()
    if as_json:
        console.out(json.dumps(_facts(proof) | {"planned": found is not None}))
    else:
        if found is not None:
            from heddle.planning.best import choice_in_words

            console.print(f"{job} has no [plan]. {choice_in_words(found)}\n", soft_wrap=True)
        _show(proof, loaded, console)
    if not proof.comparison.equal or (proof.conserved is not None and not proof.conserved.holds):
        raise typer.Exit(1)


def _facts(proof: Proof) -> dict[str, Any]:
    import math
    from dataclasses import asdict

    from heddle.spec.tables import to_table

    comparison, small = proof.comparison, proof.shrunk.job
    facts = {
        "equal": comparison.equal,
        "compared_with": proof.compared_with,
        "left_out": list(proof.shrunk.left_out),
        "verdict": proof.verdict,
        "precision": small.precision,
        "unequal_start": list(comparison.unequal_start),
        "max_loss_diff": comparison.max_loss_diff,
        "max_gradient_diff": comparison.max_gradient_diff,
        "expected_rounding": comparison.rounding,
        "seconds": round(proof.seconds, 2),
        "loss_limit": comparison.loss_limit,
        "gradient_limit": comparison.gradient_limit,
        "loss_rounding": proof.loss_rounding,
        "norm_diff": comparison.norm,
        "worst_gradient": comparison.worst,
        "wrong_gradients": comparison.wrong,
        "cause": proof.cause,
        "processes": small.plan.world,
        "not_tried": list(proof.shrunk.notes),
        "experts": None if comparison.routes is None else asdict(comparison.routes),
        "codes": None if proof.conserved is None else {**asdict(proof.conserved), "holds": proof.conserved.holds},
        "plan": to_table(small.plan),
        "model": to_table(small.model),
    }
    # JSON has no word for infinity: what is not a number is null
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in facts.items()}


def _show(proof: Proof, job: Job, console: Console) -> None:
    from rich.table import Table

    from heddle.console import styled

    comparison, small = proof.comparison, proof.shrunk.job
    count = small.plan.world
    where = f"on {count} process{'es' if count > 1 else ''} in {job.precision_in_words}"
    console.print(f"{_degrees(small)}, {where}", soft_wrap=True)
    console.print(f"model shrunk for the proof: {_sizes(job, small)}", soft_wrap=True)
    for note in proof.shrunk.notes:
        console.print(styled(("not tried", "yellow"), f"  {note}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("relative difference")
    for heading in ("largest", "rounding", "allowed"):
        table.add_column(heading, justify="right")
    rows = (
        (f"loss, {small.train.steps} steps", comparison.max_loss_diff, proof.loss_rounding, comparison.loss_limit),
        (
            f"gradients of {len(comparison.gradients)} parameters, step 1",
            max(difference.relative for difference in comparison.gradients.values()),
            comparison.rounding,
            comparison.gradient_limit,
        ),
        ("gradient norm, step 1", comparison.norm, comparison.rounding, comparison.gradient_limit),
    )
    for name, difference, rounding, limit in rows:
        largest = styled((f"{difference:.1e}", "" if difference <= limit else "red"))
        table.add_row(name, largest, f"{rounding:.1e}", f"{limit:.1e}")
    console.print()
    console.print(table)
    console.print(f"worst gradient: {comparison.worst}")
    if comparison.routes is not None:
        console.print(comparison.routes.words, soft_wrap=True)
    if proof.conserved is not None:
        _show_codes(proof.conserved, console)
    console.print()
    color = "red" if not comparison.equal else "yellow" if proof.shrunk.left_out else "green"
    console.print(styled((proof.verdict, color), f" ({proof.seconds:.0f} s)"), soft_wrap=True)
    if comparison.wrong:
        shown = ", ".join(comparison.wrong[:3]) + (", …" if len(comparison.wrong) > 3 else "")
        console.print(
            f"{len(comparison.wrong)} of {len(comparison.gradients)} gradients differ by more than rounding: {shown}",
            soft_wrap=True,
        )


def _show_codes(conserved: Conserved, console: Console) -> None:
    """What codes of gradients promise in place of being exact, and whether they keep it."""
    from heddle.console import styled
    from heddle.errors import listing

    sent = styled(
        f"gradients in {listing(conserved.codes)}: after {conserved.steps} steps the sums sent and the true sums "
        "agree within ",
        (f"{conserved.most:.2f}", "green" if conserved.holds else "red"),
        f" of a quantum, over {conserved.numbers:,} numbers",
    )
    console.print(sent, soft_wrap=True)


def _degrees(small: PlannedJob) -> str:
    """The plan in one line."""
    plan = small.plan
    parts = []
    if plan.tensor > 1:
        parts.append(f"tensor {plan.tensor}" + (" with sequence" if plan.sequence else ""))
    if plan.pipeline > 1:
        chunks = f" with {plan.virtual} chunks per rank" if plan.virtual > 1 else ""
        order = plan.schedule if plan.late is None else f"{plan.update}, updates late"
        parts.append(f"pipeline {plan.pipeline} ({order}{chunks}, layers {'+'.join(map(str, plan.stages))})")
    sharded = f" (ZeRO-{plan.zero})" if plan.zero else ""
    if plan.context > 1:
        parts.append(f"context {plan.context} ({plan.context_exchange})" + sharded * (plan.data == 1))
    if plan.data > 1:
        parts.append(f"data {plan.data}{sharded}")
    if plan.expert > 1:
        parts[-1] += f" with expert {plan.expert}"
    if plan.whole_experts:
        parts[-1] += " with expert_tensor 1"
    recompute = plan.recompute if isinstance(plan.recompute, str) else "mixed"
    more = f"{plan.microbatches(small.train.global_batch)} microbatches of {plan.microbatch}"
    offload = {word for layer in range(small.model.layers) for word in plan.memory_of(layer).offload} | {*plan.offload}
    words = [more, *[f"recompute {recompute}"] * (recompute != "none")]
    words += [f"offload {', '.join(sorted(offload))}"] * bool(offload)
    words += ["updates checked after the fact"] * (plan.check_step == "after")
    return ", ".join([" × ".join(parts or ["one device"]), *words])


def _sizes(job: Job, small: Job) -> str:
    """Which sizes changed, from what to what."""
    fields: tuple[str, ...] = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
    if job.model.own:
        fields = ("layers", "hidden", "parameters", "vocab")
    pairs = [(name, getattr(job.model, name), getattr(small.model, name)) for name in fields]
    pairs += [("sequence", job.sequence, small.sequence), ("batch", job.train.global_batch, small.train.global_batch)]
    return ", ".join(f"{name} {a} → {b}" if a != b else f"{name} {a}" for name, a, b in pairs)
