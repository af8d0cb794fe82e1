"""A trained model that continues texts: for `heddle.generate` and for the command, which prints them as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from heddle.checkpoint.load_model import load_for_inference
from heddle.data.template import find_template
from heddle.errors import HeddleError
from heddle.models.generate import generate
from heddle.spec.start import companions_in

MARK = "\ue000"  # stands for an answer where a template is asked what follows one


class TextModel:
    """The model of a run, its tokenizer, and what computes its logits."""

    def __init__(self, run: Path, tell: Callable[[str], Any], weights: str | None = None) -> None:
        self.run = run
        self.model, self.tokenizer = load_for_inference(run, tell)
        self.engine = None
        if weights is not None:
            from heddle.tiles.generate import TileEngine

            self.engine = TileEngine(self.model, weights=weights)

    def encode(self, prompt: str) -> list[int]:
        """The tokens of a prompt; of an empty one, the end of another text."""
        ids = [int(i) for i in self.tokenizer.encode(prompt)] or [self.tokenizer.end]
        if max(ids) >= self.model.spec.vocab:
            raise HeddleError(
                f"The prompt has the token {max(ids)}, which the model does not have.",
                f"Its vocabulary has the tokens 0 to {self.model.spec.vocab - 1}.",
                "Does the tokenizer belong to these weights?",
            )
        return ids

    def asked(self, question: str) -> tuple[list[int], list[int]]:
        """The tokens of a question as the chat template writes it, and those that end an answer."""
        template = find_template(None, Path(), companions_in(self.run), {})
        user = {"role": "user", "content": question}
        given, _ = template.write([user], prompt=True)
        whole, _ = template.write([user, {"role": "assistant", "content": MARK}])
        ending = whole.rpartition(MARK)[2].strip()
        return self.encode(given), [int(i) for i in self.tokenizer.encode(ending)]

    def continued(self, ids: Sequence[int], most: int, ending: Sequence[int] = (), **sampling: Any) -> Iterator[int]:
        """The tokens that follow, one at a time: until the text ends, or `ending` comes, and no more than `most`."""
        stream = generate(self.model, ids, engine=self.engine, **sampling)
        stream = takewhile(lambda token: token != self.tokenizer.end, islice(stream, most))
        return until(stream, list(ending)) if ending else stream


def until(stream: Iterator[int], ending: list[int]) -> Iterator[int]:
    """Everything before some tokens; the last few are held back, for they may be their beginning."""
    held: list[int] = []
    for token in stream:
        held.append(token)
        if held[-len(ending) :] == ending:
            held = held[: -len(ending)]
            break
        if len(held) >= len(ending):
            yield held.pop(0)
    yield from held
