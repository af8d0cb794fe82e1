"""The page about a self-test: one file to send back, with everything that was found, for people and for programs."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from heddle.reporting.html import details, listed, still_page, table


def selftest_page(verdict: dict[str, Any]) -> str:
    """One HTML file that asks nobody for anything; the verdict itself is in it, as JSON."""
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
    main = f"""{running}<section id="parts"><h2>Parts</h2>{outcomes}</section>
<section id="about"><h2>Where it ran</h2>{table(("", ""), facts, words=2)}
{details("Devices, by rank", listed(str(each) for each in about.get("devices", [])))}
{details("Settings", listed(f"{name}={value}" for name, value in about.get("settings", {}).items()))}
</section>
<section id="nodes"><h2>Nodes</h2>{"".join(_node(each) for each in nodes) or "<p>Not looked at yet.</p>"}</section>"""
    script = f'<script type="application/json" id="verdict">{data}</script>\n'
    return still_page(f"Self-test {outcome}", main, "heddle selftest", f"Self-test: {outcome}", data=script)


def _node(facts: dict[str, Any]) -> str:
    lines = {key: value for key, value in facts.items() if key not in ("topology", "gpus")}
    content = listed(f"{key}: {value}" for key, value in lines.items())
    content += listed(str(gpu) for gpu in facts["gpus"])
    if facts["topology"]:
        content += f"<pre>{escape(facts['topology'])}</pre>"
    return details(f"{facts['node']}: {len(facts['gpus'])} GPUs, {facts['cores']} cores", content)
