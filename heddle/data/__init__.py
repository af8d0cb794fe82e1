"""How text becomes training samples: corpus → tokenizer → token files → samples. Nothing here needs torch."""

from heddle.data.corpus import Corpus, find_corpus
from heddle.data.prepare import prepare, prepared_for
from heddle.data.sampler import Samples
from heddle.data.tokenizer import Tokenizer, load_tokenizer
from heddle.data.tokens import Meta, Prepared, TokenSplit, check_vocab, open_prepared

__all__ = [
    "Corpus",
    "Meta",
    "Prepared",
    "Samples",
    "TokenSplit",
    "Tokenizer",
    "check_vocab",
    "find_corpus",
    "load_tokenizer",
    "open_prepared",
    "prepare",
    "prepared_for",
]
