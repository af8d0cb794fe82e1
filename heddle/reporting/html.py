"""Numbers and words as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from heddle.format import memory_unit, seconds_in_words, short, signed_seconds


def seconds(value: float | None) -> str:
    """A time in a unit that suits it."""
    return "–" if value is None else seconds_in_words(value)


def change(value: float) -> str:
    """A difference of times, with its sign."""
    return signed_seconds(value)


def percent(value: float | None) -> str:
    """A share."""
    return "–" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Four digits and a unit: 1.234M."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 1000 <= abs(value) < 10_000 else short(value)


def gib(value: float) -> str:
    """GiB, with as many digits as tell stages apart."""
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}" if abs(value) >= 0.0005 else "0"


def memory(value: float) -> str:
    """Bytes in a unit that suits them."""
    unit, size = memory_unit(abs(value))
    return f"{gib(value / size)} {unit}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", words: int = 1) -> str:
    """A table; its first `words` columns hold words, the others numbers. Cells are HTML."""
    numbers = ' class="n"'
    heads = "".join(f'<th scope="col"{numbers * (i >= words)}>{cell}</th>' for i, cell in enumerate(head))
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{cell}</th>' if i == 0 else f"<td{numbers * (i >= words)}>{cell}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def details(summary: str, content: str) -> str:
    """Folded away until it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def listed(lines: Iterable[str]) -> str:
    """A list of plain lines; nothing if there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers between two others, a handful."""
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        fine = [digit * 10.0**power for power in decades for digit in (1, 2, 5)]
        found = [value for value in fine if low <= value <= high]
        return found if len(found) <= 7 else [value for value in found if math.log10(value) % 1 < 1e-9]
    rough = (high - low) / 5
    step = 10.0 ** math.floor(math.log10(rough))
    step *= next(size for size in (1, 2, 5, 10) if size * step >= rough)
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def still_page(title: str, main: str, maker: str, heading: str = "", style: str = "", data: str = "") -> str:
    """One HTML file that asks nobody for anything and runs no script; everything but the titles is HTML.

    `style` and `data` stand beside the style of all pages, and behind the footer.
    """
    common = files("heddle.reporting").joinpath("assets/style.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)} – Heddle</title>
<style>{common}{style}</style>
</head>
<body>
<header><h1>{escape(heading or title)}</h1></header>
<main>
{main}
</main>
<footer>Made by {maker}.</footer>
{data}</body>
</html>
"""
