"""How much of what a job computes is of any use: padding is computed and thrown away, most of a prompt is only read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heddle.data.conversations import kept_conversations
from heddle.data.documents import Documents, MixedDocuments, has_samples
from heddle.data.tokens import META_FILE, Prepared, open_prepared
from heddle.errors import HeddleError
from heddle.format import short_figures
from heddle.spec.data import Data
from heddle.spec.job import Job


@dataclass(frozen=True)
class UsefulShare:
    """Of all tokens of a step, those of conversations rather than of padding, and those that are learned."""

    filled: float
    learned: float

    def in_words(self, tokens_per_second: float) -> str:
        """For a speed."""
        filled, learned = (short_figures(share * tokens_per_second) for share in (self.filled, self.learned))
        return (
            f"of these, {filled} tokens/s are of conversations ({self.filled:.1%}; the rest is padding) "
            f"and {learned} are learned ({self.learned:.1%})"
        )

    def of_a_step(self, tokens: int) -> str:
        """For the tokens of a step."""
        filled, learned = (f"{round(share * tokens):,}" for share in (self.filled, self.learned))
        return (
            f"Of the {tokens:,} tokens of a step, {filled} are of conversations ({self.filled:.1%}; the rest is "
            f"padding) and {learned} are learned ({self.learned:.1%})."
        )

    def to_json(self, tokens_per_second: float) -> dict[str, float]:
        """Plain data."""
        return {
            "filled": self.filled,
            "learned": self.learned,
            "useful_tokens_per_second": self.filled * tokens_per_second,
        }


def useful_share(job: Job) -> UsefulShare | None:
    """That of a job's conversations, if they were made into tokens before; None where every token is learned."""
    if job.data is None:
        return None
    try:
        prepared = _prepared(job.data)
        if prepared is None or not isinstance(prepared.train, Documents | MixedDocuments):
            return None
        if not has_samples(prepared.train, job.sequence):
            return None
        samples = prepared.train.samples(job.sequence, job.train.seed)
    except (HeddleError, OSError):  # whoever trains is told; a prediction needs no data
        return None
    return UsefulShare(samples.fill, samples.learned)


def _prepared(data: Data) -> Prepared | None:
    if data.tokens is not None:
        folder = Path(data.tokens)
        return open_prepared(folder, verify=False, pack=data.pack) if (folder / META_FILE).is_file() else None
    return kept_conversations(data, Path()) if data.chat else None
