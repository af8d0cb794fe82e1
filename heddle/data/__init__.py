"""How text becomes training samples: corpus → tokenizer → token files → samples. Nothing here needs torch."""

from heddle.data.corpus import Corpus, find_corpus
from heddle.data.documents import AnySamples, Documents, Trained, has_samples, samples_of
from heddle.data.prepare import prepare, prepared_for
from heddle.data.sampler import Samples
from heddle.data.tokenizer import Tokenizer, load_tokenizer
from heddle.data.tokens import (
    Meta,
    Prepared,
    TokenSplit,
    check_named,
    check_vocab,
    idle_rows,
    open_prepared,
    replaced_bytes,
)

__all__ = [
    "AnySamples",
    "Corpus",
    "Documents",
    "Meta",
    "Prepared",
    "Samples",
    "TokenSplit",
    "Tokenizer",
    "Trained",
    "check_named",
    "check_vocab",
    "find_corpus",
    "has_samples",
    "idle_rows",
    "load_tokenizer",
    "open_prepared",
    "prepare",
    "prepared_for",
    "replaced_bytes",
    "samples_of",
]
