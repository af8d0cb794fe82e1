"""The parts of the page that are words, tables and bars: they stand in the file as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

from heddle.cost.breakdown import STEP
from heddle.cost.memory import MemoryBreakdown
from heddle.format import GIB, figures, memory_unit, short
from heddle.planning.search.describe import in_words, overfull
from heddle.planning.search.explain import described, explain
from heddle.reporting import difference
from heddle.reporting import html as text
from heddle.reporting import memory as memory_parts
from heddle.reporting.subject import Subject
from heddle.spec.cluster import Cluster
from heddle.trace.bars import memory_scale

# what is asked for first: what it is called, its column of metrics, how it is written
NUMBERS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("a step", "seconds", text.seconds),
    ("tokens/s", "tokens_per_second", text.number),
    ("MFU", "mfu", text.percent),
    ("bubble", "bubble", text.percent),
)


def cards(subject: Subject) -> str:
    """The numbers that are asked for first, measured before predicted."""
    prediction, measured = subject.prediction, subject.measured
    known: list[tuple[str, str, str]] = []
    for title, key, write in NUMBERS:
        expected = predicted(subject, key)
        took = measured.median(key) if measured is not None else None
        if took is not None:
            known.append(
                (title, write(took), f"median; predicted {write(expected)}" if expected is not None else "median")
            )
        elif expected is not None:
            known.append((title, write(expected), "predicted"))
    if prediction is not None:
        known.append(("fullest stage", text.memory(prediction.worst), f"of {text.memory(prediction.limit)}"))
    if measured is not None and measured.steps:
        last = measured.steps[-1]
        learned = f"validation {measured.validation[-1]['validation_loss']:.3f}" if measured.validation else ""
        loss = last["loss"]
        known.append(
            (f"loss, step {last['step']}", "–" if loss is None else f"{loss:.3f}", learned)  # null where it overflowed
        )
    return (
        '<dl class="cards">'
        + "".join(
            f"<div><dt>{escape(title)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
            for title, value, note in known
        )
        + "</dl>"
    )


def predicted(subject: Subject, key: str) -> float | None:
    """What is predicted of a column of metrics."""
    if subject.prediction is None:
        return None
    value: float = getattr(subject.prediction, "step_seconds" if key == "seconds" else key)
    return value


def notices(subject: Subject) -> str:
    """What could not be had, why, and what would help."""
    return "".join(
        f'<p class="notice"><strong>{escape(notice.what)}</strong> {escape(notice.why)} {escape(notice.hint)}</p>'
        for notice in subject.notices
    )


def plan(subject: Subject) -> str:
    """The plan in words; where the search chose it, why."""
    prediction, job = subject.prediction, subject.job
    lines = list(described(prediction)) if prediction is not None else [in_words(job.plan)]
    shown = f'<p class="lead">{escape(lines[0])}</p>' + text.listed(lines[1:])
    before, decision = job.predicted, subject.decision
    if decision is not None:
        before = None if decision.changed else before  # what it expects was corrected by what it measured
        shown += f"<p><strong>{escape(decision.title)}.</strong> {escape(decision.why)}</p>"
    if prediction is not None and prediction.error_bar is not None:
        shown += f"<p>A step takes {text.seconds(prediction.step_seconds)} {escape(str(prediction.error_bar))}.</p>"
    if prediction is not None and not prediction.fits:
        shown += f'<p class="notice"><strong>The plan does not fit.</strong> {escape(overfull(prediction))}.</p>'
    if prediction is not None and before is not None:
        drift = prediction.step_seconds / before.step_seconds - 1
        if abs(drift) > 0.02:
            shown += (
                f"<p>When it was planned, the prediction was {text.seconds(before.step_seconds)} per step; "
                f"with what is known about the cluster now, it is {text.seconds(prediction.step_seconds)}.</p>"
            )
    found = subject.search
    if found is None:
        return shown
    if subject.was_planned:
        reasons = explain(found)
        why = text.table(
            ["instead", "it would be"], [(escape(n.change), escape(n.why)) for n in reasons.neighbors], words=2
        )
        helps = [f"{what}: {gain - 1:+.1%} tokens/s" for what, gain in reasons.helps]
        shown += f"<p>The best of {found.feasible:,} feasible plans, of {found.considered:,} legal ones.</p>"
        shown += text.details("Why not another?", why)
        shown += text.details("What would help?", text.listed([*helps, *reasons.takeaways]))
    else:
        shown += f"<p>{escape(_standing(subject))}</p>"
    return shown


def _standing(subject: Subject) -> str:
    """How good the plan is among all: its rank is that which it was given when it was planned, where that is known."""
    found, prediction, kept = subject.search, subject.prediction, subject.job.predicted
    assert found is not None
    if prediction is None:
        return f"The best of {found.feasible:,} feasible plans would be {in_words(found.best.plan)}."
    place, feasible = found.rank(prediction.plan), found.feasible
    if kept is not None and kept.rank is not None and kept.feasible is not None and subject.decision is None:
        place, feasible = kept.rank, kept.feasible
    among = f"Number {place:,} of {feasible:,} feasible plans" if place else "Not among the plans that were ranked"
    if place == 1:
        among = f"The best of {feasible:,} feasible plans"
    fastest = found.fastest
    slower = prediction.step_seconds / fastest.step_seconds - 1
    if slower <= 1e-9:
        return f"{among}; none is predicted to be faster."
    return (
        f"{among}, {slower:.2g} times slower" if slower >= 10 else f"{among}, {_share(slower)} slower"
    ) + f" than the fastest by prediction: {in_words(fastest.plan)}, {text.seconds(fastest.step_seconds)} per step."


def _share(value: float) -> str:
    """A share that is not nothing."""
    return f"{value:.1%}" if value >= 0.0005 else "less than 0.1%"


def longest(subject: Subject) -> float:
    """Seconds of the longer bar of a subject's steps, predicted and measured."""
    prediction, measured = subject.prediction, subject.measured
    here = difference.measured_items(measured, subject.job) if measured is not None else None
    expected = prediction.step_seconds if prediction is not None else 0.0
    return max(expected, sum(here.values()) if here is not None else 0.0)


