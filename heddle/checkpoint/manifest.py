"""What a checkpoint says about itself, in small files with checksums: how far the run had come, its job, its index."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from heddle.checkpoint.index import INDEX
from heddle.checkpoint.tensors import header_of
from heddle.durable import write_through
from heddle.errors import HeddleError
from heddle.spec.ranges import CountOrZero, Range
from heddle.spec.start import ABOUT, JOB, MODEL
from heddle.spec.tables import build, read_json

FORMAT = 1
OTHERS = (INDEX, JOB, MODEL)


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what is needed, beside the tensors, to go on as if it had never stopped."""

    step: CountOrZero
    samples: Annotated[int, Range("[0, 1e18]")]  # the sampler's position
    updates: CountOrZero  # steps that changed the weights: under fp16 some do not
    loss_scale: Annotated[float, Range("(0, ∞)")]
    quiet_steps: CountOrZero


def write_about(checkpoint: Path, progress: Progress, parts: dict[str, str] | None = None, **more: Any) -> None:
    """Write the last file of a checkpoint, with the checksums of the other descriptions and of itself.

    `parts` are the header's checksums of files with tensors that are not in the folder.
    """
    sums = {name: _sum(checkpoint / name) for name in OTHERS if (checkpoint / name).is_file()}
    if parts is None:
        parts = {path.name: header_sum(path) for path in sorted(checkpoint.glob("*.safetensors"))}
    about = {"format": FORMAT, "progress": asdict(progress), **more, "checksums": sums, "parts": parts}
    write_through(checkpoint / ABOUT, json.dumps(about | {"checksum": _own_sum(about)}, indent=2))


def read_about(checkpoint: Path) -> dict[str, Any]:
    """What stands in that file."""
    about = read_json(checkpoint / ABOUT, "what a checkpoint says about itself")
    if about.get("format") != FORMAT or not all(isinstance(about.get(key), dict) for key in ("progress", "checksums")):
        raise HeddleError(
            f"{checkpoint / ABOUT} has a format that this version of Heddle cannot read.",
            f"It reads format {FORMAT}.",
            "Use another checkpoint, or copy this one again.",
        )
    return about


def read_progress(checkpoint: Path) -> Progress:
    """How far the run had come."""
    return build(Progress, read_about(checkpoint)["progress"], "progress")


def check_about(checkpoint: Path) -> None:
    """Refuse a last file that has changed: a wrong number in it would be trained on."""
    about = read_about(checkpoint)
    written = about.pop("checksum", None)
    _compare(checkpoint / ABOUT, _own_sum(about), written)


def check_others(checkpoint: Path) -> None:
    """Refuse a checkpoint whose other descriptions are missing or have changed."""
    for name, written in read_about(checkpoint)["checksums"].items():
        if name in OTHERS:
            if not (checkpoint / name).is_file():
                raise HeddleError(
                    f"{checkpoint / name} is missing.",
                    "The checkpoint was written with it.",
                    "Use another checkpoint, or copy this one again.",
                )
            _compare(checkpoint / name, _sum(checkpoint / name), written)


def header_sum(part: Path) -> str:
    """Of the header of a safetensors file. It has the checksums of its tensors, so it stands for all of the file."""
    return sum_of(header_of(part))


def sum_of(content: bytes) -> str:
    """The checksum that checkpoints use."""
    return f"{zlib.crc32(content):08x}"


def part_sums(checkpoint: Path) -> dict[str, Any] | None:
    """The header's checksum of each file with tensors; None in checkpoints of versions that did not write them."""
    parts = read_about(checkpoint).get("parts")
    if parts is not None and not isinstance(parts, dict):
        raise HeddleError(
            f"{checkpoint / ABOUT} is damaged.",
            "Its 'parts' should be the checksums of the files with tensors.",
            "Use another checkpoint, or copy this one again.",
        )
    return parts


def check_part(part: Path, sums: dict[str, Any] | None) -> None:
    """Refuse a file that is whole, but of another checkpoint: its numbers are of another step."""
    if sums is not None and header_sum(part) != sums.get(part.name):
        raise HeddleError(
            f"{part} belongs to another checkpoint.",
            f"Its header has checksum {header_sum(part)}; this checkpoint was written with {sums.get(part.name)}.",
            "Use another checkpoint, or copy this one again.",
        )


def _compare(path: Path, found: str, written: object) -> None:
    if found != written:
        raise HeddleError(
            f"{path} is damaged.",
            f"Its checksum is {found}; it was written with {written}.",
            "Use another checkpoint, or copy this one again.",
        )


def _sum(path: Path) -> str:
    return sum_of(path.read_bytes())


def _own_sum(about: dict[str, Any]) -> str:
    """Of what is said, however it is spaced."""
    return sum_of(json.dumps(about, sort_keys=True).encode())
