"""Rows in many spellings, by many frameworks; what cannot have been is skipped with its reason."""

import pytest

from heddle.calibrate.runs_csv import read_rows
from heddle.cost.compute import attention
from heddle.cost.context import exchange
from heddle.cost.step import shard_exchange
from heddle.simulating.closed_form import closed_form

BASE = {
    "id": "a", "step_s": "1", "layers": "32", "hidden": "4096", "heads": "32", "vocab": "51200", "seq": "2048",
    "gbs": "64", "mbs": "1", "tp": "2", "pp": "4", "vpp": "2", "dp": "8", "gpu": "H100", "n_gpus": "64",
    "precision": "bf16", "framework": "Megatron-LM", "zero": "1", "seq_par": "1",
}  # fmt: skip


def rows(tmp_path, *changes, header=lambda name: name, start=""):
    path = tmp_path / "rows.csv"
    tables = [BASE | change for change in changes]
    names = list(dict.fromkeys(name for table in tables for name in table))
    lines = [",".join(header(name) for name in names)]
    lines += [",".join(table.get(name, "") for name in names) for table in tables]
    path.write_text(start + "\n".join(lines) + "\n", encoding="utf-8")
    return read_rows(path)


def seconds(tmp_path, **change):
    (row,), skipped = rows(tmp_path, change)
    assert not skipped
    return float(closed_form(row.work, row.cluster).seconds)


@pytest.mark.parametrize(
    ("framework", "gpu", "source", "profile"),
    [
        ("Megatron-LM", "H100", "", "megatron-core 0.8+"),
        ("NeMo 24.07", "A100-80GB", "", "megatron-core 0.8+"),
        ("Megatron-LM", "A100-80GB", "arXiv:2104.04473 Table 1", "megatron-lm 2021"),
        ("Megatron-LM", "A100-80GB", "arXiv 2205.05198", "megatron-lm 2022"),
        ("Megatron-DeepSpeed", "A100-80GB", "bigscience", "megatron-deepspeed 2022"),
        ("torchtitan", "H100", "", "torch FSDP2"),
        ("llm-foundry/Composer FSDP FULL_SHARD", "H100", "", "torch FSDP"),
        ("nanotron", "H100", "", "nanotron"),
        ("Meta", "H100", "arXiv 2407.21783", "llama 3"),
    ],
)
def test_the_profile_is_chosen_by_framework_and_date(tmp_path, framework, gpu, source, profile):
    (row,), _ = rows(tmp_path, {"framework": framework, "gpu": gpu, "source": source})
    assert row.software.profile == profile
    assert f"software = {profile}" in row.assumed


def test_columns_say_otherwise_than_the_profile(tmp_path):
    plain = seconds(tmp_path)
    for column in ("data_overlap", "pipeline_overlap", "tensor_overlap"):
        assert seconds(tmp_path, **{column: "0"}) > plain
    assert seconds(tmp_path, software="megatron-lm 2021") > plain
    assert seconds(tmp_path, software="Megatron-LM_2021") > plain
    (row,), _ = rows(tmp_path, {"fused_accumulation": "no", "fp8_casts": "microbatch"})
    assert not row.work.adds_in_place
    assert "software" not in " ".join(rows(tmp_path, {"software": "heddle"})[0][0].assumed)


def test_headers_in_any_spelling(tmp_path):
    spelled = {"tp": "Tensor Parallel", "mbs": "micro_batch_size", "seq": " Seq-Len ", "step_s": "Step Time (s)"}
    for header in (str.upper, str.title, lambda name: f" {name} ", lambda name: spelled.get(name, name)):
        (row,), skipped = rows(tmp_path, {}, header=header, start="\ufeff")
        assert (row.id, row.work.tensor, skipped) == ("a", 2, [])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tp": "0"}, "tp = 0"),
        ({"mbs": "0"}, "mbs = 0"),
        ({"tp": "3", "dp": "5"}, "divide"),
        ({"layers": "31.5"}, "whole"),
        ({"layers": "4"}, "stages"),
        ({"step_s": "inf"}, "step_s"),
        ({"step_s": "nan"}, "step_s"),
        ({"precision": "fp8", "gpu": "A100"}, "fp8"),
        ({"ep": "8"}, "expert"),
        ({"experts": "8"}, "expert"),
        ({"model": "Mixtral-8x7B"}, "expert"),
        ({"model": "Qwen3-30B-A3B"}, "expert"),
        ({"params_b": "47"}, "dense"),
        ({"software": "unheard-of"}, "profile"),
        ({"fp8_casts": "never"}, "fp8_casts"),
        ({"data_overlap": "7"}, "data_overlap"),
    ],
)
def test_a_row_that_cannot_be_is_skipped_and_the_file_goes_on(tmp_path, change, why):
    found, ((name, reason),) = rows(tmp_path, {"id": "b"} | change, {"id": "c"})
    assert [row.id for row in found] == ["c"]
    assert name == "b"
    assert why in reason


def test_context_parallelism_is_priced(tmp_path):
    whole = {"seq": "32768", "gbs": "8", "mbs": "1", "tp": "8", "pp": "1", "vpp": "1", "dp": "8"}
    shared = whole | {"cp": "4", "dp": "2", "gbs": "2"}
    found, skipped = rows(tmp_path, whole, shared, shared | {"cp_exchange": "a2a"}, shared | {"dp": "8"})
    assert not skipped
    one, ring, swaps, counted = (closed_form(row.work, row.cluster) for row in found)
    assert float(ring.memory) < 0.5 * float(one.memory)
    assert (
        0.25 < float(ring.seconds) / float(one.seconds) < 0.45
    )  # a quarter of the work; starting kernels and exchanging stays
    assert float(swaps.seconds) != float(ring.seconds)
    assert float(counted.seconds) == float(ring.seconds)  # dp that counts those who share samples


