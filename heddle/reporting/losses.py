"""The page of a comparison: loss against tokens and against time, with the spread over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from heddle.format import short
from heddle.reporting import html as text
from heddle.runs.curves import SMOOTHED, Numbers, Setting

WIDTH, HEIGHT, LEFT, BOTTOM = 620, 340, 56, 40
COLORS = ("#0072b2", "#d55e00")  # told apart by those who do not see all colors
DASHES = ("", "6 4")
Scale = Callable[[float], float]
STYLE = """
svg { width: 100%; height: auto; font-size: 12px; }
.curves { grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); }
"""


def losses_page(settings: Sequence[Setting], loss: float, verdict: Sequence[str]) -> str:
    """One HTML file, which asks nobody for anything and runs no script."""
    title = " and ".join(setting.name for setting in settings)
    charts = "".join(
        f"<figure><figcaption>loss, nats per token, against {what}</figcaption>{chart(settings, loss, what)}</figure>"
        for what in ("tokens", "seconds")
    )
    legend = "".join(
        f'<li><i class="swatch" style="background:{color}" aria-hidden="true"></i>{escape(setting.name)}: '
        "the mean over its seeds, and their range</li>"
        for setting, color in zip(settings, COLORS, strict=False)
    )
    main = f"""<section><h2>Which learns faster</h2>{text.listed(verdict)}{_table(settings, loss)}</section>
<section><h2>Loss</h2><ul class="legend">{legend}</ul><div class="curves">{charts}</div>
<p>Each point is the mean over the last {SMOOTHED:.0%} of a run's steps. Seconds count steps only: evaluating and
saving are left out.</p></section>"""
    return text.still_page(title, main, "heddle compare", style=STYLE)


def chart(settings: Sequence[Setting], loss: float, along: str) -> str:
    """Curves as SVG."""
    bands = [setting.band(along) for setting in settings]
    right = max(float(band[0][-1]) for band in bands)
    # the first steps fall from the loss of a guess: what is compared is below
    top = max(max(float(band[1][len(band[1]) // 20]) for band in bands), loss * 1.02)
    low = min(float(band[2].min()) for band in bands)
    low -= 0.05 * (top - low)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * value / right

    def y(value: float) -> float:
        return 8 + (HEIGHT - BOTTOM - 8) * (top - min(value, top)) / (top - low)

    parts = [
        f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="var(--grid)"/>'
        f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in text.ticks(low, top, log=False)
    ]
    parts += [
        f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(tick) if tick else 0}</text>'
        for tick in text.ticks(0, right, log=False)
    ]
    parts.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{along}</text>')
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="var(--soft)" '
        'stroke-dasharray="2 3"/>'
    )
    for (at, mean, lowest, highest), color, dash in zip(bands, COLORS, DASHES, strict=False):
        outline = [*_points(at, highest, x, y), *reversed(_points(at, lowest, x, y))]
        parts.append(f'<polygon points="{" ".join(outline)}" fill="{color}" fill-opacity="0.18"/>')
        points = " ".join(_points(at, mean, x, y))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
    about = f"loss against {along}; the table holds the numbers"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{about}" fill="var(--soft)">{"".join(parts)}</svg>'
    )


def _points(at: Numbers, values: Numbers, x: Scale, y: Scale) -> list[str]:
    return [f"{x(float(a)):.1f},{y(float(b)):.1f}" for a, b in zip(at, values, strict=True)]


def _table(settings: Sequence[Setting], loss: float) -> str:
    rows = []
    for setting in settings:
        for curve in setting.curves:
            reached = curve.reach(loss)
            rows.append(
                (
                    escape(setting.name),
                    str(curve.seed),
                    f"{curve.final:.4f}",
                    "–" if curve.validation is None else f"{curve.validation:.4f}",
                    "never" if reached is None else text.number(reached[0]),
                    "never" if reached is None else text.seconds(reached[1]),
                )
            )
    head = ["", "seed", "final loss", "validation loss", f"tokens to {loss:g}", f"time to {loss:g}"]
    return text.table(head, rows, "Nats per token")
