"""The user's own module under a plan: its chunks, split over tensor ranks by patterns, and how its weights begin."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from heddle.errors import HeddleError
from heddle.models.own.build import build
from heddle.models.own.chunk import OwnChunk, holds
from heddle.models.own.describe import seen_in
from heddle.models.own.files import read_file
from heddle.models.own.initial import InitialWeights
from heddle.models.own.look import ParameterUse
from heddle.models.own.patterns import rules_of
from heddle.parallel.mesh import Mesh
from heddle.parallel.parameter_layout import place_of, set_place
from heddle.parallel.tensor.patterns import check_split, split_by_patterns
from heddle.spec.own import OwnModel
from heddle.spec.plan import Plan


class OwnChunks:
    """This pipeline rank's chunks, split but without memory, and how the weights begin."""

    def __init__(
        self, spec: OwnModel, plan: Plan, mesh: Mesh, seed: int, _tune: None = None, _frozen_all: bool = False
    ) -> None:
        file = read_file(spec.module)
        self.initial = InitialWeights(file, build(file, spec.small), seed, spec.small)
        seen, whole = seen_in(spec), self.initial.module
        rules = rules_of(file, whole) if mesh.tensor.size > 1 else {}
        if rules:
            check_split(spec, mesh.tensor.size)
        held = holders(plan, spec, seen.uses, [name for name, _ in whole.named_parameters()])
        self.chunks: dict[int, OwnChunk] = {}
        for number in plan.chunks_of(mesh.pipeline.rank):
            layers = plan.layers_of(number, spec.layers)
            chunk = OwnChunk(file, build(file, spec.small), seen, layers.start, layers.stop, seed)
            if rules:
                split_by_patterns(chunk.module, rules, file.divide, mesh.tensor)
            for name, parameter in chunk.named_weights():
                place = place_of(parameter)
                here = [each for each in held[name] if plan.rank_of(each) == mesh.pipeline.rank]
                ends = {"ends"} if len(here) < len(held[name]) else set()
                set_place(parameter, replace(place, partial=place.partial | ends, uses=len(here)))
            self.chunks[number] = chunk

    def share(self, number: int, device: torch.device, dtype: torch.dtype) -> None:
        """Once a chunk has memory: let it share what an earlier one of this rank has, and put its buffers there."""
        chunk = self.chunks[number]
        earlier = [other for other in self.chunks if other < number]
        known = {name: p for other in reversed(earlier) for name, p in self.chunks[other].named_weights()}
        shared = {parameter: known[name] for name, parameter in chunk.named_weights() if name in known}
        for module in chunk.modules():
            for name, parameter in module._parameters.items():
                if parameter in shared:
                    module._parameters[name] = shared[parameter]
        chunk.reset(device, dtype)

    def fill(self, target: Tensor, name: str, shape: torch.Size, offset: tuple[int, ...]) -> None:
        """Give a box of a parameter its initial value."""
        self.initial.fill(target, name, shape, offset)


def holders(plan: Plan, spec: OwnModel, uses: dict[str, set[ParameterUse]], names: list[str]) -> dict[str, list[int]]:
    """The chunks that need each parameter; refused where stages would share one that are not the two ends."""
    bounds = [plan.layers_of(chunk, spec.layers) for chunk in range(plan.chunks)]
    last = plan.chunks - 1
    found = {}
    for name in names:
        used = uses.get(name, set())
        found[name] = [k for k, own in enumerate(bounds) if holds(used, own.start, None if k == last else own.stop)]
        ranks = {plan.rank_of(chunk) for chunk in found[name]}
        if len(ranks) > 1 and (ranks != {0, plan.last_rank} or plan.last_rank == 0):
            raise HeddleError(
                f"{name} is used by the stages {sorted(ranks)}.",
                "Stages hold what they use, and only the first and the last can share a weight: their gradients are "
                "summed.",
                "Use pipeline = 1, or fewer stages, so that one of them has all blocks that share it.",
            )
        if len(found[name]) > 1 and len(ranks) == 1 and plan.zero > 1:
            raise HeddleError(
                f"{name} is used by two chunks of one rank, which zero = {plan.zero} cannot gather for both.",
                "A sharded weight is let go when its chunk is done.",
                "Use zero = 1, or virtual = 1.",
            )
    return found
