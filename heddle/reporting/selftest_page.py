"""The page about a self-test: one file to send back, with everything that was found, for people and for programs."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import Any

from heddle.reporting.html import details, listed, table


def selftest_page(verdict: dict[str, Any]) -> str:
    """One HTML file that asks nobody for anything; the verdict itself is in it, as JSON."""
    style = files("heddle.reporting").joinpath("assets/style.css").read_text(encoding="utf-8")
    about, parts = verdict["about"], verdict["parts"]
    rows = [
        (escape(part["name"]), "passed" if part["passed"] else "<strong>failed</strong>", escape(part["words"]),
         f"{part['seconds']:.1f}")
        for part in parts
    ]  # fmt: skip
    outcomes = table(("part", "outcome", "what was found", "seconds"), rows, words=3)
    outcome = "passed" if verdict["passed"] else "failed" if verdict["finished"] else "not finished"
    kept = {key: value for key, value in about.items() if key not in ("devices", "settings", "plan")}
    facts = [(escape(str(key)), escape(str(value))) for key, value in kept.items()]
    nodes: list[dict[str, Any]] = next(
        (part["numbers"].get("nodes", []) for part in parts if part["name"] == "machine"), []
    )
    running = f"<p>Running: {escape(str(verdict['running']))}.</p>" if verdict.get("running") else ""
    # a text in JSON may hold what would end the script
    data = json.dumps(verdict).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Self-test {outcome} – Heddle</title>
<style>{style}</style>
</head>
<body>
<header><h1>Self-test: {outcome}</h1></header>
<main>
{running}<section id="parts"><h2>Parts</h2>{outcomes}</section>
<section id="about"><h2>Where it ran</h2>{table(("", ""), facts, words=2)}
{details("Devices, by rank", listed(str(each) for each in about.get("devices", [])))}
{details("Settings", listed(f"{name}={value}" for name, value in about.get("settings", {}).items()))}
</section>
<section id="nodes"><h2>Nodes</h2>{"".join(_node(each) for each in nodes) or "<p>Not looked at yet.</p>"}</section>
</main>
<footer>Made by heddle selftest.</footer>
<script type="application/json" id="verdict">{data}</script>
</body>
</html>
"""


def _node(facts: dict[str, Any]) -> str:
    lines = {key: value for key, value in facts.items() if key not in ("topology", "gpus")}
    content = listed(f"{key}: {value}" for key, value in lines.items())
    content += listed(str(gpu) for gpu in facts["gpus"])
    if facts["topology"]:
        content += f"<pre>{escape(facts['topology'])}</pre>"
    return details(f"{facts['node']}: {len(facts['gpus'])} GPUs, {facts['cores']} cores", content)
