"""Keys of other frameworks that mean something here: why there is no such key, and what to write instead."""

from __future__ import annotations

import re

from heddle.errors import HeddleError

# a pattern of the key, why there is none, and what works
WORDS = (
    (
        r"(moe_)?(expert_|eval_|train_|min_)?capacity(_factor)?|moe_.*capacity.*|.*drop_(tokens|policy)|.*pad_to_capacity",
        "Heddle's experts take all tokens that choose them: none is dropped, and so there is no capacity.",
        "Leave it out; model.balance_loss keeps experts about evenly used.",
    ),
    (
        r"(moe_)?router_d?type|router_precision",
        "Routers compute in full precision, whatever the precision of the job.",
        "Leave it out.",
    ),
    (
        r"ep|ep_size|expert_(model_)?parallel(_size|_degree)?|moe_expert_parallel_size",
        "The ranks that share the experts of a layer are a key of the plan.",
        "Use [plan] expert = …, which divides data × context.",
    ),
    (
        r"etp|expert_tensor_(parallel(_size|_degree)?|size|degree)|moe_tp|moe_tensor_parallel_size",
        "Whether tensor ranks split the width of experts is a key of the plan.",
        "Use [plan] expert_tensor = 1 for whole experts, or leave it out: then all of them do.",
    ),
)


def other_word(where: str, key: str) -> HeddleError | None:
    """What to say of a key that another framework has; None where it is not known."""
    for pattern, why, instead in WORDS:
        if re.fullmatch(pattern, key):
            return HeddleError(f"[{where}] has no key '{key}'.", why, instead)
    return None