def test_keys_and_values_travel_as_the_software_sends_them(tmp_path):
    """PyTorch sends every query head's copy of a key, and waits; Llama 3 gathers the few there are; a ring hides."""
    shared = {"seq": "131072", "gbs": "2", "mbs": "1", "tp": "8", "pp": "1", "vpp": "1", "dp": "2", "cp": "4"}
    shared |= {"kv_heads": "8"}
    softwares = ("megatron-core", "llama 3", "torch FSDP2")
    found, skipped = rows(tmp_path, *(shared | {"software": name, "seq_par": "1"} for name in softwares))
    assert not skipped
    there, back = zip(*(exchange(row.cluster, row.work, 0.0) for row in found), strict=True)
    assert there[0] <= there[1] < there[2] / 3.9  # 32 heads, 8 of keys
    assert all(one < other for one, other in zip(there, back, strict=True))
    beside, _ = exchange(found[0].cluster, found[0].work, 1.0)
    assert beside < 0.5 * there[0]
    (row,), _ = rows(tmp_path, shared | {"software": "torch FSDP2", "cp_exchange": "all-gather"})
    assert exchange(row.cluster, row.work, 0.0)[0] == pytest.approx(there[1], rel=1e-6)
    none, ((_, why),) = rows(tmp_path, shared | {"cp_exchange": "pigeons"})
    assert not none
    assert "pigeons" in why


def test_many_small_buckets_over_many_replicas_cost_their_hops(tmp_path):
    wide = {"tp": "1", "pp": "1", "vpp": "1", "dp": "128", "n_gpus": "128", "gbs": "128", "framework": "nanotron"}
    (row,), _ = rows(tmp_path, wide)
    (at_once,), _ = rows(tmp_path, wide | {"bucket_mb": "1e6"})
    apart, together = (float(closed_form(each.work, each.cluster).seconds) for each in (row, at_once))
    assert 0.05 < apart - together < 0.5


@pytest.mark.parametrize(
    ("said", "speed"),
    [
        ({"framework": "NeMo 24.03 Megatron-Core"}, 1.0),
        ({"framework": "NeMo 24.07 Megatron-Core"}, 1.6),
        ({"framework": "NeMo Megatron-Bridge", "notes": "Pre-Training; container 25.11"}, 1.6),
        ({"framework": "NeMo Megatron-Core"}, 1.6),  # not dated: of today
        ({"framework": "NeMo 24.03 Megatron-Core", "hopper_attention": "1.3"}, 1.3),
        ({"framework": "NeMo 24.03 Megatron-Core", "attn": "flash3"}, 1.6),
    ],
)
def test_attention_is_as_fast_as_at_the_time_of_its_software(tmp_path, said, speed):
    shared = {"gpu": "H100", "attn": "flash/cudnn", "precision": "bf16"}
    (row,), _ = rows(tmp_path, shared | said)
    assert row.work.attention_speed == speed


def test_notes_that_say_what_does_not_overlap_are_believed(tmp_path):
    shared = {"gpu": "H100", "framework": "Megatron-LM core"}
    (plain,), _ = rows(tmp_path, shared)
    (off,), _ = rows(tmp_path, shared | {"notes": "few layers; overlap of tensor and gradient exchange off"})
    assert plain.work.tensor_overlap > 0
    assert (off.work.tensor_overlap, off.work.data_overlap, off.work.gather_overlap) == (0, 0, 0)
    assert off.work.pipeline_overlap == plain.work.pipeline_overlap == 1


def test_packed_documents_cost_attention_inside_them_only(tmp_path):
    shared = {"gpu": "H100", "seq": "4096"}
    (whole,), _ = rows(tmp_path, shared)
    (packed,), _ = rows(tmp_path, shared | {"notes": "SFT; packed"})
    (stated,), _ = rows(tmp_path, shared | {"document": "512"})
    (long,), _ = rows(tmp_path, shared | {"document": "8192"})
    assert packed.work.document == stated.work.document == 512
    assert "document = 512" in packed.assumed
    core = [attention(row.cluster, row.work)[0] for row in (whole, stated, long)]
    # 512 of 4,096 tokens to look back at, and kernels of short rows: (1 + 512/512) to (1 + 512/4096)
    assert float(core[1] / core[0]) == pytest.approx(512 / 4096 * 2 / 1.125)
    assert float(core[2]) == float(core[0])


def test_gradients_that_are_summed_once_cost_less_with_more_microbatches(tmp_path):
    shared = {
        "gpu": "H100",
        "framework": "torch FSDP2",
        "zero": "3",
        "tp": "1",
        "pp": "1",
        "vpp": "1",
        "dp": "16",
        "n_gpus": "16",
    }
    costs = []
    for once in ("no", "yes"):
        for batch in (16, 64):
            (row,), _ = rows(tmp_path, shared | {"sums_once": once, "gbs": str(batch), "mbs": "1"})
            costs.append(float(shard_exchange(row.cluster, row.work, 1e9)))
    assert costs[0] == costs[1] == costs[2]  # with one microbatch there is nothing to save
    assert costs[3] < 0.7 * costs[2]
