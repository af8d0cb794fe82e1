"""What the page shows for some choices: ranked plans, and of one its timeline, time and memory.

An answer comes in parts, the quickest first, so that a picture follows the knob at once: the fastest plan that treats
all layers alike; then the ranked plans of `heddle plan`; then what takes longest, what pins cost, the front of time and
memory, and what more memory would buy. The parts are those of `heddle report`, so that a number is the same wherever it
is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from heddle.errors import HeddleError
from heddle.explore.choices import ChoiceError, PageChoices, read_choices
from heddle.explore.legal import legal_values
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
from heddle.simulating.simulation import Simulation, simulate
from heddle.spec.job import Job
from heddle.spec.plan import Plan
from heddle.spec.tables import build, to_table, to_toml
from heddle.trainers.registry import WRITERS, exported_plan

DOUBLINGS = (0.25, 0.5, 1, 2, 4)  # of the nodes, in the curve of scaling
Part = dict[str, Any]


def answer(given: Any, base: Mapping[str, Any]) -> Part:
    """All parts of an answer in one."""
    whole: Part = {"parts": {}}
    for part in answer_parts(given, base):
        whole = whole | part | {"parts": whole["parts"] | part.get("parts", {})}
    return whole


def answer_parts(given: Any, base: Mapping[str, Any]) -> Iterator[Part]:
    """For `POST /plan`; a mistake is an answer, too."""
    try:
        choices = read_choices(given, base)
        if choices.selected == 0 and choices.other is None:
            quick = best(choices.job, replace(choices.request, top=1, by_layer=False))
            assert isinstance(quick, Search), "a page has no network"
            yield _quick_part(choices, quick)
        found = best(choices.job, choices.request)
        assert isinstance(found, Search), "a page has no network"
        chosen = found.plans[min(choices.selected, len(found.plans) - 1)]
        other = None if choices.other is None else found.plans[min(choices.other, len(found.plans) - 1)]
        yield _plans_part(choices, found) | _shown(choices, found.tokens, [chosen, *_different(chosen, other)])
        yield _slow_part(choices, found, chosen)
    except HeddleError as error:
        yield {"error": _told(error, given)}


def show(given: Any, base: Mapping[str, Any]) -> Part:
    """For `POST /show`: one of the ranked plans, and another beside it, without a search."""
    try:
        choices = read_choices(given, base)
        sent = given.get("plans")
        tables = [table for table in sent if isinstance(table, dict)] if isinstance(sent, list) else []
        plans = [build(Plan, dict(table), "plan") for table in tables[:2]]
        if not plans:
            raise ChoiceError("", "No plan was sent.", "One of those in the table is shown.", "Reload the page.")
        tokens = choices.request.tokens or float(choices.job.train.steps * choices.job.tokens_per_step)
        return _shown(choices, tokens, [simulate(choices.job.with_plan(plan)) for plan in plans])
    except HeddleError as error:
        return {"error": _told(error, given)}


def _different(chosen: Simulation, other: Simulation | None) -> list[Simulation]:
    return [] if other is None or other is chosen else [other]


def _quick_part(choices: PageChoices, found: Search) -> Part:
    shown = _shown(choices, found.tokens, [found.best])
    return shown | {"quick": True, "summary": _summary(choices, found), "legal": legal_values(choices.job)}


def _plans_part(choices: PageChoices, found: Search) -> Part:
    return {
        "quick": False,
        "summary": _summary(choices, found),
        "legal": legal_values(choices.job),
        "table": _table(found, choices),
        "ranked": [to_table(each.best.plan) for each in found.choices],
    }


def _shown(choices: PageChoices, tokens: float, plans: Sequence[Simulation]) -> Part:
    """Of one plan, and of another beside it."""
    subjects = [Subject(in_words(each.plan), each.job, each, None, None) for each in plans]
    first, chosen = subjects[0], plans[0]
    scale = max(map(sections.longest, subjects))
    return {
        "parts": {
            "cards": sections.cards(first) + _bar(chosen) + _money(choices, tokens, chosen),
            "words": sections.notices(first) + text.listed(described(chosen)),
            "timeline": charts.timeline(first, 0),
            "breakdown": "".join(sections.breakdown(subject, scale) for subject in subjects),
            "memory": sections.memory(first, priced=False),
            "compare": comparison(subjects) if len(subjects) > 1 else "",
        },
        "timelines": [charts.timeline_data(first)],
        "exports": exports(chosen),
    }


def _slow_part(choices: PageChoices, found: Search, chosen: Simulation) -> Part:
    """What pins cost, the front, and what memory is worth."""
    subject = Subject(in_words(chosen.plan), chosen.job, chosen, found, None)
    return {
        "pinned": _pinned(choices, found),
        "parts": {"front": charts.plans_front(subject, 0, "show it"), "memory": sections.memory(subject)},
        "front": [to_table(point.plan) for point in found.front],
        "facts": found.to_json(price=choices.price),
        "job": job_file(chosen),
    }


def scaling(given: Any, base: Mapping[str, Any]) -> Part:
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
                "share": 0.0 if found.error_bar is None else found.error_bar.share,
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


def exports(chosen: Simulation) -> dict[str, dict[str, Any]]:
    """The plan as files: a job, and for other trainers, each with what it cannot say."""
    found: dict[str, dict[str, Any]] = {"job file": {"file": "job.toml", "text": job_file(chosen), "missing": []}}
    for name in WRITERS:
        made = exported_plan(chosen.job, name)
        found[made.trainer] = {"file": made.file, "text": made.text, "missing": list(made.missing)}
    return found


def _summary(choices: PageChoices, found: Search) -> str:
    job: Job = choices.job
    assert job.cluster is not None
    return (
        f"{job.model.name}: {job.model.parameters:,} parameters on "
        f"{found.best.plan.world:,} × {job.cluster.device.name}; "
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
                (
                    f'<button type="button" data-select="{number}" aria-pressed="{pressed}" '
                    f'aria-label="show plan {number + 1}">{number + 1}</button>'
                ),
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
    return text.table(head, rows, "The best plans, each simulated action by action", words=2) + _equals(found)


def _equals(found: Search) -> str:
    """Which plans the prediction cannot tell apart."""
    error = found.best.error_bar
    if error is None:
        return ""
    limit = (1 + error.share) * found.best.step_seconds
    near = sum(choice.best.step_seconds <= limit for choice in found.choices)
    if near < 2:
        return ""
    within = f"within the error of the prediction, ± {100 * error.share:.2g} %"
    return f"<p>{near} of these lie {within}: take them as equal.</p>"


def _bar(chosen: Simulation) -> str:
    """How far the prediction may be off."""
    error = chosen.error_bar
    if error is None:
        return '<p class="error-bar">How far off this is cannot be said: no run on such devices was measured.</p>'
    least, most = (text.seconds(chosen.step_seconds * factor) for factor in (1 / (1 + error.share), 1 + error.share))
    return (
        f'<p class="error-bar">A step takes {text.seconds(chosen.step_seconds)} {escape(str(error))}: '
        f"{least} to {most}.</p>"
    )


def _money(choices: PageChoices, tokens: float, chosen: Simulation) -> str:
    days = duration(86_400 * chosen.days(tokens))
    costs = "" if choices.price is None else f" and ${short_figures(chosen.dollars(tokens, choices.price))}"
    return f'<p class="money">{short_figures(tokens)} tokens take {escape(days)}{escape(costs)}.</p>'


def _told(error: HeddleError, given: Any) -> Part:
    """An error in its three parts, and the field that it is shown beside."""
    field = error.field if isinstance(error, ChoiceError) else ""
    if not field and isinstance(given, dict):
        words = f"{error.what} {error.why}"
        named = [name for name in (*given, *(given.get("pins") or {})) if isinstance(name, str) and name in words]
        field = max(named, key=len, default="")
    return {"what": error.what, "why": error.why, "hint": error.hint, "field": field}
