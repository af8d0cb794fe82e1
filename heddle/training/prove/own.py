"""Proving a plan of the user's own module: which pattern is behind what differs.

What every module with weights gave in the first microbatch is kept on all ranks, and laid beside what it gives on one
device. The first that differs, in the order of calls, is where a pattern does what was not meant. If the forward pass
is right, the wrong gradient that is nearest to the loss says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from heddle.data import samples_of
from heddle.errors import HeddleError
from heddle.models.own.build import build_on_meta, called
from heddle.models.own.chunk import OwnChunk, calm
from heddle.models.own.describe import describe
from heddle.models.own.files import OwnBatch, read_file
from heddle.models.own.look import first_tensor
from heddle.models.own.patterns import PatternRule, rules_of
from heddle.models.random import key
from heddle.parallel.mesh import Mesh
from heddle.parallel.tensor.patterns import check_split
from heddle.runtime.device import DTYPES
from heddle.spec.job import Job, PlannedJob
from heddle.spec.own import OwnModel
from heddle.spec.plan import Plan, even_stages
from heddle.spec.tables import build
from heddle.training.prove.collect import Array
from heddle.training.step.trainer import Trainer

TOKENS = 16  # per sample, where a module takes more


class ModuleOutput(NamedTuple):
    """What one module gave on one rank for the first microbatch."""

    path: str
    tensor: int  # the rank along that axis
    values: Array


class Outputs:
    """Listens to the modules of a rank until its first microbatch is through."""

    def __init__(self, trainer: Trainer) -> None:
        """Also makes them calm: what is random in them would differ by microbatch, what has a kink by rounding."""
        self.found: list[ModuleOutput] = []
        self.tensor = trainer.mesh.tensor.rank
        chunks = [chunk for chunk in trainer.parallel.chunks.values() if isinstance(chunk, OwnChunk)]
        listens = trainer.mesh.data.rank == 0
        for chunk in chunks:
            chunk.be_calm()
            seen: set[str] = set()
            for path, module in chunk.module.named_modules():
                if listens and any(True for _ in module.parameters(recurse=False)):
                    module.register_forward_hook(self._listener(path, seen))

    def _listener(self, path: str, seen: set[str]) -> Callable[..., None]:
        def after_forward(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if path not in seen and torch.is_grad_enabled():
                seen.add(path)
                given = first_tensor(output).detach().float().cpu().numpy().copy()
                self.found.append(ModuleOutput(path, self.tensor, given))

        return after_forward

    def gathered(self, mesh: Mesh) -> list[ModuleOutput]:
        """On the first rank, those of all."""
        if mesh.world.size == 1:
            return self.found
        every: list[list[ModuleOutput]] | None = [[] for _ in mesh.world.ranks] if mesh.world.rank == 0 else None
        dist.gather_object(self.found, every, dst=mesh.world.ranks[0], group=mesh.host.group)
        return [each for part in every or () for each in part]


def shrunk_model(model: OwnModel) -> tuple[OwnModel, list[str]]:
    """The module as its function makes it for a proof, or as it is."""
    file = read_file(model.module)
    if not file.shrinks or model.small:
        return model, [] if model.small else ["The module is as large as ever: make() takes no argument `small`."]
    given = {"module": model.module, "name": f"{model.name}, small", "sequence": model.sequence}
    return build(OwnModel, describe(file, given | _vocab(model), small=True), "model"), []


def _vocab(model: OwnModel) -> dict[str, int]:
    """Of a small module: its head's, where that says it; else as ever."""
    small = build_on_meta(read_file(model.module), True)
    rows = [m.num_embeddings for m in small.modules() if isinstance(m, nn.Embedding)]
    return {"vocab": min(model.vocab, max(rows, default=model.vocab))}


