"""What codes promise: with error feedback, all that was sent adds up to all that was meant, within one quantum.

A code rounds, so a plan with codes is not equal to one device, and no proof says so. But what a code could not say of
one step it says with the next. After any number of steps, replicas were told the sum of all gradients but for what is
yet to be said: half a quantum of the last message of each sender, and of whoever told the sum. A quantum is how far
apart two numbers are that a code can say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from heddle.data import Trained
from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh
from heddle.parallel.replicas.bucket import Bucket
from heddle.parallel.replicas.compressed import Ledger
from heddle.spec.job import Job, PlannedJob
from heddle.spec.network.link_codes import codes_used, narrowest
from heddle.spec.plan import Plan
from heddle.training.step.choose import make_trainer


@dataclass(frozen=True)
class Conserved:
    """How far what was told is from what was meant, in quanta, after some steps."""

    codes: tuple[str, ...]
    steps: int
    numbers: int  # whose sums were compared
    most: float  # the largest difference, in quanta of the last messages

    @property
    def holds(self) -> bool:
        """Whether it is at most one."""
        return self.most <= 1


def coded_plan(job: Job, plan: Plan, small: Plan) -> Plan | None:
    """The shrunk plan with the gradients' codes again; None where no gradients travel in codes.

    Where ranks are fewer than they were, nobody knows which group each is in: all links have the narrowest code then.
    """
    codes = codes_used(plan, "gradients")
    if not codes or small.data == 1:
        return None
    if small.world != plan.world or job.network is None:
        return replace(small, compress_gradients=narrowest(codes))  # type: ignore[arg-type]
    by_link = tuple(replace(each, activations=None) for each in plan.codes if each.gradients is not None)
    usual = plan.compress_gradients
    return replace(small, compress_gradients=usual, codes=by_link, devices=plan.devices)


def observe_codes(mesh: Mesh, job: PlannedJob, tokens: Trained) -> Conserved | None:
    """Train under codes, and compare the sums of all steps; None where no link of this plan has a code."""
    trainer = make_trainer(job, tokens, mesh)
    parts = trainer.parallel.gradients.parts
    sums = [part.compressed for part in parts if isinstance(part, Bucket) and part.compressed is not None]
    for each in sums:
        each.ledger = Ledger(each.shares)
    for _ in range(job.train.steps):
        trainer.train_step()
    most, numbers = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for each in sums:
        assert each.ledger is not None
        difference, quantum = each.ledger.compared(each.axis, each.sums is None)
        most = torch.maximum(most, (difference / quantum).max().cpu())
        numbers += difference.numel()
    device = trainer.device
    most, numbers = (x.to(device) for x in (most, numbers))
    all_reduce(most, mesh.world, torch.distributed.ReduceOp.MAX)
    all_reduce(numbers, mesh.world, torch.distributed.ReduceOp.MAX)
    if mesh.rank or not int(numbers):
        return None
    return Conserved(codes_used(job.plan, "gradients"), job.train.steps, int(numbers), float(most))
