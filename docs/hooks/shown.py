"""What an executed page shows: tables, lines of the terminal, drawings; on the site, and as plain Markdown."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from rooms import rooms

from heddle.format import seconds_in_words
from heddle.reporting.html import ticks
from heddle.trace import to_svg
from heddle.trace.terminal import draw
from heddle.trace.trace import Trace

__all__ = ["clock", "ms", "picture", "plot", "rooms", "table", "terminal"]

NUMBER = re.compile(r"[+-]?[\d,.]+ ?[^\d\s]{0,3}")  # with a unit


class Shown(str):
    """What the site shows, as HTML; `plain` is the same for who reads the repository, as Markdown."""

    plain: str

    def __new__(cls, html: str, plain: str) -> Shown:
        """Both."""
        made = super().__new__(cls, html)
        made.plain = plain
        return made

    def __add__(self, other: str) -> Shown:
        """Both, each with what follows."""
        return Shown(str(self) + str(other), self.plain + plain(other))

    def __radd__(self, other: str) -> Shown:
        """Both, each with what precedes."""
        return Shown(str(other) + str(self), plain(other) + self.plain)


def plain(text: str) -> str:
    """Text for the repository."""
    return text.plain if isinstance(text, Shown) else str(text)


def _block(lines: Iterable[str]) -> str:
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```"])


def clock(seconds: float) -> Shown:
    """A time that was measured: on the site what it was, in the repository, which must not change, only its unit."""
    unit = next(
        (name for scale, name in ((1.0, "seconds"), (1e-3, "milliseconds")) if seconds >= scale), "microseconds"
    )
    return Shown(seconds_in_words(seconds), unit)


def _colors(words: str) -> list[tuple[int, int, int]]:
    return [(code >> 16, code >> 8 & 255, code & 255) for code in (int(word, 16) for word in words.split())]


# The colors of a terminal, dark enough below white letters and light enough below black ones.
THEME = TerminalTheme(
    *_colors("16191f dfe3ea"),
    _colors("000000 be3c2d 007858 e6b432 005fa0 964678 007d8c dee2e8"),
    _colors("555c66 ff6e5a 5ac891 f5d764 69a5eb e191be 5fc8e1 ffffff"),
)


def ms(value: Any) -> str:
    """Seconds."""
    return f"{float(value) * 1e3:,.1f} ms"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; columns of numbers are aligned to the right, but for the first."""
    cells = [[str(cell) for cell in row] for row in rows]
    numbers = [sum(NUMBER.fullmatch(cell) is not None for cell in column) for column in zip(*cells, strict=True)]
    sides = ["---:" if place and 2 * count >= len(cells) else "---" for place, count in enumerate(numbers)]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([*map(str, heads)], sides, *cells))


def terminal(*lines: Text | str) -> Shown:
    """Lines as the terminal shows them, in its colors."""
    console = Console(record=True, file=io.StringIO(), width=200, force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    html = console.export_html(theme=THEME, inline_styles=True, code_format="<pre>{code}</pre>")
    # a blank line would end the block of HTML
    colored = f'<div class="terminal">{html.rstrip()}</div>'.replace("\n\n", "\n&#8203;\n")
    return Shown(colored, _block("\n".join(str(line) for line in lines).splitlines()))


def picture(trace: Trace, width: int = 800) -> Shown:
    """A trace as the SVG that `heddle simulate --trace step.svg` writes."""
    svg = "".join(line.strip() for line in to_svg(trace, width=width).splitlines())
    return Shown(f'<div class="picture">{svg}</div>', _block(str(draw(trace, 100)).splitlines()))


def plot(
    points: Sequence[tuple[float, float, str]], across: str, up: str, cloud: Sequence[tuple[float, float]] = ()
) -> Shown:
    """Points joined by a line, each with its words, over a cloud of others."""
    xs, ys = ([point[place] for point in [*points, *cloud]] for place in (0, 1))
    x, y = _Logarithmic(xs, 60, 780), _Logarithmic(ys, 300, 10)
    dots = "".join(f"M{x(a):.0f} {y(b):.0f}h0" for a, b in cloud)
    marks = [f'<path d="{dots}" class="cloud"/>']
    marks += [f'<text x="{x(v):.0f}" y="318" text-anchor="middle">{v:g}</text>' for v in x.ticks]
    marks += [f'<text x="52" y="{y(v) + 4:.0f}" text-anchor="end">{v:g}</text>' for v in y.ticks]
    line = " ".join(f"{x(a):.0f},{y(b):.0f}" for a, b, _ in points)
    marks.append(f'<polyline points="{line}"/>')
    marks += [
        f'<circle cx="{x(a):.0f}" cy="{y(b):.0f}" r="4"><title>{words}</title></circle>' for a, b, words in points
    ]
    marks.append(f'<text x="420" y="338" text-anchor="middle">{across}</text><text x="64" y="18">{up}</text>')
    svg = f'<svg viewBox="0 0 800 345" role="img" aria-label="{up} over {across}">{"".join(marks)}</svg>'
    few = [points[place * (len(points) - 1) // 7] for place in range(8)] if len(points) > 8 else points
    rows = [(f"{a:.3g}", f"{b:.3g}", words) for a, b, words in few]
    return Shown(f'<div class="plot">{svg}</div>', table((across, up, "plan"), rows))


class _Logarithmic:
    """Where values lie between two places, by their logarithm."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values) / 1.1, max(values) * 1.1
        self.ticks = ticks(low, high, log=True)
        self.low, self.start, self.scale = low, start, (end - start) / math.log(high / low)

    def __call__(self, value: float) -> float:
        return self.start + self.scale * math.log(value / self.low)