def shrunk_plan(model: OwnModel, small: OwnModel, plan: Plan, degrees: Plan) -> Plan:
    """The plan with the small module's blocks: uneven stages stay uneven, and layers keep what they do."""
    if small.layers < degrees.chunks:
        raise HeddleError(
            f"The module for a proof has {small.layers} blocks, but the plan has {degrees.chunks} chunks.",
            "Every chunk holds at least one.",
            f"Let make(small=True) have {degrees.chunks + 1}.",
        )
    stages = list(even_stages(small.layers, degrees.chunks))
    if small.layers == model.layers and degrees.chunks == plan.chunks:
        stages = list(plan.stages)
    elif len(set(plan.stages)) > 1 and len(set(stages)) == 1 and stages[0] > 1:
        stages[0], stages[-1] = stages[0] - 1, stages[-1] + 1
    memories = [plan.memory_of(layer * model.layers // small.layers) for layer in range(small.layers)]
    if degrees.tensor > 1:
        check_split(small, degrees.tensor)
    return replace(degrees, stages=tuple(stages)).with_memory(memories)


def exact_gradients(job: Job, tokens: Any) -> dict[str, Array]:
    """The gradients of the first step in double precision, from the user's module and autograd alone."""
    model, train = job.model, job.train
    assert isinstance(model, OwnModel)
    file = read_file(model.module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key("own", train.seed))
        module = called(file, model.small)
    calm(module.to(DTYPES[job.storage]).double())
    samples = samples_of(tokens, job.sequence, train.seed)
    ids, targets = (torch.from_numpy(part) for part in samples.batch(0, train.global_batch))
    total, _ = file.loss(module, OwnBatch(ids, targets))
    (total / ids.numel()).backward()
    return {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}


def pattern_behind(
    job: PlannedJob, parallel: Iterable[ModuleOutput], serial: Iterable[ModuleOutput], wrong: list[str], limit: float
) -> str | None:
    """What looks wrong, by the name of the pattern that says so; None where no pattern can be."""
    model = job.model
    assert isinstance(model, OwnModel)
    if job.plan.tensor == 1:
        return None
    file = read_file(model.module)
    rules = rules_of(file, build_on_meta(file, model.small))
    reference = list(serial)
    order = list(dict.fromkeys(output.path for output in reference))
    whole = {output.path: output.values for output in reference}
    held: dict[str, list[ModuleOutput]] = {}
    for output in parallel:
        held.setdefault(output.path, []).append(output)
    for place, path in enumerate(order):
        if any(_differs(output, whole[path], job.plan.tensor, limit) for output in held.get(path, ())):
            return f"the forward pass differs first at {path}: {_blame(rules, path, order[:place])}"
    if not wrong:
        return None
    nearest = max(wrong, key=lambda name: _place(order, name))
    rule = rules[nearest]
    advice = (
        " (is it used on a part of the heads or columns only? Then it is partial)" if rule.role == "replicated" else ""
    )
    return f"the loss is right, gradients are wrong from {nearest} on: the pattern {rule}{advice}"


def _place(order: list[str], name: str) -> int:
    path = name.rpartition(".")[0]
    return order.index(path) if path in order else -1


def _differs(output: ModuleOutput, whole: Array, tensor: int, limit: float) -> bool:
    """Whether what a rank has is not its part of what one device has; shapes that cannot be compared are not."""
    values, rank = output.values, output.tensor
    theirs = whole[: len(values)]
    for dim in range(values.ndim):
        if values.ndim == theirs.ndim and values.shape[dim] * tensor == theirs.shape[dim] and dim:
            theirs = np.split(theirs, tensor, axis=dim)[rank]
    if values.shape != theirs.shape:
        return False
    scale = float(np.abs(theirs).max(initial=0.0)) or 1.0
    apart = float(np.abs(values - theirs).max(initial=0.0)) / scale
    return not apart <= max(limit, 1e-5) or not math.isfinite(apart)


def _blame(rules: dict[str, PatternRule], path: str, before: list[str]) -> str:
    """The patterns of a module, and of the split ones that came right before it."""

    def of(where: str) -> list[PatternRule]:
        return list(dict.fromkeys(rule for name, rule in rules.items() if name.rpartition(".")[0] == where))

    mine = " and ".join(map(str, of(path)))
    if all(rule.role == "replicated" for rule in of(path)):  # it reads what others made of what is split
        since = next((n for n in reversed(range(len(before))) if {r.role for r in of(before[n])} == {"replicated"}), -1)
        made = dict.fromkeys(rule for where in before[since + 1 :] for rule in of(where))
        return f"the pattern {mine}" + (f", or one before it: {', '.join(map(str, made))}" if made else "")
    fed = [where for where in before[-4:] if any(rule.role == "column" for rule in of(where))]
    if not any(rule.role == "row" for rule in of(path)) or not fed:
        return f"the pattern {mine}"
    named = ", ".join(f"{rule}" for where in fed for rule in of(where))
    return f"the pattern {mine}, or what it reads, made by {named}"
