"""What `heddle plan` prints of a job on a cluster: as JSON, or as a table and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heddle.cli.show.methods import show_methods
from heddle.cli.show.plan import show_best, show_choices, show_rank, show_reasons, show_training
from heddle.console import plain_console
from heddle.schedule.written import SEARCHED

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.data.useful import UsefulShare
    from heddle.planning.methods import Method
    from heddle.planning.request import PlanRequest
    from heddle.planning.search.explain import Explanation
    from heddle.planning.search.search import Search


class Asked(NamedTuple):
    """What is shown beside what was found."""

    own: dict[str, Any]  # the file's own plan, to be compared with the best one
    assumed: dict[str, Any]  # keys of [train] that nobody gave
    longest: bool  # samples are as long as the model allows, because nobody said how long
    price: float | None  # dollars per device-hour
    written: Path | None
    methods: Sequence[Method] = ()  # full, LoRA, QLoRA


def show_search(found: Search, request: PlanRequest, asked: Asked, reasons: Explanation | None, as_json: bool) -> None:
    """Print what was found for a job."""
    console = plain_console()
    if as_json:
        console.out(json.dumps(_facts(found, request, asked, reasons)))
        return
    show_choices(console, found, request.top)
    _show_assumed(console, found, asked)
    show_best(console, found)
    show_training(console, found, asked.price)
    if (useful := _useful(found)) is not None:
        console.print(useful.in_words(found.best.tokens_per_second), soft_wrap=True)
    _show_others(console, found, request)
    if asked.own:
        show_rank(console, found, asked.own)
    if reasons is not None:
        show_reasons(console, reasons)
    if asked.methods:
        show_methods(console, asked.methods)
    if asked.written is not None:
        ready = (
            "heddle train, prove and simulate" if found.job.data else "heddle prove and simulate; add [data] to train"
        )
        console.print(f"\nWritten to {asked.written}, ready for {ready}.", soft_wrap=True, markup=False)


def _useful(found: Search) -> UsefulShare | None:
    """What of its tokens is of use, where conversations are there to be looked at."""
    if found.job.data is None or not (found.job.data.chat or found.job.data.tokens):
        return None
    from heddle.data.useful import useful_share

    return useful_share(found.job)


def _facts(found: Search, request: PlanRequest, asked: Asked, reasons: Explanation | None) -> dict[str, Any]:
    from heddle.planning.search.search import summary

    facts = found.to_json(price=asked.price) | {"assumed": asked.assumed}
    if reasons is not None:
        facts["explanation"] = reasons.to_json()
    if (useful := _useful(found)) is not None:
        facts |= useful.to_json(found.best.tokens_per_second)
    if asked.methods:
        facts["methods"] = [method.to_json() for method in asked.methods]
    if request.fixed.get("schedule") == SEARCHED:
        facts["searched"] = [summary(one) for one in found.searched]
    if request.allow_delay:
        facts["late"] = [one.to_json() for one in found.late]
    return facts


def _show_assumed(console: Console, found: Search, asked: Asked) -> None:
    if "global_batch" in asked.assumed:
        console.print(
            f"No batch size is given: planned for global_batch = {found.job.train.global_batch}. "
            "The best plan depends on it: set --global-batch.",
            style="bold",
            soft_wrap=True,
        )
    if asked.longest:
        console.print(
            f"No sequence length is given: planned for the model's longest, {found.job.sequence:,} tokens. "
            "Set --sequence-length for another.",
            soft_wrap=True,
        )


def _show_others(console: Console, found: Search, request: PlanRequest) -> None:
    """Searched orders and late updates, where they were asked for."""
    from heddle.planning.search.late import late_in_words
    from heddle.planning.search.ordered import searched_in_words

    if request.fixed.get("schedule") == SEARCHED:
        none = "No searched order would be faster than the best named schedule."
        console.print(searched_in_words(found.searched[0], found.best) if found.searched else none, soft_wrap=True)
    if request.allow_delay:
        words = late_in_words(found.late[0], found.best) if found.late else "No plan with late updates would be faster."
        console.print(words, soft_wrap=True)
