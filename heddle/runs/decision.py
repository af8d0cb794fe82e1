"""What a run with `[plan] adapt = true` decided after its first steps: the record `adapted.json`, to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heddle.errors import HeddleError
from heddle.spec.plan import Plan
from heddle.spec.tables import build, read_json


@dataclass(frozen=True)
class Decision:
    """Whether the strategies of layers changed, after which step, and why."""

    step: int
    changed: bool
    why: str

    @property
    def title(self) -> str:
        """What happened, and when."""
        return f"{'Adapted' if self.changed else 'Compared with the prediction'} after step {self.step}"


def read_decision(path: Path, plan: Plan) -> Decision | None:
    """The decision that led to `plan`; None where there was none, or it was about another plan."""
    if not path.exists():
        return None
    record = read_json(path, "what a run measured in its first steps, and what it decided")
    try:
        found = Decision(int(record["step"]), bool(record["changed"]), str(record["why"]))
        hashes = build(Plan, record["plan"], "plan").hash, record["given"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HeddleError(
            f"{path} is not the record of a decision.",
            f"It lacks what `heddle train` writes: {type(error).__name__} {error}.",
            "The page is written without it.",
        ) from None
    return found if plan.hash in hashes else None
