"""Rows of measured runs: read as people write them, refused with a reason where they cannot be modeled."""

from pathlib import Path

import pytest

from heddle.calibrate.row_words import CannotModelError, cluster_of, network_of
from heddle.calibrate.runs_csv import read_row, read_rows
from heddle.errors import HeddleError

GPT = {
    "id": "run", "step_s": "2.5", "layers": "24", "hidden": "2048", "heads": "16", "vocab": "50257", "seq": "1024",
    "gbs": "64", "mbs": "2", "tp": "2", "pp": "2", "dp": "4", "gpu": "A100", "n_gpus": "16", "precision": "fp16",
    "attn": "unfused", "recompute": "full", "framework": "Megatron-LM",
}  # fmt: skip


def row(**changes):
    return read_row("run", GPT | changes)


@pytest.mark.parametrize(
    ("word", "name", "memory"),
    [
        ("A100", "dgx-a100-80gb", 80),
        ("A100-80GB", "dgx-a100-80gb", 80),
        ("a100_40gb", "dgx-a100-40gb", 40),
        ("h100_80gb", "dgx-h100", 79.6),
        ("H100-96GB-500W", "dgx-h100", 89.4),
        ("NVIDIA H200", "dgx-h200", 140.4),
    ],
)
def test_gpus_go_by_many_names(word, name, memory):
    cluster = cluster_of({"gpu": word})
    assert cluster.name == name
    assert cluster.device.memory_gib == pytest.approx(memory, abs=0.1)


@pytest.mark.parametrize(
    ("said", "gbs"),
    [
        ("8x200Gb/s HDR IB per DGX A100", 25.0),
        ("NVLink3; 1600Gb/s RoCE per node", 25.0),
        ("NVLink; CX-7 400Gb/s per GPU", 50.0),
        ("4 × 100 Gbps Omni-Path", 6.25),
        ("not stated", 25.0),
    ],
)
def test_the_network_is_read_from_its_description(said, gbs):
    assert cluster_of({"gpu": "A100", "interconnect": said}).links[-1].gbs == gbs


@pytest.mark.parametrize(
    ("gpu", "said", "gbs"),
    [
        ("GB200", "NVL72 + 400Gb/s per GPU", 50.0),
        ("GB300", "NVL72 + 800Gb/s per GPU", 100.0),
        ("GB200", "NVL72; 4x400Gb/s per node", 50.0),  # a tray has four GPUs and their cards
        ("B300", "NVLink5; 800Gb/s per GPU", 100.0),
    ],
)
def test_what_a_gpu_has_is_its_own_however_many_nvlink_joins(gpu, said, gbs):
    found = cluster_of({"gpu": gpu, "interconnect": said})
    assert found.links[-1].gbs == gbs
    assert network_of({"interconnect": said}, found.devices) == gbs  # calibration and validation read alike


@pytest.mark.parametrize(
    "said",
    [{"gpus_per_node": "4"}, {"notes": "compile; nodes of 4 GPUs"}, {"interconnect": "InfiniBand, 4 GPUs per node"}],
)
def test_rows_state_the_gpus_of_a_node(said):
    found = cluster_of({"gpu": "H200", **said})
    assert (found.devices, found.links[0].devices) == (4, 4)
    faster = cluster_of({"gpu": "H200", "interconnect": "4x400Gb/s", "gpus_per_node": "4"})
    assert faster.links[-1].gbs == 50.0


def test_a_node_is_of_at_least_one_gpu():
    with pytest.raises(CannotModelError, match="gpus_per_node = 0"):
        cluster_of({"gpu": "H200", "gpus_per_node": "0"})


def test_a_power_cap_costs_the_cube_root():
    full, capped = (cluster_of({"gpu": word}).device.tflops.flops("bf16") for word in ("H100", "H100-500W"))
    assert capped / full == pytest.approx((400 / 600) ** (1 / 3))


@pytest.mark.parametrize(
    ("word", "precision", "fp8"),
    [("bf16/PURE", "bf16", 0), ("amp_bf16/DEFAULT", "bf16", 0), ("amp_fp8/DEFAULT", "bf16", 1), ("fp16", "fp16", 0)],
)
def test_precisions_go_by_many_names(word, precision, fp8):
    work = row(precision=word, gpu="H100").work
    assert (work.precision, work.fp8) == (precision, fp8)


@pytest.mark.parametrize(("word", "zero"), [("", 0), ("0", 0), ("1", 1), ("3", 3), ("3(FSDP2)", 3), ("FSDP2", 3)])
def test_zero_goes_by_many_names(word, zero):
    assert row(zero=word, pp="1", dp="8").work.zero == zero


def test_the_parameter_count_tells_the_style():
    llama = {"layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336", "vocab": "128256"}
    work = row(**llama, params_b="8.03", tp="1", pp="1", dp="16").work
    assert (work.gated, work.tied) == (1, 0)
    assert row(params_b="1.3").work.gated == 0


@pytest.mark.parametrize(
    ("model", "ffn", "gated"), [("nemotron-340b", "73728", 0), ("", "49152", 1), ("llama", "73728", 1), ("", "", 1)]
)
def test_without_a_count_shared_keys_mean_a_gate_unless_the_width_says_otherwise(model, ffn, gated):
    sizes = {"layers": "96", "hidden": "18432", "heads": "96", "kv_heads": "8", "vocab": "256000"}
    assert row(**sizes, model=model, ffn=ffn).work.gated == gated


def test_what_is_not_stated_is_assumed_aloud():
    found = row(mbs="", vpp="")
    assert found.work.microbatch == found.work.virtual == 1
    assert found.assumed == ("software = megatron-lm 2022", "vpp = 1", "mbs = 1")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cp": "3"}, "cp = 3"),
        ({"precision": "fp8"}, "fp8"),
        ({"ep": "8"}, "expert parallelism"),
        ({"step_s": ""}, "step_s"),
        ({"n_gpus": "24"}, "make 16 devices"),
        ({"gbs": "65"}, "does not split"),
        ({"gbs": "1", "dp": "2", "n_gpus": "32", "mbs": ""}, "without a sample"),
        ({"gpu": "TPU v4"}, "no preset for the GPU 'TPU v4'"),
        ({"precision": "int4"}, "int4"),
        ({"precision": "fp8-rowwise"}, "scale per row"),
        ({"layers": "many"}, "'many' is not a number"),
    ],
)
def test_what_cannot_be_modeled_says_why(changes, why):
    with pytest.raises(CannotModelError, match=why):
        row(**changes)


def test_a_file_without_a_column_or_rows_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,layers\n1,2\n")
    with pytest.raises(HeddleError, match="lacks the columns step_s, hidden"):
        read_rows(path)
    path.write_text(",".join(GPT) + "\n")
    with pytest.raises(HeddleError, match="no rows"):
        read_rows(path)
    with pytest.raises(HeddleError, match=r"There is no file nowhere\.csv"):
        read_rows(Path("nowhere.csv"))