def breakdown(subject: Subject, scale: float) -> str:
    """Where the time of a step goes, as bars that end at `scale` and as a table, and what makes the difference."""
    prediction, measured = subject.prediction, subject.measured
    here = difference.measured_items(measured, subject.job) if measured is not None else None
    if here is None:
        if prediction is None:
            return "<p>Neither a prediction nor a trace.</p>"
        found = {name: float(value) for name, value in prediction.breakdown._asdict().items() if value}
        called = {name: item.words for name, item in STEP.items()} | difference.exchange(subject.job)
        shown = _time_bar("predicted", found, scale, called)
        rows = [
            (_swatch(name) + escape(called[name]), text.seconds(value), text.percent(value / prediction.step_seconds))
            for name, value in found.items()
        ]
        shown += text.table(["a mean over ranks", "predicted", "share"], rows)
        return "".join(f"<p>{escape(line)}</p>" for line in difference.in_words(subject)) + shown
    there = difference.predicted_items(prediction) if prediction is not None else {}
    called = difference.words(subject.job)
    shown = "".join(
        _time_bar(word, found, scale, called) for word, found in (("predicted", there), ("measured", here)) if found
    )
    compared = [
        (
            _swatch(name) + escape(spoken),
            text.seconds(there.get(name, 0.0)) if there else "–",
            text.seconds(here.get(name, 0.0)),
            text.change(here.get(name, 0.0) - there.get(name, 0.0)) if there else "–",
        )
        for name, spoken in called.items()
        if here.get(name) or there.get(name)
    ]
    sums = sum(there.values()), sum(here.values())
    compared.append(("all", text.seconds(sums[0]), text.seconds(sums[1]), text.change(sums[1] - sums[0])))
    first, *others = difference.in_words(subject) if prediction is not None else [""]
    words = (f'<p class="lead">{escape(first)}</p>' if first else "") + text.listed(others)
    shown = words + shown + text.table(["a mean over ranks", "predicted", "measured", "difference"], compared)
    if prediction is not None and measured is not None and measured.trace is not None:
        stages = [
            (f"stage {each.stage}", *(cell for pair in (each.forward, each.backward) for cell in _pair(pair)))
            for each in difference.stage_times(prediction, measured.trace)
        ]
        head = ["", "forwards predicted", "measured", "", "backwards predicted", "measured", ""]
        shown += text.details("Stage by stage", text.table(head, stages, "Seconds of a stage in the step"))
    return shown


def _pair(pair: tuple[float, float]) -> tuple[str, str, str]:
    predicted, measured = pair
    return text.seconds(predicted), text.seconds(measured), f"{measured / predicted - 1:+.0%}" if predicted else "–"


def _time_bar(title: str, items: dict[str, float], scale: float, words: dict[str, str]) -> str:
    total = sum(items.values())
    parts = "".join(
        f'<span class="c-{name}" style="width:{100 * value / scale:.3f}%" '
        f'title="{escape(words[name])} {text.seconds(value)}"></span>'
        for name, value in items.items()
        if value > 0
    )
    label = ", ".join(f"{words[name]} {text.seconds(value)}" for name, value in items.items() if value > 0.005 * total)
    return (
        f'<div class="bar"><span class="who">{title}</span><div class="stack" role="img" '
        f'aria-label="{escape(title)}: {escape(label)}">{parts}</div>'
        f'<span class="end">{text.seconds(total)}</span></div>'
    )


def _swatch(name: str) -> str:
    return f'<i class="swatch c-{name}" aria-hidden="true"></i>'


