"""One split of prepared documents as it is written: tokens, what is learned of them, and lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from heddle.data.template import Encoded
from heddle.data.tokens import (
    LEARNED,
    LENGTHS,
    LENGTHS_TYPE,
    DocumentSplit,
    TokenSplit,
    digest_documents,
    map_tokens,
    measure,
)


class DocumentFile:
    """One split as it is written: tokens, what is learned of them, and lengths."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype = folder / name, dtype
        self.files = [
            path.open("wb") for path in (self.path, self.path.with_suffix(LEARNED), self.path.with_suffix(LENGTHS))
        ]
        self.tokens = self.documents = self.bytes = self.learned = self.longest = 0

    def add(self, made: Encoded, size: int) -> None:
        """Take in a document that stands for `size` bytes of text."""
        tokens, learned, lengths = self.files
        tokens.write(made.ids.astype(self.dtype).tobytes())
        learned.write(made.learned.astype(np.uint8).tobytes())
        lengths.write(np.array([len(made.ids)], LENGTHS_TYPE).tobytes())
        self.tokens += len(made.ids)
        self.documents += 1
        self.bytes += size
        self.learned += int(made.learned[1:].sum())
        self.longest = max(self.longest, len(made.ids))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.close()

    def described(self) -> tuple[TokenSplit, DocumentSplit, float]:
        """What data.json says of it, and the entropy of its tokens."""
        found = measure(map_tokens(self.path, self.dtype))
        learned = map_tokens(self.path.with_suffix(LEARNED), "u1")
        lengths = map_tokens(self.path.with_suffix(LENGTHS), LENGTHS_TYPE)
        split = TokenSplit(
            tokens=self.tokens,
            documents=self.documents,
            bytes=self.bytes,
            largest=found.largest,
            sha256=found.sha256,
        )
        about = DocumentSplit(learned=self.learned, longest=self.longest, sha256=digest_documents(learned, lengths))
        return split, about, found.entropy
