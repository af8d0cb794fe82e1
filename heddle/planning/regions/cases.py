"""Files of networks to plan for: cases, each with groups and links, and a workload.

    {"workload": {"pipeline": 8, "data": 8, "gradient_gb_a_stage": 0.65, "activation_gb_a_batch_and_boundary": 0.47},
     "cases": [{"name": "two-sites", "groups": {"Ohio": 40, "Virginia": 24}, "inside": [1, 5],
                "across": {"Ohio-Virginia": [11, 1.12]}}]}

A pair is [one-way delay in ms, bandwidth in Gbit/s]. Beyond that: `inside` may be a table by group; `across_all` holds
for all groups that `across` does not name; "Ohio-Virginia" and "Virginia-Ohio" may differ; "Ohio:3" is one device; a
case may have a workload of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, divisors, listing, nearest, nearest_number, shorten
from heddle.files import read_json
from heddle.graph.document import Document
from heddle.planning.regions.problem import Problem, problem_from
from heddle.spec.network import DeviceGroup, GroupLink, Network, Speed

MOST_CASES = 1_000
MOST_DEVICES = 1_024  # a step of the search prices a million exchanges of two devices then
LARGEST_GB = 1e6
WORKLOAD = ("pipeline", "data", "gradient_gb_a_stage", "activation_gb_a_batch_and_boundary")
CASE = ("about", "name", "groups", "inside", "across", "across_all", "workload")


@dataclass(frozen=True)
class Case:
    """A network, and what is to be trained over it."""

    network: Network
    pipeline: int
    data: int
    gradient_gb: float  # of one stage
    activation_gb: float  # of a batch, across one boundary between stages

    @property
    def problem(self) -> Problem:
        delay, bandwidth = self.network.tables()
        return problem_from(
            self.network.group_of,
            delay,
            bandwidth,
            stages=self.pipeline,
            replicas=self.data,
            gradients=self.gradient_gb * 1e9,
            activations=self.activation_gb * 1e9,
        )


def read_case(path: Path, name: str | None = None, pipeline: int | None = None, data: int | None = None) -> Case:
    """One case of a file; the only one, if it has no name. `pipeline` and `data` replace the workload's."""
    return case_from(read_json(path, "networks to plan for: cases, and a workload"), path.name, name, pipeline, data)


def case_from(
    content: Mapping[str, Any],
    what: str = "The file",
    name: str | None = None,
    pipeline: int | None = None,
    data: int | None = None,
) -> Case:
    """One case of a parsed file."""
    document = Document(content, what)
    document.need(("cases",), "It lists the networks to plan for.")
    cases = document.tables("cases", MOST_CASES, "case")
    names = [document.word(case.get("name", number), f"case {number}") for number, case in enumerate(cases)]
    if not cases:
        raise document.refuse("it has no cases.", "A case is a network to plan for.", 'Add one to "cases".')
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise document.refuse(
            f"two cases are called {shorten(twice)}.", "Cases go by their names.", "Rename one of them."
        )
    if name is None and len(cases) != 1:
        raise document.refuse(
            f"it has {len(cases)} cases.", "One is planned at a time.", f"Name it with --case: {', '.join(names[:20])}."
        )
    if name is not None and name not in names:
        raise document.refuse(f"it has no case {shorten(name)}.", "Cases go by their names.", nearest(name, names[:50]))
    index = 0 if name is None else names.index(name)
    case, where = cases[index], f"case {names[index]!r}"
    general = document.table(content.get("workload", {}), "the workload")
    own = document.table(case.get("workload", {}), f"the workload of {where}")
    for table, whose, known in (
        (case, where, CASE),
        (general, "the workload", ("about", *WORKLOAD)),
        (own, f"the workload of {where}", ("about", *WORKLOAD)),
    ):
        for key in table:
            if key not in known:
                raise document.refuse(
                    f"{whose} has no key {shorten(key)}.", "Heddle never ignores a key.", nearest(key, known)
                )
    network = _network(document, case, names[index], where)
    workload = {**general, **own}
    return _case(document, network, workload, where, pipeline, data)


