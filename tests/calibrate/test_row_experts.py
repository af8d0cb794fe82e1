"""Rows of mixtures of experts: priced by what they state, refused where they do not state it."""

import pytest

from heddle.calibrate.row_words import CannotModelError
from heddle.calibrate.runs_csv import read_row
from heddle.simulating.closed_form import closed_form

MIXTRAL = {
    "id": "run", "step_s": "2.5", "model": "Mixtral-8x7B", "layers": "32", "hidden": "4096", "heads": "32",
    "kv_heads": "8", "ffn": "14336", "vocab": "32000", "seq": "4096", "gbs": "256", "mbs": "1", "tp": "1", "pp": "4",
    "dp": "16", "ep": "8", "gpu": "H100", "n_gpus": "64", "precision": "bf16", "framework": "Megatron-LM (core)",
    "experts": "8", "top_k": "2", "expert_ffn": "14336",
}  # fmt: skip


def row(**changes):
    return read_row("run", MIXTRAL | changes)


def seconds(each):
    return float(closed_form(each.work, each.cluster).seconds)


def test_a_mixture_is_priced_with_its_experts():
    each = row()
    assert each.group.endswith("experts")
    assert (each.work.experts, each.work.expert, each.work.top_k) == (8, 8, 2)
    assert each.work.layers * each.work.expert_parameters == 32 * 8 * 3 * 4096 * 14336
    assert row(ep="1").work.expert == 1


def test_columns_have_the_names_of_other_programs():
    renamed = {key: value for key, value in MIXTRAL.items() if key not in ("experts", "top_k")}
    with pytest.raises(CannotModelError, match=r"mixture|parallelism"):
        read_row("run", renamed)
    with pytest.raises(CannotModelError, match="top_k"):
        read_row("run", renamed | {"experts": "8"})


def test_first_layers_may_be_dense():
    each = row(dense_layers="2", shared_ffn="2048")
    assert [each.work.shapes[shape].experts for shape in each.work.shape_of] == [0, 0] + [8] * 30
    ranges = row(dense_layers="0-1, 31")
    assert [ranges.work.shapes[shape].experts for shape in ranges.work.shape_of] == [0, 0] + [8] * 29 + [0]


def test_forced_balance_takes_nobody_s_waiting_into_account():
    even = row(notes="forced balanced routing if experts")
    assert float(even.work.imbalance) == 1
    assert float(row().work.imbalance) > 1.1
    assert seconds(even) < seconds(row())


def test_a_pipeline_waits_for_the_rank_that_has_the_experts():
    """Two dense layers before two with experts: the second of two ranks has all of these."""
    small = {"layers": "4", "pp": "2", "dp": "8", "n_gpus": "16", "gbs": "256", "expert_ffn": "28672", "ep": "4"}
    apart = row(**small, dense_layers="2")
    mixed = row(**small, dense_layers="0, 2")
    assert seconds(apart) > 1.2 * seconds(mixed)
    held = [float(closed_form(each.work, each.cluster).memory) for each in (apart, mixed)]
    assert held[0] > 1.2 * held[1]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ep": "3"}, "ep = 3 does not divide"),
        ({"ep": "16", "dp": "16"}, "does not divide 8 experts"),
        ({"tp": "4", "dp": "4", "etp": "2", "ep": "4"}, "etp = 2 is neither"),
        ({"top_k": "9"}, "top_k"),
        ({"dense_layers": "0-40"}, "dense_layers"),
    ],
)
def test_what_no_run_can_have_been_is_refused(changes, why):
    with pytest.raises(Exception, match=why):
        row(**changes)


def test_heads_may_be_wider_than_their_share_of_the_model():
    """Qwen3-235B: 64 heads of 128 in a model of 4,096."""
    assert row(head_size="256").work.head_size == 256
    assert row().work.head_size == 128
    assert seconds(row(head_size="256")) > seconds(row())
