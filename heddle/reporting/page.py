"""The page: one HTML file that holds its own style, script and data, and asks nobody for anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from heddle.cost.breakdown import ITEMS
from heddle.reporting import charts, sections
from heddle.reporting.comparison import comparison
from heddle.reporting.experts import experts
from heddle.reporting.links import links
from heddle.reporting.subject import Subject
from heddle.trace.kinds import COLORS

SCRIPTS = ("spans.js", "picture.js", "timeline.js", "curves.js", "page.js")


def render(subjects: Sequence[Subject]) -> str:
    """One subject, or two side by side."""
    assert 1 <= len(subjects) <= 2
    names = [subject.name for subject in subjects]
    body = ""
    if len(subjects) == 2:
        body += _section("compare", "Side by side", comparison(subjects))
    body += _each("summary", "", subjects, lambda subject, _: sections.cards(subject) + sections.notices(subject))
    body += _each("plan", "The plan", subjects, lambda subject, _: sections.plan(subject))
    body += _section(
        "timeline", "Timeline", "".join(_named(subjects, i, charts.timeline(s, i)) for i, s in enumerate(subjects))
    )
    scale = max(map(sections.longest, subjects))  # bars of two subjects can be compared
    body += _each(
        "breakdown", "Where the step's time goes", subjects, lambda subject, _: sections.breakdown(subject, scale)
    )
    if any(subject.prediction is not None and subject.prediction.network is not None for subject in subjects):
        body += _each("links", "Sites and links", subjects, lambda subject, _: links(subject))
    body += _each("memory", "Memory of each stage", subjects, lambda subject, _: sections.memory(subject))
    if any(subject.measured is not None and subject.measured.steps for subject in subjects):
        body += _each("learning", "Loss and speed", subjects, charts.learning)
    if any(subject.measured is not None and subject.measured.experts for subject in subjects):
        body += _each("experts", "Use of experts", subjects, lambda subject, _: _experts(subject))
    body += _each("plans", "Plans in time and memory", subjects, charts.plans)
    body += _each("glance", "Model and cluster", subjects, lambda subject, _: sections.glance(subject))
    data = {
        "kinds": list(COLORS),
        "colors": list(COLORS.values()),
        "timelines": [charts.timeline_data(subject) for subject in subjects],
        "learning": [charts.learning_data(subject.measured) for subject in subjects],
        "plans": [charts.plans_toml(subject) for subject in subjects],
    }
    colors = {f"k-{kind}": color for kind, color in COLORS.items()}
    colors |= {f"c-{name}": item.color for name, item in ITEMS.items()}
    parts = {
        "title": escape(" and ".join(names)),
        "colors": "".join(f".{name}{{background:{color}}}" for name, color in colors.items()),
        "style": _asset("style.css"),
        "body": body,
        "data": _json(data),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
    }
    page = _asset("page.html")
    before, *rest = page.split("{{")
    return before + "".join(parts[name] + text for name, _, text in (piece.partition("}}") for piece in rest))


def _experts(subject: Subject) -> str:
    return "" if subject.measured is None else experts(subject.measured.experts)


def _each(anchor: str, title: str, subjects: Sequence[Subject], part: Callable[[Subject, int], str]) -> str:
    """The same part for each subject, beside one another where there is room."""
    pieces = [_named(subjects, i, part(subject, i)) for i, subject in enumerate(subjects)]
    inside = f'<div class="pair">{"".join(pieces)}</div>' if len(pieces) > 1 else pieces[0]
    return _section(anchor, title, inside)


def _named(subjects: Sequence[Subject], number: int, content: str) -> str:
    """With the name of the subject, where there are two."""
    title = f"<h3>{escape(subjects[number].name)}</h3>" if len(subjects) > 1 else ""
    return f'<div class="subject">{title}{content}</div>'


def _section(anchor: str, title: str, content: str) -> str:
    heading = f"<h2>{title}</h2>" if title else '<h2 class="hidden">In short</h2>'
    return f'<section id="{anchor}">{heading}{content}</section>\n'


def _asset(name: str) -> str:
    return (files("heddle.reporting") / "assets" / name).read_text(encoding="utf-8")


def _json(data: Any) -> str:
    """JSON that no "</script>" in a name can end."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