def _network(document: Document, case: Mapping[str, Any], name: str, where: str) -> Network:
    sizes = document.table(case.get("groups"), f"'groups' of {where}")
    if not sizes:
        raise document.refuse(f"{where} has no groups.", "Devices come in groups.", 'Write "groups": {"Ohio": 8}.')
    inside = case.get("inside")
    for group in inside if isinstance(inside, Mapping) else ():
        if group not in sizes:
            raise document.refuse(
                f"'inside' of {where} names the group {shorten(group)}.",
                "It has the links inside the case's own groups.",
                nearest(group, sizes),
            )
    groups = []
    for group, count in sizes.items():
        if type(count) is not int:
            raise document.refuse(
                f"{where} has {shorten(count)} devices in {shorten(group)}.",
                "A group has a whole number of devices.",
                f'Write it as "groups": {{"{group}": 8}}.',
            )
        pair = inside.get(group) if isinstance(inside, Mapping) else inside
        groups.append((group, count, None if pair is None else _speed(document, pair, f"'inside' of {where}")))
    pairs = document.table(case.get("across", {}), f"'across' of {where}")
    links = tuple(_links(document, pairs, list(sizes), where))
    across = None if (pair := case.get("across_all")) is None else _speed(document, pair, f"'across_all' of {where}")
    try:
        return Network(
            name=name,
            groups=tuple(DeviceGroup(name=group, devices=count, inside=speed) for group, count, speed in groups),
            links=links,
            across=across,
        )
    except HeddleError as error:
        raise document.refuse(f"{where}: {error.what}", error.why, error.hint) from None


def _links(document: Document, pairs: Mapping[str, Any], groups: list[str], where: str) -> list[GroupLink]:
    """A link for each pair of ends; one way each, where a file says both ways."""
    read = {
        _ends(document, key, groups, where): _speed(document, pair, f"{key!r} of {where}")
        for key, pair in pairs.items()
    }
    if len(read) < len(pairs):
        raise document.refuse(f"'across' of {where} names two ends twice.", "One would be ignored.", "Remove one.")
    links = []
    for (a, b), speed in read.items():
        if (b, a) in read:
            links.append(GroupLink(source=a, target=b, latency_ms=speed.latency_ms, gbps=speed.gbps))
        else:
            links.append(GroupLink(between=(a, b), latency_ms=speed.latency_ms, gbps=speed.gbps))
    return links


def _ends(document: Document, key: str, groups: list[str], where: str) -> tuple[str, str]:
    """The two ends that "Ohio-Virginia" names; names may have hyphens themselves."""
    parts = key.split("-")
    ways = [("-".join(parts[:cut]), "-".join(parts[cut:])) for cut in range(1, len(parts))]
    known = [way for way in ways if all(end.partition(":")[0] in groups for end in way)]
    if len(known) > 1:
        raise document.refuse(
            f"'across' of {where} has the key {shorten(key)}.",
            f"It can be read as {known[0][0]!r} and {known[0][1]!r}, or as {known[1][0]!r} and {known[1][1]!r}.",
            "Rename a group, so that hyphens do not mislead.",
        )
    if not known:
        raise document.refuse(
            f"'across' of {where} has the key {shorten(key)}.",
            "It should name two groups with a hyphen between them.",
            f'Write it as "{groups[0]}-{groups[-1]}". {nearest(ways[0][0] if ways else key, groups[:50])}',
        )
    return known[0]


def _speed(document: Document, value: Any, where: str) -> Speed:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(each) in (int, float) for each in value)
    if not numbers:
        raise document.refuse(
            f"{where} is {shorten(value)}.",
            "A pair is one-way delay in ms and bandwidth in Gbit/s.",
            "Write it as [11, 1.12].",
        )
    try:
        return Speed(latency_ms=float(value[0]), gbps=float(value[1]))
    except HeddleError as error:
        raise document.refuse(f"{where}: {error.what}", error.why, error.hint) from None


def _case(
    document: Document, network: Network, workload: dict[str, Any], where: str, pipeline: int | None, data: int | None
) -> Case:
    devices = network.devices
    if devices > MOST_DEVICES:
        raise document.refuse(
            f"{where} has {devices:,} devices.",
            f"Networks of up to {MOST_DEVICES:,} are planned.",
            "Count each node as one device.",
        )
    if pipeline is not None or data is not None:
        given = pipeline or data or 1
        workload["pipeline"] = pipeline or max(1, devices // given)
        workload["data"] = data or max(1, devices // given)
    for key in WORKLOAD:
        if key not in workload:
            raise document.refuse(
                f"the workload lacks '{key}'.", f"It has {', '.join(WORKLOAD)}.", f'Add "{key}" to "workload".'
            )
    sizes = {key: Document(workload, document.what).whole(key, 1, MOST_DEVICES) for key in ("pipeline", "data")}
    if sizes["pipeline"] * sizes["data"] != devices:
        fit = listing(divisors(devices))
        raise document.refuse(
            f"{where} has {devices} devices, and the workload {sizes['pipeline']} stages × {sizes['data']} replicas.",
            "Every device holds one stage of one pipeline.",
            f"{fit} stages can: for example --pipeline {nearest_number(sizes['pipeline'], divisors(devices))}.",
        )
    gb = [document.number(workload[key], key, "the workload", LARGEST_GB) for key in WORKLOAD[2:]]
    return Case(network, sizes["pipeline"], sizes["data"], gb[0], gb[1])
