"""Whether links still are what the network says: measured at every checkpoint, on one pair of ranks for each link.

A plan is for the links that its network describes. Where a message now takes much longer, or much less, another plan
may be better. That is said once, and the job is written again with the links as they are, for `heddle plan`. The run
goes on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import torch
import torch.distributed as dist

from heddle.durable import replace_text
from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh
from heddle.planning.regions.network_search import changed
from heddle.spec.job import PlannedJob, dumps_job
from heddle.spec.plan import Plan
from heddle.spec.ranks import disjoint, groups
from heddle.training.probe.links import LinkEnd

DRIFTED = 2.0  # times as long, or as short, as the network says
LEAST = 2e-3  # seconds by which a message differs at least: less is the processes' own
ENOUGH = 0.05  # seconds of the longest message that is timed
LARGEST = 1 << 24  # bytes of it
GRADIENTS = 1e6  # bytes of a message between replicas, about
FILE = "links-now.toml"

Pair = tuple[int, int]
Speeds = tuple[float, float, float]  # seconds one way, bytes per second there and back
Change = tuple[str, str, float, float]  # two groups, and how many times as late and as fast their links are


class LinkWatch:
    """Measures the links of a plan now and then, on all ranks together; the first one says what it finds."""

    def __init__(
        self, job: PlannedJob, mesh: Mesh, device: torch.device, folder: Path, warn: Callable[[str], None]
    ) -> None:
        self.job, self.mesh, self.device, self.folder, self.warn = job, mesh, device, folder, warn
        self.said = False
        self.rounds: list[list[Pair]] = []
        if job.network is not None and job.train.watch_links and mesh.world.size > 1:
            self.network, self.devices = job.network, job.plan.devices or range(job.plan.world)
            self.rounds = disjoint(links_of(job.plan, self._place))

    def _place(self, rank: int) -> str:
        """The group that a rank is in."""
        return self.network.group_of[self.devices[rank]]

    def look(self) -> None:
        """Measure, and say what has changed; every rank of the run calls it at the same step."""
        if not self.rounds or self.said:
            return
        found = self._measured()
        drifted = list(self._drifted(found))
        self.said = bool(drifted)
        if drifted and self.mesh.rank == 0:
            path = self._write(drifted)
            named = ", ".join(words for _, words in drifted[:3]) + (", …" if len(drifted) > 3 else "")
            self.warn(
                f"Links have changed: {named}. Another plan may be faster: heddle plan {path} -o replanned.toml, then "
                "heddle train replanned.toml --resume when this run is stopped. The current run continues unchanged."
            )

    def _measured(self) -> dict[Pair, Speeds]:
        """Of each pair: seconds of the shortest message one way, and bytes per second there and back."""
        world, pairs = self.mesh.world, [pair for some in self.rounds for pair in some]
        numbers = torch.zeros(len(pairs), 3, dtype=torch.float64)
        for some in self.rounds:
            for pair in some:
                if world.rank not in pair:
                    continue
                leads, row = world.rank == pair[0], numbers[pairs.index(pair)]
                end = LinkEnd(world.ranks[pair[leads]], world.group, self.device)
                latency = end.latency(leads)
                row[0] = latency if leads else 0.0
                for sends in (leads, not leads):
                    if sends:
                        row[1 if leads else 2] = end.send_longer_and_longer(ENOUGH, LARGEST)
                    else:
                        end.receive_until_told()
            dist.barrier(group=world.group)  # so that rounds do not measure each other
        numbers = all_reduce(numbers.to(self.device), world).cpu()
        return {pair: (float(row[0]), float(row[1]), float(row[2])) for pair, row in zip(pairs, numbers, strict=True)}

    def _drifted(self, found: dict[Pair, Speeds]) -> Iterator[tuple[Change, str]]:
        """What links do now: two groups, times as late and as fast as before; and in words."""
        plan, model = self.job.plan, self.job.model
        element = 4 if self.job.precision == "fp32" else 2
        message = plan.tokens(self.job.sequence) * model.hidden * element / plan.tensor
        size = message if plan.pipeline > 1 else GRADIENTS
        delay, bandwidth = self.network.tables()
        for (one, two), (latency, there, back) in found.items():
            for a, b, speed in ((one, two, there), (two, one, back)):
                late, fast = (float(table[self.devices[a], self.devices[b]]) for table in (delay, bandwidth))
                before, now = late + size / fast, latency + size / speed
                if abs(now - before) > LEAST and max(now / before, before / now) > DRIFTED:
                    x, y = self._place(a), self._place(b)
                    way = f"inside {x}" if x == y else f"{x} to {y}"
                    words = f"{way}: {1e3 * before:.3g} ms for a message then, {1e3 * now:.3g} now"
                    yield (x, y, max(latency, 1e-6) / max(late, 1e-6), speed / fast), words

    def _write(self, drifted: list[tuple[Change, str]]) -> Path:
        """The job over the links as they are now, without a plan."""
        network = self.network
        done: set[frozenset[str]] = set()
        for (one, two, late, fast), _ in drifted:
            if frozenset((one, two)) not in done:  # both ways alike, as the one that was found first
                network = changed(network, one, two, late, fast)
                done.add(frozenset((one, two)))
        path = self.folder / FILE
        replace_text(path, dumps_job(replace(self.job, network=network, plan=None, predicted=None)))  # type: ignore[arg-type]
        return path


def links_of(plan: Plan, place: Callable[[int], str]) -> list[Pair]:
    """One pair of ranks for every two groups that exchange something, and for every group inside which some do."""
    found = dict[frozenset[str], Pair]()
    used: list[Pair] = [pair for ranks in groups(plan, "pipeline") for pair in pairwise(ranks)]
    used += [pair for ranks in groups(plan, "data") for pair in combinations(ranks, 2)]
    for a, b in used:
        found.setdefault(frozenset((place(a), place(b))), (min(a, b), max(a, b)))
    return list(found.values())
