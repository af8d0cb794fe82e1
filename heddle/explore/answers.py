"""What the page shows for some choices: ranked plans, and of one its timeline, time and memory.

The parts are those of `heddle report`, so that a number is the same wherever it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

from heddle.errors import HeddleError
from heddle.explore.choices import ChoiceError, PageChoices, read_choices
from heddle.format import GIB, duration, short_figures
from heddle.planning.best import best
from heddle.planning.request import PlanRequest
from heddle.planning.search.describe import in_words
from heddle.planning.search.explain import described
from heddle.planning.search.search import Search
from heddle.reporting import charts, sections
from heddle.reporting import html as text
from heddle.reporting.comparison import comparison
from heddle.reporting.subject import Subject
from heddle.simulating.simulation import Simulation
from heddle.spec.job import Job
from heddle.spec.tables import to_table, to_toml

DOUBLINGS = (0.25, 0.5, 1, 2, 4)  # of the nodes, in the curve of scaling


def answer(given: Any, base: Mapping[str, Any]) -> dict[str, Any]:
    """For `POST /plan`; a mistake is an answer, too."""
    try:
        return _answer(read_choices(given, base))
    except HeddleError as error:
        return {"error": _told(error, given)}


def _answer(choices: PageChoices) -> dict[str, Any]:
    found = best(choices.job, choices.request)
    assert isinstance(found, Search), "a page has no network"
    chosen = found.plans[min(choices.selected, len(found.plans) - 1)]
    subjects = [_subject(chosen, found)]
    compared = ""
    if choices.other is not None and choices.other < len(found.plans) and found.plans[choices.other] is not chosen:
        subjects.append(_subject(found.plans[choices.other], found))
        compared = comparison(subjects)
    scale = max(map(sections.longest, subjects))
    return {
        "facts": found.to_json(price=choices.price),
        "summary": _summary(choices, found, chosen),
        "pinned": _pinned(choices, found),
        "parts": {
            "table": _table(found, choices),
            "cards": sections.cards(subjects[0]) + _money(choices, found, chosen),
            "words": sections.notices(subjects[0]) + text.listed(described(chosen)),
            "timeline": charts.timeline(subjects[0], 0),
            "breakdown": "".join(sections.breakdown(subject, scale) for subject in subjects),
            "memory": sections.memory(subjects[0]),
            "front": charts.plans(subjects[0], 0),
            "compare": compared,
        },
        "timelines": [charts.timeline_data(subjects[0])],
        "plans": charts.plans_toml(subjects[0]),
        "job": job_file(chosen),
    }


def scaling(given: Any, base: Mapping[str, Any]) -> dict[str, Any]:
    """For `POST /scaling`: the same job on fewer and on more nodes, each with its own best plan."""
    try:
        choices = read_choices(given, base)
    except HeddleError as error:
        return {"error": _told(error, given)}
    cluster = choices.job.cluster
    if cluster is None:
        return {"points": []}
    counts = sorted({max(1, round(share * cluster.nodes)) for share in DOUBLINGS})
    points = []
    for nodes in counts:
        job = replace(choices.job, cluster=replace(cluster, nodes=nodes))
        request = PlanRequest(top=1, fixed=choices.request.fixed, memory_gib=choices.request.memory_gib, by_layer=False)
        try:
            found = best(job, request).best
        except HeddleError:  # nothing fits so few, or the batch does not feed so many
            continue
        points.append(
            {
                "nodes": nodes,
                "devices": nodes * cluster.devices,
                "tokens_per_second": found.tokens_per_second,
                "mfu": found.mfu,
                "plan": in_words(found.plan),
            }
        )
    return {"points": points}


def job_file(chosen: Simulation) -> str:
    """A job that `heddle simulate` and `heddle train` read, with the plan that is shown."""
    job = chosen.job
    tables: dict[str, Any] = {"model": to_table(job.model), "train": to_table(job.train)}
    if job.cluster is not None:
        tables["cluster"] = to_table(job.cluster)
    return to_toml(tables | {"plan": to_table(job.plan)})


def _subject(found: Simulation, search: Search) -> Subject:
    return Subject(in_words(found.plan), found.job, found, search, None)


def _summary(choices: PageChoices, found: Search, chosen: Simulation) -> str:
    job: Job = choices.job
    assert job.cluster is not None
    return (
        f"{job.model.name}: {job.model.parameters:,} parameters on {chosen.plan.world:,} × {job.cluster.device.name}; "
        f"{found.considered:,} legal plans, {found.feasible:,} fit."
    )


def _pinned(choices: PageChoices, found: Search) -> str:
    """What pins cost: the same search without them."""
    if not choices.request.fixed:
        return ""
    free = best(choices.job, replace(choices.request, fixed={}, top=1)).best
    slower = found.best.step_seconds / free.step_seconds - 1
    pins = ", ".join(f"{name} = {value}" for name, value in choices.request.fixed.items())
    if slower < 0.0005:
        return f"With {pins} nothing is lost."
    return (
        f"With {pins} a step takes {text.seconds(found.best.step_seconds)}, {slower:.1%} longer than with "
        f"{in_words(free.plan)} ({text.seconds(free.step_seconds)})."
    )


def _table(found: Search, choices: PageChoices) -> str:
    """The ranked plans; a button shows one, a box lays it beside the one that is shown."""
    rows = []
    for number, choice in enumerate(found.choices):
        each = choice.best
        shown = number == choices.selected
        box = (
            f'<input type="radio" name="other" data-other="{number}" aria-label="compare with plan {number + 1}"'
            f"{' checked' * (number == choices.other)}{' disabled' * shown}>"
        )
        pressed = str(shown).lower()
        rows.append(
            (
                f'<button type="button" data-select="{number}" aria-pressed="{pressed}">{number + 1}</button>',
                escape(in_words(each.plan)),
                text.seconds(each.step_seconds),
                text.number(each.tokens_per_second),
                text.percent(each.mfu),
                text.gib(each.worst / GIB),
                text.gib((each.limit - each.worst) / GIB),
                box,
            )
        )
    head = ["#", "plan", "a step", "tokens/s", "MFU", "GiB", "free", "compare"]
    return text.table(head, rows, "The best plans, each simulated action by action", words=2)


def _money(choices: PageChoices, found: Search, chosen: Simulation) -> str:
    days = duration(86_400 * chosen.days(found.tokens))
    costs = "" if choices.price is None else f" and ${short_figures(chosen.dollars(found.tokens, choices.price))}"
    return f'<p class="money">{short_figures(found.tokens)} tokens take {escape(days)}{escape(costs)}.</p>'


def _told(error: HeddleError, given: Any) -> dict[str, Any]:
    """An error in its three parts, and the field that it is shown beside."""
    field = error.field if isinstance(error, ChoiceError) else ""
    if not field and isinstance(given, dict):
        words = f"{error.what} {error.why}"
        named = [name for name in (*given, *(given.get("pins") or {})) if isinstance(name, str) and name in words]
        field = max(named, key=len, default="")
    return {"what": error.what, "why": error.why, "hint": error.hint, "field": field}
