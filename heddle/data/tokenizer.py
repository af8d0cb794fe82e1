"""Text to token ids and back: bytes, byte-level BPE trained on the spot, or a Hugging Face tokenizer.json."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import HeddleError, how_to_install, nearest, shorten
from heddle.spec.start import TOKENIZER_FILE
from heddle.spec.tables import read_foreign_json

if TYPE_CHECKING:
    import tokenizers

END = "<|endoftext|>"
END_NAMES = (
    END,
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<|endofsentence|>",
    "<｜end▁of▁sentence｜>",
)

BYTES = 256
SMALLEST_BPE = BYTES + 1  # every byte and the end of text; less cannot write every text
LARGEST_BPE = 1 << 22  # four times the largest in use
# Beyond this, merges hardly change, while training time and memory keep growing.
TRAINING_BYTES = 64 << 20

LONG_WORD = re.compile(r"(\w{64}|\s{64}|[^\w\s]{64})")  # the kinds of characters that stand together in a word

CONFIG_FILE = "tokenizer_config.json"

Ids = NDArray[np.unsignedinteger[Any]]


def token_dtype(vocab: int) -> np.dtype[Any]:
    """The smallest of the two types in which token ids are kept, little-endian on every machine."""
    return np.dtype("<u2" if vocab <= 1 << 16 else "<u4")


class Tokenizer(ABC):
    """Turns text into token ids. A text that spells out the end token, as some corpora do, gets its id."""

    vocab: int  # ids are smaller than this
    end: int  # the id that ends every document
    end_name: str

    @property
    def kind(self) -> str:
        """What tokenizer_config.json calls it."""
        return type(self).__name__

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without any token that is not in the text."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of any ids; where they are no UTF-8, U+FFFD stands."""

    @abstractmethod
    def to_json(self) -> str:
        """The tokenizer as a Hugging Face tokenizer.json."""

    def encode(self, text: str) -> Ids:
        """The ids of one text."""
        return self.encode_batch([text])[0]

    @abstractmethod
    def encode_with_ends(self, texts: Sequence[str]) -> list[tuple[Ids, NDArray[np.int64]]]:
        """The ids of each text, and where in it, in characters, each of them ends."""

    @property
    def beginning(self) -> list[int]:
        """The ids that the tokenizer puts before a text."""
        return []

    def save(self, folder: Path) -> None:
        """Write the two files that `load_tokenizer`, and Hugging Face's AutoTokenizer, read back."""
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": self.end_name,
            "heddle_kind": self.kind,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOKENIZER_FILE).write_text(self.to_json(), encoding="utf-8")
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class ByteTokenizer(Tokenizer):
    """A token a byte of UTF-8, and one more for the end of text: nothing to train, nothing to download."""

    vocab = BYTES + 1
    end = BYTES
    end_name = END

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encode(text.encode("utf-8", "replace")) for text in texts]

    def _encode(self, text: bytes) -> Ids:
        parts = [np.frombuffer(part, np.uint8).astype("<u2") for part in text.split(END.encode())]
        end = np.array([self.end], "<u2")
        return np.concatenate([parts[0], *(array for part in parts[1:] for array in (end, part))])

    def encode_with_ends(self, texts: Sequence[str]) -> list[tuple[Ids, NDArray[np.int64]]]:
        return [(self.encode(text), self._ends(text)) for text in texts]

    def _ends(self, text: str) -> NDArray[np.int64]:
        ends: list[int] = []
        for part in re.split(f"({re.escape(END)})", text):
            at = ends[-1] if ends else 0
            if part == END:
                ends.append(at + len(END))
            else:
                ends += [at + 1 + number for number, char in enumerate(part) for _ in char.encode("utf-8", "replace")]
        return np.array(ends, np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        raw = b"".join(bytes((i,)) if i < BYTES else END.encode() for i in map(int, ids))
        return raw.decode("utf-8", "replace")

    def to_json(self) -> str:
        # Byte-level BPE without merges is the same tokenizer; written so, any Hugging Face tool can read it.
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        end = {"id": self.end, "content": END, **flags, "special": True}
        model = {
            "type": "BPE",
            "vocab": {char: byte for byte, char in enumerate(_byte_names())},
            "merges": [],
        }
        parts = {"added_tokens": [end], "pre_tokenizer": level, "decoder": level, "model": model}
        empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
        return json.dumps({"version": "1.0", **empty, **parts}, ensure_ascii=False)


BYTE_KIND = ByteTokenizer.__name__


def _byte_names() -> list[str]:
    """The visible character that stands for each byte in a byte-level vocabulary, as GPT-2 chose them."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    spare = iter(range(BYTES, 2 * BYTES))
    return [chr(byte if byte in visible else next(spare)) for byte in range(BYTES)]


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of Hugging Face's `tokenizers` library."""

    def __init__(self, inner: tokenizers.Tokenizer, end_name: str) -> None:
        end = inner.token_to_id(end_name)
        assert end is not None, end_name
        # A tokenizer.json made for inference may cut every text at 512 tokens, or pad it, unseen.
        inner.no_truncation()
        inner.no_padding()
        self.inner = inner
        self.end, self.end_name = end, end_name
        self.vocab = max(inner.get_vocab(with_added_tokens=True).values()) + 1  # ids may have gaps

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        dtype = token_dtype(self.vocab)
        # "fast" leaves out where in the text each token came from, which costs more than the ids.
        try:
            encoded = self.inner.encode_batch_fast(texts, add_special_tokens=False)
        except Exception as error:  # the library raises nothing more precise
            raise HeddleError(
                "The tokenizer cannot encode this text.",
                f"It says: {shorten(str(error))}",
                "A tokenizer that does not know every character needs an unknown token in its vocabulary.",
            ) from None
        return [np.array(each.ids, dtype) for each in encoded]

    def encode(self, text: str) -> Ids:
        # A prompt typed into a terminal may hold bytes that are no UTF-8, which the library would not take.
        return super().encode(text.encode("utf-8", "replace").decode())

    def encode_with_ends(self, texts: Sequence[str]) -> list[tuple[Ids, NDArray[np.int64]]]:
        dtype = token_dtype(self.vocab)
        encoded = self.inner.encode_batch(list(texts), add_special_tokens=False)
        return [(np.array(each.ids, dtype), np.array([end for _, end in each.offsets], np.int64)) for each in encoded]

    @cached_property
    def beginning(self) -> list[int]:
        with_all, without = (self.inner.encode("a", add_special_tokens=each).ids for each in (True, False))
        at = next((i for i in range(len(with_all)) if with_all[i : i + len(without)] == without), 0)
        return list(with_all[:at])

    def decode(self, ids: Iterable[int]) -> str:
        return str(self.inner.decode([int(i) for i in ids], skip_special_tokens=False))

    def to_json(self) -> str:
        return str(self.inner.to_str())


def train_bpe(size: int, texts: Iterable[str]) -> HuggingFaceTokenizer:
    """Learn a byte-level BPE vocabulary of at most `size` tokens; the same texts give the same one."""
    library = _library()
    level = library.pre_tokenizers.ByteLevel
    inner = library.Tokenizer(library.models.BPE())
    inner.pre_tokenizer = level(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[END],
        initial_alphabet=level.alphabet(),  # all 256 bytes, so that text unlike the corpus can be written too
        show_progress=False,
    )
    inner.train_from_iterator((piece for text in texts for piece in _without_long_words(text)), trainer)
    return HuggingFaceTokenizer(inner, END)


def _without_long_words(text: str) -> Iterator[str]:
    """The text in pieces, cut inside words that nobody writes: a line of dashes, padding, base64.

    The trainer counts the pairs of a word again after every merge in it, so one run of a hundred thousand equal
    characters takes half a minute. A token longer than a piece would stand for nothing but such runs.
    """
    return (piece for piece in LONG_WORD.split(text) if piece)


def read_tokenizer_json(path: Path) -> HuggingFaceTokenizer:
    """Open a tokenizer.json; its end of text is what its configuration names, or one of the usual names."""
    table = read_foreign_json(path, "a Hugging Face tokenizer")
    inner = _open(path)
    config = path.with_name(CONFIG_FILE)
    named = read_foreign_json(config, "a tokenizer's configuration").get("eos_token") if config.is_file() else None
    if isinstance(named, dict):
        named = named.get("content")
    for name in (named, *END_NAMES):
        if isinstance(name, str) and inner.token_to_id(name) is not None:
            return HuggingFaceTokenizer(inner, name)
    added = table.get("added_tokens")
    special = (
        [str(token.get("content")) for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    )
    raise HeddleError(
        f"{path} has no end-of-text token.",
        f"Documents are separated by one of {' '.join(END_NAMES)}; its special tokens are {special[:10]}.",
        f'Name it in {CONFIG_FILE} next to the file: {{"eos_token": "…"}}.',
    )


def vocabulary(path: Path) -> dict[str, int]:
    """The tokens of a tokenizer.json, and their numbers."""
    return dict(_open(path).get_vocab(with_added_tokens=True))


def _open(path: Path) -> Any:
    try:
        return _library().Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise HeddleError(
            f"{path} is not a tokenizer.",
            f"{shorten(str(error))}.",
            "It should be the tokenizer.json of a model from Hugging Face.",
        ) from None


def check_tokenizer(word: str, base: Path) -> int | Path | None:
    """Read the word of data.tokenizer: a vocabulary size for BPE, a path, or None for bytes."""
    if word == "bytes":
        return None
    kind, _, size = word.partition(":")
    if kind == "bpe":
        if not (size.isascii() and size.isdecimal() and len(size) < 9) or not SMALLEST_BPE <= int(size) <= LARGEST_BPE:
            raise HeddleError(
                f"data.tokenizer = '{word}' does not have a valid vocabulary size.",
                f"BPE needs a number of tokens, {SMALLEST_BPE} at least: {BYTES} bytes and the end of text. "
                f"{LARGEST_BPE:,} are the most.",
                "For example 'bpe:8192'.",
            )
        return int(size)
    if (base / word).is_file():
        return base / word
    if (base / word / TOKENIZER_FILE).is_file():
        return base / word / TOKENIZER_FILE
    if "/" in word or word.endswith(".json"):
        raise HeddleError(
            f"There is no tokenizer at {base / word}.",
            f"data.tokenizer = '{word}' looks like the path of a tokenizer.json.",
            "'bytes' and 'bpe:8192' need no file.",
        )
    raise HeddleError(
        f"data.tokenizer = '{word}' is not known.",
        "It must be a kind of tokenizer, or the path of an existing file.",
        nearest(word, ("bytes", "bpe:8192", "path/to/tokenizer.json")),
    )


def make_tokenizer(word: str, base: Path, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """The tokenizer that data.tokenizer asks for; `texts` are called for only if it has to be trained."""
    kind = check_tokenizer(word, base)
    if kind is None:
        return ByteTokenizer()
    if isinstance(kind, Path):
        return load_tokenizer(kind.parent) if kind.name == TOKENIZER_FILE else read_tokenizer_json(kind)
    return train_bpe(kind, texts())


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer of a prepared folder or of a run."""
    folder = Path(folder)
    if not (folder / TOKENIZER_FILE).is_file():
        raise HeddleError(
            f"There is no tokenizer in {folder}.",
            f"A folder made by `heddle data prepare` or by a run holds a {TOKENIZER_FILE}.",
            "Is this the right folder?",
        )
    config = folder / CONFIG_FILE
    kind = read_foreign_json(config, "a tokenizer's configuration").get("heddle_kind") if config.is_file() else None
    return ByteTokenizer() if kind == BYTE_KIND else read_tokenizer_json(folder / TOKENIZER_FILE)


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise HeddleError(
            "The library 'tokenizers' is not installed.",
            "BPE and tokenizer.json files need it.",
            f"Install it: {how_to_install('train')}. Or use data.tokenizer = 'bytes'.",
        ) from None
    return tokenizers
