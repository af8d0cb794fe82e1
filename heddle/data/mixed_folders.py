"""Several folders of prepared conversations as one, whose samples take turns by weight."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace

from heddle.data.documents import Documents, MixedDocuments, Trained
from heddle.data.tokens import DocumentSplit, Prepared, TokenSplit
from heddle.errors import HeddleError


def mixed(parts: list[Prepared], weights: list[float]) -> Prepared:
    """Several folders as one: samples take turns by weight."""

    def together(name: str) -> Trained:
        found = [(getattr(part, name), weight) for part, weight in zip(parts, weights, strict=True)]
        some = [
            (documents, weight) for documents, weight in found if isinstance(documents, Documents) and len(documents)
        ]
        if not some:
            return parts[0].validation if name == "validation" else parts[0].train
        return MixedDocuments(tuple(documents for documents, _ in some), tuple(weight for _, weight in some))

    metas = [part.meta for part in parts]
    first = metas[0]
    if len({meta.vocab for meta in metas}) > 1 or any(meta.chat is None for meta in metas):
        raise HeddleError(
            "The sources of the mixture have different tokenizers.",
            f"Their vocabularies have {', '.join(str(meta.vocab) for meta in metas)} tokens.",
            "Name one tokenizer for all.",
        )
    chats = [meta.chat for meta in metas if meta.chat is not None]
    meta = replace(
        first,
        train=_sum([meta.train for meta in metas], weights),
        validation=_sum([meta.validation for meta in metas], weights),
        source=replace(
            first.source,
            text=tuple(path for meta in metas for path in meta.source.text),
            files=sum(meta.source.files for meta in metas),
            documents=sum(meta.source.documents for meta in metas),
            bytes=sum(meta.source.bytes for meta in metas),
            empty=sum(meta.source.empty for meta in metas),
        ),
        chat=replace(
            chats[0],
            rows=sum(chat.rows for chat in chats),
            skipped=dict(sum((Counter(chat.skipped) for chat in chats), Counter())),
            train=_sum_documents([chat.train for chat in chats]),
            validation=_sum_documents([chat.validation for chat in chats]),
        ),
    )
    return Prepared(parts[0].folder, together("train"), together("validation"), meta)


def _sum(splits: list[TokenSplit], weights: list[float]) -> TokenSplit:
    digest = hashlib.sha256(json.dumps([[split.sha256 for split in splits], weights]).encode()).hexdigest()
    return TokenSplit(
        tokens=sum(split.tokens for split in splits),
        documents=sum(split.documents for split in splits),
        bytes=sum(split.bytes for split in splits),
        largest=max(split.largest for split in splits),
        sha256=digest,
    )


def _sum_documents(splits: list[DocumentSplit]) -> DocumentSplit:
    return DocumentSplit(
        learned=sum(split.learned for split in splits),
        longest=max(split.longest for split in splits),
        sha256=hashlib.sha256("".join(split.sha256 for split in splits).encode()).hexdigest(),
    )
