"""An index places every number of every tensor exactly once, or is refused, whoever computed its checksums."""

import json
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heddle.checkpoint.checkpoint import damage
from heddle.checkpoint.index import Stored, StoredTensor, check_shapes, not_a_cover, read_index
from heddle.checkpoint.manifest import read_about, read_progress, write_about
from heddle.checkpoint.source import find_source
from heddle.checkpoint.storage import write_file
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from tests.checkpoint.test_checkpoint import saved
from tests.helpers.clock import growth


def tensor(shape: tuple[int, ...], *boxes: tuple[tuple[int, ...], tuple[int, ...]]) -> StoredTensor:
    return StoredTensor("F32", shape, tuple(Stored("f", str(i), *box) for i, box in enumerate(boxes)))


def covered_by_counting(found: StoredTensor) -> bool:
    """What `not_a_cover` has to find, number by number."""
    counts = torch.zeros(found.shape, dtype=torch.int64)
    for box in found.boxes:
        if any(end > size for end, size in zip(box.end, found.shape, strict=True)):
            return False
        counts[tuple(map(slice, box.offset, box.end))] += 1
    return bool((counts == 1).all())


@st.composite
def cuts(draw, dims: int):
    """A tensor cut into boxes along a grid and then into parts of rows; sometimes a box is moved or changed."""
    shape = tuple(draw(st.integers(1, 6)) for _ in range(dims))
    bounds = [sorted({0, size, *draw(st.sets(st.integers(0, size), max_size=2))}) for size in shape]
    boxes = [
        (tuple(low for low, _ in each), tuple(high - low for low, high in each))
        for each in product(*(list(pairwise(b)) for b in bounds))
    ]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(boxes) - 1))
        offset, size = boxes[at]
        if draw(st.booleans()):
            offset = tuple(draw(st.integers(0, 4)) for _ in shape)
        else:
            size = tuple(draw(st.integers(1, 4)) for _ in shape)
        boxes[at] = (offset, size)
    return tensor(shape, *draw(st.permutations(boxes)))


@given(st.integers(1, 3).flatmap(cuts))
def test_a_cover_is_what_counting_finds(found):
    assert (not_a_cover(found) is None) == covered_by_counting(found)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (tensor((4, 4), ((0, 0), (2, 4)), ((0, 0), (2, 4))), "overlap at [0, 0]"),
        (tensor((4,), ((0,), (2,)), ((1,), (2,))), "overlap at [1]"),
        (tensor((4,), ((0,), (2,)), ((3,), (2,))), "from [3] to [5], which lies outside"),
        (tensor((4,), ((0,), (3,))), "boxes for 3 of its 4 numbers"),
        (tensor((4,), ((0,), (4,)), ((0,), (0,))), "an empty box at [0]"),
        (tensor((4, 4), ((0,), (16,))), "a box of 1 dims"),
        (tensor((4,)), "boxes for 0 of its 4 numbers"),
    ],
)
def test_what_is_wrong_is_told(found, told):
    assert told in not_a_cover(found)


def test_boxes_take_time_by_their_number_not_by_pairs():
    def columns(count):
        tops, below = ([((row, at), (rows, 1)) for at in range(count)] for row, rows in ((0, 1), (1, 9)))
        return tensor((10, count), *tops, *below)

    few, many = columns(1000), columns(10_000)
    assert not_a_cover(many) is None
    assert growth(lambda: not_a_cover(few), lambda: not_a_cover(many)) < 30


def signed(checkpoint: Path, change) -> None:
    """Change an index, and compute all checksums anew, as somebody would who means it."""
    path = checkpoint / "index.json"
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))
    about = read_about(checkpoint)
    more = {key: about[key] for key in about if key not in ("format", "progress", "checksums", "checksum")}
    write_about(checkpoint, read_progress(checkpoint), **more)


def shifted(table) -> None:
    """Two halves that both lie on the first: as many numbers as the tensor has, and half of it never read."""
    (box,) = table["embed.tokens.weight"]["boxes"]
    rows, width = box["shape"]
    half = rows // 2
    table["embed.tokens.weight"]["shape"] = [2 * half, width]
    halves = [box | {"shape": [half, width]}, box | {"shape": [half, width], "offset": [0, 0]}]
    table["embed.tokens.weight"]["boxes"] = halves


def test_a_signed_index_that_covers_a_tensor_twice_and_not_at_all_is_refused(tmp_path):
    saved(tmp_path, 1)
    checkpoint = tmp_path / "step-00000001"
    assert damage(checkpoint, Mesh()) is None
    signed(checkpoint, shifted)
    with pytest.raises(HeddleError, match="two boxes that overlap"):
        read_index(checkpoint)
    with pytest.raises(HeddleError, match="is not intact"):
        find_source(checkpoint, Mesh(), print)


def shared(table) -> None:
    """Two tensors of one shape, of which the second is read where the first lies."""
    table["layers.0.mlp_norm.weight"]["boxes"] = table["layers.0.attention_norm.weight"]["boxes"]


def test_a_signed_index_in_which_two_tensors_share_a_place_is_refused(tmp_path):
    saved(tmp_path, 1)
    checkpoint = tmp_path / "step-00000001"
    signed(checkpoint, shared)
    told = "layers.0.attention_norm.weight and layers.0.mlp_norm.weight both lie under the key"
    with pytest.raises(HeddleError, match=told):
        read_index(checkpoint)
    assert told in damage(checkpoint, Mesh())


def test_an_index_may_name_no_file_that_cannot_be(tmp_path, monkeypatch):
    saved(tmp_path, 1)
    checkpoint = tmp_path / "step-00000001"
    for name in ("a\0b", "..", "", "/", "a/b"):
        signed(checkpoint, lambda table, name=name: table["norm.weight"]["boxes"][0].update(file=name))
        with pytest.raises(HeddleError, match="names the file"):
            read_index(checkpoint)


def test_a_file_that_holds_less_than_its_index_says_is_refused(tmp_path):
    """One number would be read as a whole row: torch repeats it without a word."""
    saved(tmp_path, 1)
    checkpoint = tmp_path / "step-00000001"
    index = read_index(checkpoint)
    held = {box.key: torch.zeros(box.shape) for each in index.values() for box in each.boxes}
    (box,) = index["embed.tokens.weight"].boxes
    write_file(checkpoint / box.file, (held | {box.key: torch.zeros(1, 1)}).items())
    assert f"Tensor {box.key} is F32 of [1, 1], the index says F32 of [31, 16]" in damage(checkpoint, Mesh())
    write_file(checkpoint / box.file, (held | {box.key: torch.zeros(box.shape).half()}).items())
    assert f"Tensor {box.key} is F16" in damage(checkpoint, Mesh())


def test_what_is_missing_misshapen_or_left_over_is_named():
    with pytest.raises(HeddleError) as told:
        check_shapes(Path("x"), {"a": (1,), "b": (2, 3)}, {"b": (3, 2), "c": (4,)})
    assert told.value.why == "a is 1, wanted not there; b is 2 × 3, wanted 3 × 2; c is not there, wanted 4 (3 differ)."
