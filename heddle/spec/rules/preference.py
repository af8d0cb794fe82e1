"""Which jobs may learn from preferences."""

from __future__ import annotations

from heddle.errors import HeddleError
from heddle.schedule.late import SYNCHRONOUS
from heddle.spec.data import Data
from heddle.spec.plan import Plan
from heddle.spec.preference import Preference
from heddle.spec.tune import Tune


def check_preference(
    preference: Preference | None, data: Data | None, tune: Tune | None, plan: Plan | None, meeting: str | None
) -> None:
    """Refuse pairs without [preference], [preference] without pairs, and what leaves no reference to compare with."""
    pairs = data is not None and bool(data.chat) and data.learn == "preference"
    if preference is None:
        if pairs:
            raise HeddleError(
                "data.learn = 'preference', but the job has no [preference].",
                "Of two answers the better one is learned by a loss of its own.",
                "Add the table [preference], for example with beta = 0.1.",
            )
        return
    if data is not None and not pairs and not data.tokens:
        given = "data.text" if data.text else f"data.learn = '{data.learn}'"
        raise HeddleError(
            f"[preference] cannot be combined with {given}.",
            "It learns from rows of prompt, chosen and rejected.",
            'Give them as data.chat = "pairs.jsonl", or leave [preference] out.',
        )
    gone = "The reference is the model without adapters, which must be the one that training starts from"
    reasons = {}
    if tune is not None and tune.also:
        reasons[f"tune.also = {list(tune.also)}"] = (f"{gone}.", "Leave 'also' out, or leave [tune] out.")
    if tune is not None and tune.adapter is not None:
        merged = "Add them to the weights first: heddle export hf RUN -o FOLDER, and start from that."
        reasons["tune.adapter"] = (f"{gone}, and adapters that were there before are a part of that.", merged)
    if plan is not None and plan.update != SYNCHRONOUS:
        late = "Nobody has written down what late updates of pairs should be, so nothing could be proved."
        reasons[f"update = '{plan.update}'"] = (late, "Use update = 'synchronous'.")
    if plan is not None and plan.local_steps:
        apart = "How replicas that learn by themselves come together was tried with other losses alone."
        reasons[f"local_steps = {plan.local_steps}"] = (apart, "Leave local_steps out.")
    if meeting is not None:
        apart = "How sites that learn by themselves come together was tried with other losses alone."
        reasons["train.meeting"] = (apart, "Leave train.meeting out.")
    for what, (why, hint) in reasons.items():
        raise HeddleError(f"[preference] cannot be combined with {what}.", why, hint)
