"""The map of a job's network: groups, what goes between them in a step, and who waits; measured beside predicted."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import cos, pi, sin
from typing import NamedTuple

from heddle.format import seconds_in_words
from heddle.reporting.subject import Subject
from heddle.simulating.network.link_use import LinkUse, link_uses
from heddle.simulating.network.over_network import OverNetwork
from heddle.spec.axes import Coordinates
from heddle.spec.ranks import coordinates, rank_of
from heddle.trace.lanes import Lane, message_name
from heddle.trace.trace import Trace

SIDE, MARGIN = 420, 70
MOST = 24  # groups that are drawn, and links that are listed


class Seen(NamedTuple):
    """What a trace says of a link between groups: messages between stages, and waiting for them."""

    bytes: float
    waiting: float


def links(subject: Subject) -> str:
    """A map and a table; nothing where a job has no network."""
    prediction = subject.prediction
    if prediction is None or prediction.network is None:
        return ""
    priced = prediction.network
    uses = link_uses(priced)
    trace = subject.measured.trace if subject.measured is not None else None
    seen = measured_links(priced, trace) if trace is not None else {}
    return _map(priced, uses) + _table(uses, seen)


def measured_links(priced: OverNetwork, trace: Trace) -> dict[tuple[str, str], Seen]:
    """Bytes between stages and seconds that ranks waited for them, by the groups they went between."""
    plan, names = priced.plan, [group.name for group in priced.network.groups]

    def group(rank: int) -> str:
        return names[int(priced.group[priced.devices[rank]])]

    ways = {message_name(Lane.RECEIVE, "activation"): -1, message_name(Lane.RECEIVE, "gradient"): +1}
    found: dict[tuple[str, str], Seen] = {}
    for span in trace.spans:
        step = ways.get(span.name)
        if step is None or not 0 <= span.chunk + step < plan.chunks:
            continue
        place = coordinates(plan, span.rank)
        source = rank_of(plan, Coordinates(place.tensor, place.data, plan.rank_of(span.chunk + step)))
        key = group(source), group(span.rank)
        old = found.get(key, Seen(0.0, 0.0))
        found[key] = Seen(old.bytes + span.bytes, old.waiting + span.end - span.start)
    return found


def _map(priced: OverNetwork, uses: list[LinkUse]) -> str:
    groups = priced.network.groups[:MOST]
    middle, radius = SIDE / 2, SIDE / 2 - MARGIN
    at = {
        group.name: (middle + radius * cos(2 * pi * n / len(groups)), middle + radius * sin(2 * pi * n / len(groups)))
        for n, group in enumerate(groups)
    }
    most = max((use.stages + use.replicas for use in uses), default=1.0) or 1.0
    slowest = max(uses, key=lambda use: use.busy, default=None)
    lines = [
        f'<line x1="{at[use.source][0]:.1f}" y1="{at[use.source][1]:.1f}" x2="{at[use.target][0]:.1f}" '
        f'y2="{at[use.target][1]:.1f}" stroke="{"#d55e00" if use is slowest else "#56b4e9"}" '
        f'stroke-width="{1 + 7 * (use.stages + use.replicas) / most:.1f}" stroke-opacity="0.6"/>'
        for use in uses
        if use.source != use.target and use.source in at and use.target in at
    ]
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="18" fill="#0072b2"/><text x="{x:.1f}" y="{y + 5:.1f}" fill="#fff" '
        f'text-anchor="middle">{group.devices}</text><text x="{x:.1f}" y="{y + 36:.1f}" fill="currentColor" '
        f'text-anchor="middle">{escape(group.name)}</text>'
        for group in groups
        for x, y in [at[group.name]]
    ]
    more = f"<p>{len(priced.network.groups) - MOST} more groups are not drawn.</p>" if len(at) == MOST else ""
    return (
        f'<svg viewBox="0 0 {SIDE} {SIDE}" width="{SIDE}" role="img" aria-label="groups and the bytes between '
        f'them">{"".join(lines)}{"".join(dots)}</svg>{more}'
    )


def _table(uses: list[LinkUse], seen: dict[tuple[str, str], Seen]) -> str:
    heads = ["from", "to", "stages MB", "replicas MB", "busy", "waiting"]
    heads += ["measured MB between stages", "measured waiting"] if seen else []
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(use, seen))}</tr>" for use in uses[:MOST])
    head = "".join(f"<th>{each}</th>" for each in heads)
    note = "For one step, all ranks together; busy: the busiest link between the two groups."
    return f'<p>{note}</p><div class="wide" tabindex="0"><table><tr>{head}</tr>{body}</table></div>'


def _cells(use: LinkUse, seen: dict[tuple[str, str], Seen]) -> Iterator[str]:
    yield escape(use.source)
    yield escape(use.target)
    yield f"{use.stages / 1e6:.3g}"
    yield f"{use.replicas / 1e6:.3g}"
    yield seconds_in_words(use.busy)
    yield seconds_in_words(use.waiting)
    if seen:
        measured = seen.get((use.source, use.target))
        yield f"{measured.bytes / 1e6:.3g}" if measured else ""
        yield seconds_in_words(measured.waiting) if measured else ""
