"""Published times of fine-tuning with adapters, predicted with constants that were fitted to other runs.

NVIDIA's own for NeMo AutoModel on H100, of June 2026: adapters of rank 16 beside all linear layers of a frozen model.
"""

from __future__ import annotations

import pytest

from heddle.calibrate.validate import validate

HEADER = (
    "id,dataset,model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,seq,gbs,mbs,tp,pp,dp,zero,recompute,seq_par,attn,"
    "precision,gpu,n_gpus,interconnect,step_s,framework,source,notes,lora"
)
MACHINE = "te,bf16,H100-80GB,{gpus},NVLink4; 400Gb/s per GPU,{seconds},NeMo AutoModel (FSDP2)"
SOURCE = "NVIDIA-NeMo/Automodel docs/performance-summary.mdx"
LLAMA_8B = "Llama3-8B,8.03,32,4096,32,8,14336,128256"
LLAMA_70B = "Llama3-70B,70.6,80,8192,64,8,28672,128256"
QWEN_7B = "Qwen2.5-7B,7.62,28,3584,28,4,18944,152064"
QWEN_32B = "Qwen2.5-32B,32.8,64,5120,40,8,27648,152064"
# model, tensor-parallel, replicas, sequence-parallel, GPUs, seconds; the larger ones are compiled and recompute all
ROWS = (
    (LLAMA_8B, 1, 1, 0, 1, 10.51),
    (QWEN_7B, 1, 1, 0, 1, 9.29),
    (LLAMA_70B, 2, 4, 1, 8, 15.00),
    (QWEN_32B, 2, 4, 0, 8, 7.28),
    (LLAMA_70B, 2, 8, 1, 16, 8.32),
    (QWEN_32B, 2, 8, 0, 16, 3.95),
)


def written(path, lora: str = "16"):
    lines = [HEADER]
    for number, (model, tensor, data, sequence, gpus, seconds) in enumerate(ROWS):
        shared = "3(FSDP2),full" if gpus > 1 else "0,none"
        notes = "triton adapters" + "; torch.compile" * (gpus > 1) + "; asyncTP" * sequence
        machine = MACHINE.format(gpus=gpus, seconds=seconds)
        lines.append(
            f"{number},automodel,{model},4096,32,2,{tensor},1,{data},{shared},{sequence},{machine},{SOURCE},{notes},{lora}"
        )
    path.write_text("\n".join(lines))
    return path


def test_published_runs_with_adapters_are_predicted(tmp_path):
    found = validate([written(tmp_path / "lora.csv")])
    assert not found.skipped
    assert found.seconds.count == len(ROWS)
    assert found.seconds.worst is not None
    assert found.seconds.mape is not None
    assert found.seconds.mape < 5  # 4.0 %
    assert found.seconds.worst < 12  # 9.8 %


def test_as_full_training_they_would_be_far_off(tmp_path):
    found = validate([written(tmp_path / "full.csv", lora="")])
    assert found.seconds.bias is not None
    assert found.seconds.bias > 10


@pytest.mark.parametrize(("rank", "words"), [("many", "lora"), ("-1", "lora")])
def test_a_rank_that_is_none_is_said(tmp_path, rank, words):
    found = validate([written(tmp_path / "wrong.csv", lora=rank)])
    assert len(found.skipped) == len(ROWS)
    assert all(words in why for _, why in found.skipped)