def memory(subject: Subject, priced: bool = True) -> str:
    """The breakdown of every stage, and what is left; with `priced` what more of it would buy, which takes a search."""
    prediction = subject.prediction
    if prediction is None:
        return "<p>No prediction, so no memory breakdown.</p>"
    breakdowns, limit = prediction.memory, prediction.limit
    worst = prediction.worst
    scale = memory_scale(worst, limit)
    note = (
        f"Bars end at the {text.memory(limit)} of a device."
        if scale == limit
        else f"A device has {text.memory(limit)}; bars end at {text.memory(scale)}."
    )
    unit, size = memory_unit(worst)
    bars = "".join(_memory_bar(stage, breakdown, limit, scale) for stage, breakdown in enumerate(breakdowns))
    legend = "".join(f"<li>{_swatch(name)}{name}</li>" for name in breakdowns[0]._fields)
    rows = [
        (
            f"stage {stage}",
            *(text.gib(float(value) / size) for value in breakdown),
            text.gib(float(breakdown.total) / size),
            text.gib((limit - float(breakdown.total)) / size),
        )
        for stage, breakdown in enumerate(breakdowns)
    ]
    shown = f'<p>Predicted for one device of each stage. {note}</p><ul class="legend">{legend}</ul>'
    shown += f'<div class="bars" tabindex="0" role="group" aria-label="memory of every stage">{bars}</div>'
    if prediction.outside is not None:
        shown += f"<p>The slack has to have room for {prediction.outside}.</p>"
    measured = subject.measured.most("memory_gib") if subject.measured is not None else None
    if measured is not None:
        shown += f"<p>Measured on the first rank, for the whole process: at most {text.memory(measured * GIB)}.</p>"
    head = [unit, *breakdowns[0]._fields, "total", "headroom"]
    shown += memory_parts.layers(prediction) + memory_parts.curves(subject)
    shown += memory_parts.prices(subject) if priced else ""
    return shown + text.details("As a table", text.table(head, rows, "Memory of one device of each stage"))


def _memory_bar(stage: int, breakdown: MemoryBreakdown, limit: float, scale: float) -> str:
    total = float(breakdown.total)
    parts = "".join(
        f'<span class="c-{name}" style="width:{100 * float(value) / scale:.3f}%" '
        f'title="{name} {text.memory(float(value))}"></span>'
        for name, value in breakdown._asdict().items()
        if float(value) > 0
    )
    free = limit - total
    end = f"{text.memory(free)} free" if free >= 0 else f"{text.memory(-free)} too much"
    mark = f'<b class="limit" style="left:{100 * limit / scale:.3f}%"></b>' if limit < scale else ""
    return (
        f'<div class="bar{" over" * (free < 0)}"><span class="who">stage {stage}</span>'
        f'<div class="stack" role="img" aria-label="stage {stage}: {text.memory(total)}, {end}">'
        f"{parts}{mark}</div>"
        f'<span class="end">{end}</span></div>'
    )


def glance(subject: Subject) -> str:
    """Model and cluster in two short lists."""
    job = subject.job
    model, cluster = job.model, job.cluster
    ffn = " or ".join(f"{size:,}" for size in sorted({shape.ffn for shape in model.shapes}))
    about = [
        ("model", f"{model.name}: {model.parameters:,} parameters"),
        ("shape", f"{model.layers} layers, hidden {model.hidden:,}, ffn {ffn}, {model.heads} heads"),
        ("vocabulary", f"{model.vocab:,} tokens"),
        ("a step", f"{job.train.global_batch:,} samples of {job.sequence:,} tokens, {job.precision_in_words}"),
        ("FLOPs of a step", _flops(subject)),
    ]
    if model.kv_heads != model.heads:
        about[1] = ("shape", f"{about[1][1]}, {model.kv_heads} of keys and values")
    if cluster is not None:
        device = cluster.device
        peak = device.tflops.flops(job.precision)
        about += [
            ("cluster", f"{cluster.name}: {_nodes(cluster)}"),
            ("a device", ", ".join(_device(device.memory_gib, device.memory_gbs, peak))),
            *((f"link {link.name}", f"{link.gbs:g} GB/s, {link.latency_us:g} µs") for link in cluster.links),
            ("efficiency", cluster.efficiency.source),
        ]
    return (
        '<dl class="glance">'
        + "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>" for what, value in about)
        + "</dl>"
    )


def _flops(subject: Subject) -> str:
    """What MFU counts, and what it would be with causal attention counted by half."""
    job = subject.job
    full, causal = job.flops(), job.flops(causal=True)
    measured = subject.measured.median("mfu") if subject.measured is not None else None
    mfu = measured if measured is not None else predicted(subject, "mfu")
    than = f" ({text.percent(mfu * causal / full)} MFU instead of {text.percent(mfu)})" if mfu is not None else ""
    return (
        f"{short(full)}, with attention counted over the full square, as PaLM and Megatron-LM count; "
        f"{short(causal)} with its causal half{than}"
    )


def _nodes(cluster: Cluster) -> str:
    inside = f"{cluster.devices} × {cluster.device.name}"
    if cluster.cores is not None:
        inside += f", sharing {cluster.cores} cores"
    return inside if cluster.nodes == 1 else f"{cluster.nodes:,} nodes of {inside}"


def _device(memory: float, bandwidth: float | None, peak: float | None) -> Iterator[str]:
    yield f"{memory:.4g} GiB"
    if bandwidth is not None:
        yield f"{bandwidth:,.0f} GB/s"
    if peak is not None:
        yield f"{figures(peak / 1e12, 3)} TFLOP/s"
