"""What a plan does with a model's experts, and what that costs, in numbers."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.cost.work import work_of
from heddle.simulating.simulation import Simulation


def expert_reasons(best: Simulation) -> Iterator[str]:
    """Over how many ranks experts are split, how far tokens travel to them, and how uneven that is."""
    plan, model = best.plan, best.job.model
    counts = sorted(model.expert_counts - {0})
    if not counts:
        return
    most = counts[-1]
    if plan.expert == 1:
        yield f"Every replica holds all {most} experts of a layer: no token travels."
        return
    work = work_of(best.job, best.cluster)
    uneven = max(float(one.imbalance) for _, one in work.each_shape)
    inside = min(plan.expert, max(1, best.cluster.devices // plan.tensor))
    away = 1 - inside / plan.expert
    share = float(best.breakdown.expert) / best.step_seconds
    yield (
        f"{plan.expert} ranks share the {most} experts of a layer, {most // plan.expert} each; {away:.0%} of tokens "
        f"leave the node, and their exchange takes {share:.1%} of a step."
    )
    yield (
        f"Tokens do not choose evenly: the fullest of these ranks has {uneven:.2f} times the mean's, and the others "
        "wait for it."
    )


def no_such_degree(best: Simulation, value: int) -> str:
    """Why experts cannot be split over so many ranks."""
    replicas = best.plan.replicas
    if any(count % value for count in best.job.model.expert_counts):
        return f"{max(best.job.model.expert_counts)} experts cannot be split over {value} ranks"
    return f"{value} ranks cannot be grouped out of data × context = {replicas}"
