"""How a run used its experts: a heat map of the layer that is least even, and a line for every layer."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.cost.imbalance import spread_of
from heddle.reporting import html as text
from heddle.runs.experts import ExpertUses, dead_in_words, most_over_mean

COLUMNS, MOST = 80, 256  # points in time, and experts, that are drawn at most
WIDTH, ROW, LEFT = 640, 6, 40


def experts(rows: Sequence[ExpertUses]) -> str:
    """Tokens per expert over time; nothing where a model has no experts."""
    if not rows or not rows[-1].layers:
        return ""
    last = rows[-1]
    worst = max(last.layers, key=lambda layer: most_over_mean(last.layers[layer]))
    table = [
        (
            str(layer),
            str(len(uses)),
            f"{most_over_mean(uses):.2f}",
            ", ".join(map(str, last.dead.get(layer, []))) or "–",
        )
        for layer, uses in last.layers.items()
    ]
    spread = sum(map(spread_of, last.layers.values())) / len(last.layers)
    heads = ["layer", "experts", "most used over mean", "without any token"]
    dead = f"<p>Experts that no token went to, {dead_in_words(last.dead)}.</p>" if last.dead else ""
    return (
        f"<p>Share of tokens that each expert of layer {worst} had, up to step {last.step}: the least even layer. "
        "White: none. The darkest: twice the mean or more.</p>"
        f"<p>Spread of the use of a layer's experts, relative to its mean: {spread:.2f} over all layers. Predict with "
        f"it by <code>--set cluster.efficiency.expert_spread={spread:.2f}</code>.</p>"
        f"{heat_map(rows, worst)}{dead}{text.details('Every layer', text.table(heads, table))}"
    )


def heat_map(rows: Sequence[ExpertUses], layer: int) -> str:
    """A column for each of some points in time, a row for each expert."""
    step = max(1, -(-len(rows) // COLUMNS))
    shown = [row for row in rows[::-1][::step][::-1] if layer in row.layers]
    count = min(MOST, len(shown[-1].layers[layer]))
    width, height = (WIDTH - LEFT) / len(shown), max(2.0, min(16.0, 320 / count))
    cells = []
    for at, row in enumerate(shown):
        uses = row.layers[layer]
        mean = max(1, sum(uses)) / len(uses)
        for number, tokens in enumerate(uses[:count]):
            depth = min(1.0, tokens / mean / 2)
            cells.append(
                f'<rect x="{LEFT + at * width:.1f}" y="{number * height:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}" fill="#0072b2" fill-opacity="{depth:.2f}"><title>step {row.step}, expert '
                f"{number}: {tokens:,} tokens, {tokens / mean:.2f} times the mean</title></rect>"
            )
    bottom = count * height
    words = (
        f'<text x="0" y="10">0</text><text x="0" y="{bottom:.0f}">{count - 1}</text>'
        f'<text x="{LEFT}" y="{bottom + 16:.0f}">step {shown[0].step}</text>'
        f'<text x="{WIDTH}" y="{bottom + 16:.0f}" text-anchor="end">step {shown[-1].step}</text>'
    )
    about = f"tokens of each expert of layer {layer} over time; the table below has the numbers"
    return (
        f'<svg viewBox="0 0 {WIDTH} {bottom + 20:.0f}" role="img" aria-label="{about}" fill="var(--soft)" '
        f'style="width:100%;max-width:{WIDTH}px;height:auto;font-size:12px">{"".join(cells)}{words}</svg>'
    )
