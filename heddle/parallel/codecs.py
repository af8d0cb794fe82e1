"""Codecs: numbers in fewer bits for slow links, as bytes that any transport carries, and error feedback.

A codec rounds to the nearest number that it can say. What it could not say is lost for a message that is sent once,
such as an activation. A sum over many steps loses nothing: with error feedback (Seide et al. 2014; Karimireddy et al.
2019, arXiv 1901.09847) it is added to what is meant the next time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.spec.network.compression import BITS, BLOCK, code_bytes


class Codec(ABC):
    """Turns the last dim of a tensor into bytes and back; all other dims are messages of their own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def size(self, count: int) -> int:
        """Bytes of a message of so many numbers."""
        return code_bytes(self.name, count)

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Bytes that stand for the numbers."""

    @abstractmethod
    def decode(self, code: Tensor, count: int) -> Tensor:
        """The numbers, in fp32, that the bytes stand for."""

    @abstractmethod
    def quantum(self, x: Tensor) -> Tensor:
        """How far apart two numbers are that it can say, there where each of these is."""


class Rounded(Codec):
    """Sixteen bits: fp32 with fewer digits, and the same range."""

    def encode(self, x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).contiguous().view(torch.uint8)

    def decode(self, code: Tensor, count: int) -> Tensor:
        assert code.shape[-1] == self.size(count)
        return code.view(torch.bfloat16).float()

    def quantum(self, x: Tensor) -> Tensor:
        exponent = torch.frexp(x.double().abs())[1]  # x = m · 2^e with m in [0.5, 1): eight bits of it are said
        return torch.ldexp(torch.ones_like(x, dtype=torch.float64), exponent - 8)


class Scaled(Codec):
    """Whole numbers of 8 or 4 bits, times a scale for every block: its largest number is said exactly.

    The scales follow the whole numbers. A block with a number that is not finite comes out as not finite, so that
    whoever looks for an overflow still finds it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.bits = BITS[name]
        self.top = 2 ** (self.bits - 1) - 1

    def encode(self, x: Tensor) -> Tensor:
        blocks = F.pad(x.float(), (0, -x.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
        scale = blocks.abs().amax(-1) / self.top
        steps = torch.where(scale > 0, scale, torch.ones_like(scale))
        whole = (blocks / steps[..., None]).round_().nan_to_num_(0.0).clamp_(-self.top, self.top).flatten(-2)
        if self.bits == 4:
            low, high = (whole + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
            codes = low | (high << 4)
        else:
            codes = whole.to(torch.int8).view(torch.uint8)
        return torch.cat([codes, scale.view(torch.uint8)], -1)

    def decode(self, code: Tensor, count: int) -> Tensor:
        blocks = -(-count // BLOCK)
        codes, scales = code.split([code.shape[-1] - 4 * blocks, 4 * blocks], -1)
        if self.bits == 4:
            whole = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).float() - 8
        else:
            whole = codes.view(torch.int8).float()
        scale = scales.contiguous().view(torch.float32)
        return (whole.unflatten(-1, (-1, BLOCK)) * scale[..., None]).flatten(-2)[..., :count]

    def quantum(self, x: Tensor) -> Tensor:
        blocks = F.pad(x.double(), (0, -x.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
        scale = blocks.abs().amax(-1, keepdim=True) / self.top
        return scale.expand_as(blocks).flatten(-2)[..., : x.shape[-1]]


CODECS: dict[str, Codec] = {"bf16": Rounded("bf16"), "int8": Scaled("int8"), "int4": Scaled("int4")}


class Feedback:
    """Error feedback on one sender: what a code could not say of one message is meant with the next."""

    def __init__(self, codec: Codec, like: Tensor) -> None:
        self.codec = codec
        self.residual = torch.zeros_like(like, dtype=torch.float32)

    def encode(self, x: Tensor) -> Tensor:
        """Bytes for the numbers and for what was left of the last ones."""
        return said(self.codec, self.residual, x)


def said(codec: Codec, residual: Tensor, x: Tensor) -> Tensor:
    """Bytes for numbers and for what was left, which becomes what they do not say."""
    code = codec.encode(residual.add_(x))
    residual.sub_(codec.decode(code, x.shape[-1]))
    # an overflow is told by the code; it must not stay
    residual.nan_to_num_(0.0, 0.0, 0.0)
    return code


class LinkFeedback:
    """The same for messages to several receivers, each in the code of its link; "none": as they are, in fp32."""

    def __init__(self, codes: Sequence[str], like: Tensor) -> None:
        """`like`: a row for each receiver."""
        self.codes = codes
        places = {code: [i for i, each in enumerate(codes) if each == code] for code in dict.fromkeys(codes)}
        # on the device from the beginning: the host would wait there for every list of numbers that it brings
        self.rows = {code: torch.tensor(rows, device=like.device) for code, rows in places.items()}
        self.alike = len(self.rows) == 1
        self.residual = torch.zeros_like(like, dtype=torch.float32)
        count = like.shape[1]
        self.sizes = [4 * count if code == "none" else CODECS[code].size(count) for code in codes]

    def encode(self, x: Tensor) -> Tensor:
        """The bytes of all messages, one after the other."""
        if self.alike:
            return said(CODECS[self.codes[0]], self.residual, x).view(-1)
        found: dict[str, Iterator[Tensor]] = {}
        for code, rows in self.rows.items():
            if code == "none":
                found[code] = iter(x[rows].view(torch.uint8))
            else:
                left = self.residual[rows]
                found[code] = iter(said(CODECS[code], left, x[rows]))
                self.residual[rows] = left
        return torch.cat([next(found[code]) for code in self.codes])

    def decode(self, received: Tensor) -> Tensor:
        """The numbers of such bytes, message by message, in fp32."""
        count = self.residual.shape[1]
        if self.alike:
            return CODECS[self.codes[0]].decode(received.view(len(self.sizes), -1), count)
        messages, numbers = received.split(self.sizes), torch.empty_like(self.residual)
        for code, rows in self.rows.items():
            some = torch.stack([message for message, its in zip(messages, self.codes, strict=True) if its == code])
            numbers[rows] = some.view(torch.float32) if code == "none" else CODECS[code].decode(some, count)
        return numbers

    def quanta(self, x: Tensor) -> Tensor:
        """Of each number that is about to be sent, the quantum of its link's code; 0 where it is sent as it is."""
        found = torch.zeros_like(x, dtype=torch.float64)
        for code, rows in self.rows.items():
            if code != "none":
                found[rows] = CODECS[code].quantum(self.residual[rows] + x[rows])
        return found
