"""How well a trained model predicts texts: perplexity over all tokens of files, or over what is learned of chats."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heddle.data import Documents, Tokenizer, find_corpus
from heddle.data.chat_writer import ChatTally, ChatWriter
from heddle.data.rows import find_rows
from heddle.data.template import find_template
from heddle.errors import HeddleError
from heddle.models import Microbatch, Transformer
from heddle.parallel.context.held import Held
from heddle.parallel.mesh import Axis
from heddle.spec.data import Data
from heddle.spec.model import IGNORE

TOKENS_AT_ONCE = 8192  # of windows that are computed together


@dataclass(frozen=True)
class Perplexity:
    """What a model makes of some texts."""

    tokens: int  # that were predicted
    loss: float  # nats per token
    bytes: int  # of the text that the tokens stand for; 0 where only a part of it was predicted

    @property
    def perplexity(self) -> float:
        """Among how many equally likely tokens the model would be as unsure."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float | None:
        """The loss in a unit that does not depend on the tokenizer; None where not all of a text was predicted."""
        return self.loss * self.tokens / math.log(2) / self.bytes if self.bytes else None


def text_perplexity(model: Transformer, tokenizer: Tokenizer, files: tuple[str, ...], sequence: int) -> Perplexity:
    """Of every token of some files but the very first, in windows that do not overlap; each sees its own window."""
    parts, size = [], 0
    end = np.array([tokenizer.end], np.int64)
    for piece in find_corpus(files, Path()).pieces():
        parts.append(tokenizer.encode(piece.text).astype(np.int64))
        size += piece.size
        if piece.last:
            parts.append(end)
    return tokens_perplexity(model, np.concatenate([np.empty(0, np.int64), *parts]), sequence, size)


def tokens_perplexity(model: Transformer, tokens: NDArray[Any], sequence: int, size: int) -> Perplexity:
    """The same of tokens that stand for `size` bytes."""
    if len(tokens) < 2:
        raise HeddleError("There is nothing to evaluate.", "There are fewer than two tokens.", "Use more text.")
    ids = torch.from_numpy(tokens.astype(np.int64))
    check_ids(model, int(ids.max()))
    total = sum(_loss_sum(model, inputs, targets) for inputs, targets in _windows(ids, sequence))
    return Perplexity(len(ids) - 1, total / (len(ids) - 1), size)


def check_ids(model: Transformer, largest: int) -> None:
    """Refuse tokens that the model has no row for."""
    if largest >= model.spec.vocab:
        raise HeddleError(
            f"The text has the token {largest}, which the model does not have.",
            f"Its vocabulary has the tokens 0 to {model.spec.vocab - 1}.",
            "Does the tokenizer belong to these weights?",
        )


def _windows(ids: Tensor, sequence: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets, several windows of equal length at a time; the last one may be shorter."""
    whole = (len(ids) - 1) // sequence
    together = max(1, TOKENS_AT_ONCE // sequence)
    for first in range(0, whole, together):
        start, stop = first * sequence, min(first + together, whole) * sequence
        yield ids[start:stop].view(-1, sequence), ids[start + 1 : stop + 1].view(-1, sequence)
    if rest := (len(ids) - 1) % sequence:
        yield ids[-rest - 1 : -1][None], ids[-rest:][None]


@torch.no_grad()
def _loss_sum(model: Transformer, inputs: Tensor, targets: Tensor) -> float:
    device = next(model.parameters()).device
    batch = Microbatch(sequence=inputs.shape[1], targets=targets.flatten().to(device), count=1.0)
    return float(model(inputs.flatten().to(device), batch))


def chat_perplexity(
    model: Transformer, tokenizer: Tokenizer, files: tuple[str, ...], sequence: int, companions: Path
) -> Perplexity:
    """Of what the assistant wrote in conversations, each by itself and cut where a sample ends."""
    data = Data(chat=files)
    writer = ChatWriter(find_template(None, Path(), companions, {}), tokenizer, data)
    made = [encoded for _, _, encoded in writer.encoded(find_rows(files, Path()), None, ChatTally())]
    if not made:
        raise HeddleError("There is nothing to evaluate.", "No conversation has an answer.", "Use other files.")
    tokens, learned = (np.concatenate(part) for part in zip(*made, strict=True))
    check_ids(model, int(tokens.max()))
    documents = Documents(tokens, learned, np.array([len(each.ids) for each in made]), tokenizer.end)
    return documents_perplexity(model, documents, sequence)


@torch.no_grad()
def documents_perplexity(model: Transformer, documents: Documents, sequence: int) -> Perplexity:
    """Of the tokens that are learned of documents."""
    samples, device = documents.samples(sequence, seed=0), next(model.parameters()).device
    held = Held(sequence, Axis(), device)
    total, count, together = 0.0, 0, max(1, TOKENS_AT_ONCE // sequence)
    for first in range(0, samples.count, together):
        numbers = range(first, min(first + together, samples.count))
        inputs, targets = (torch.from_numpy(part).flatten().to(device) for part in samples.batch_of(numbers))
        plain = held.microbatch(samples.lengths_of(numbers))
        batch = Microbatch(
            sequence=sequence,
            targets=targets,
            count=1.0,
            positions=plain.positions,
            length=plain.length,
            documents=plain.documents,
        )
        total += float(model(inputs, batch))
        count += int((targets != IGNORE).sum())
    return Perplexity(count, total / count, 0)
