"""What rows of single trainers are read as: how states are shared, what is cast, what the loss is made of."""

import math

import pytest

from heddle.calibrate.row_words import cluster_of, shard_ranks
from heddle.calibrate.runs_csv import Row, read_row
from heddle.simulating.closed_form import closed_form

ROW = {
    "step_s": "1", "layers": "32", "hidden": "4096", "heads": "32", "vocab": "32000", "seq": "4096", "gbs": "2048",
    "mbs": "1", "tp": "1", "pp": "1", "dp": "512", "n_gpus": "512", "gpu": "H100", "zero": "1", "precision": "bf16",
}  # fmt: skip


def row(**changes: str) -> Row:
    return read_row("a row", ROW | changes)


def seconds(**changes: str) -> float:
    found = row(**changes)
    return float(closed_form(found.work, found.cluster).seconds)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ({}, math.inf),
        ({"shard_ranks": "16"}, 16),
        ({"notes": "zero1=8"}, 8),
        ({"notes": "zero1=-1"}, math.inf),
        ({"notes": "FSDP 128 to 256 x data; remat"}, 256),
        ({"zero": "3 (HSDP)"}, 8),
    ],
)
def test_hybrid_sharding_is_read_from_words(text, ranks):
    assert shard_ranks(text, 8) == ranks


def test_states_that_a_node_shares_stay_in_it():
    """Gathers need no network then, each rank holds more, and gradients are summed over all ranks as ever."""
    wide, near = row(zero="3"), row(zero="3", shard_ranks="8")
    wide_step, near_step = (closed_form(each.work, each.cluster) for each in (wide, near))
    assert float(near_step.seconds) < float(wide_step.seconds)
    assert float(near_step.memory) > 1.5 * float(wide_step.memory)
    alone = closed_form(row(zero="3", shard_ranks="512").work, wide.cluster)
    assert float(alone.seconds) == float(wide_step.seconds)


def test_parameters_that_owners_broadcast_take_longer_the_more_ranks_there_are():
    """Each broadcast passes slices from rank to rank; with a shard in each node it does not leave it."""
    evo = {"framework": "InternEvo", "gpu": "A100-80GB", "interconnect": "4x100Gb/s per node", "attn": "flash2"}
    few, many = (seconds(dp=n, n_gpus=n, gbs=str(4 * int(n)), **evo) for n in ("64", "512"))
    plain = seconds(software="heddle", **evo)
    near = seconds(notes="zero1=8", **evo)
    assert row(**evo).software.profile == "internevo"
    assert many > few + 0.5
    assert many > plain + 0.3
    assert near < many - 0.5


def test_eight_bit_casts_depend_on_the_recipe():
    def facts(**changes: str) -> tuple[float, float]:
        work = row(precision="fp8", framework="NeMo Megatron-Core") if not changes else row(**changes)
        return float(work.work.fused_casts), float(work.work.cast_reads)

    assert facts() == (0.5, 1)
    assert facts(precision="fp8", framework="NeMo Megatron-Bridge") == (0.0, 1)
    assert facts(precision="mxfp8", framework="NeMo Megatron-Core", gpu="B200") == (0.0, 1)
    assert facts(precision="fp8", framework="NeMo Megatron-Core", notes="current scaling") == (0.0, 1)


def test_a_fused_loss_is_quicker_and_keeps_less():
    plain, fused = (
        row(framework="Megatron-Core", vocab="256000", notes=notes) for notes in ("", "fused cross-entropy")
    )
    (a, b) = (closed_form(each.work, each.cluster) for each in (plain, fused))
    assert float(b.seconds) < float(a.seconds)
    assert float(b.memory) < float(a.memory)


def test_memory_that_tensors_had_is_compared_without_slack():
    assert row(notes="mem_gb is max allocated").allocated
    assert not row().allocated


def test_an_embedding_may_count_as_a_layer_of_a_pipeline():
    found = row(layers="126", pp="16", vpp="8", dp="32", gbs="2048", heads="128", hidden="16384")
    assert found.work.virtual == 7
    assert "vpp = 7" in found.assumed


def test_what_maxtext_keeps_is_not_computed_again():
    jax = {"framework": "MaxText (JAX)", "zero": "3", "recompute": "full", "mbs": "4"}
    assert seconds(notes="remat save_qkv_proj", **jax) < seconds(**jax)


def test_kempnerforge_has_no_full_precision_copies():
    forge, titan = (
        row(framework=name, zero="3", dp="1", n_gpus="1", gbs="2") for name in ("KempnerForge", "torchtitan")
    )
    held = [float(closed_form(each.work, each.cluster).memory) for each in (forge, titan)]
    assert held[0] < 0.7 * held[1]
    split = [
        seconds(framework=name, zero="3", tp="4", dp="1", n_gpus="4", gbs="2", seq_par="1")
        for name in ("KempnerForge", "torchtitan")
    ]
    assert split[0] > split[1]  # five sums where torchtitan has two


@pytest.mark.parametrize(
    ("gpu", "preset"),
    [
        ("GB300", "gb300-nvl72"),
        ("NVIDIA B300", "dgx-b300"),
        ("H800", "dgx-h800"),
        ("H20-96GB", "dgx-h20"),
        ("Tesla V100", "dgx-v100"),
        ("L40S", "l40s"),
        ("RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("TPU v6e", "tpu-v6e"),
        ("Ironwood", "tpu-v7"),
        ("Trainium2", "trn2"),
    ],
)
def test_devices_are_known_by_their_names(gpu, preset):
    assert cluster_of({"gpu": gpu}).name == preset
