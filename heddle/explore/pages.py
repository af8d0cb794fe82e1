"""The two pages: what each is given, and what it may ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heddle.cost.breakdown import ITEMS
from heddle.explore import answers, watch
from heddle.explore.choices import NUMBERS, OWN, PRECISIONS
from heddle.explore.legal import legal_values
from heddle.explore.server import WebSite
from heddle.spec.job import job_from_tables
from heddle.spec.presets import cluster_presets, model_presets
from heddle.trace.kinds import COLORS

FIRST = {
    "model": {"preset": "llama-3-8b"},
    "cluster": {"preset": "dgx-h100", "nodes": 4},
    "train": {"global_batch": 256},
}


def explore_site(document: Mapping[str, Any] | None) -> WebSite:
    """Of a job file's tables, or of a first job."""
    base = dict(document or FIRST)
    base.setdefault("cluster", FIRST["cluster"])
    job = job_from_tables({name: table for name, table in base.items() if name not in ("plan", "predicted")})
    assert job.cluster is not None
    first = {
        "model": base["model"].get("preset", OWN) if "model" in base else OWN,
        "cluster": base["cluster"].get("preset", OWN),
        "nodes": job.cluster.nodes,
        "sequence": job.sequence,
        "global_batch": job.train.global_batch,
        "precision": job.precision,
        "memory_gib": "",
        "tokens": "",
        "price": "",
    }
    own = [OWN] if document is not None else []
    site = WebSite(
        "explore.html",
        {
            "first": first,
            "models": [*own, *model_presets()],
            "clusters": [*own, *cluster_presets()],
            "precisions": list(PRECISIONS),
            "numbers": {name: [least, most, whole] for name, (_, least, most, whole) in NUMBERS.items()},
            "pins": legal_values(job),
        }
        | looks(),
    )
    site.answers = {"/plan": answers.answer_parts, "/show": answers.show, "/scaling": answers.scaling}
    site.given = dict.fromkeys(site.answers, (base,))
    return site


def watch_site(folders: Sequence[Path]) -> WebSite:
    """Of some runs, over each other."""
    site = WebSite("watch.html", {"runs": [watch.about(folder) for folder in folders]} | looks())
    site.events = {"/events": partial(watch.follow, list(folders))}
    return site


def looks() -> dict[str, Any]:
    """Names and colors of spans and of the items of bars."""
    colors = {f"k-{kind}": color for kind, color in COLORS.items()}
    colors |= {f"c-{name}": item.color for name, item in ITEMS.items()}
    return {"kinds": list(COLORS), "colors": list(COLORS.values()), "classes": colors}
