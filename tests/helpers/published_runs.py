"""Runs that others published, as rows: of NVIDIA NeMo in fp8, and of Megatron-DeepSpeed."""

from pathlib import Path

from heddle.calibrate.validate import Validation, validate

HEADER = (
    "id,model,layers,hidden,heads,kv_heads,ffn,vocab,n_gpus,gbs,mbs,seq,tp,pp,cp,vpp,step_s,dp,"
    "gpu,precision,attn,recompute,framework,software,zero"
)
SHAPES = {
    "GPT3-5B": (24, 4096, 32, 32, 16384, 51200),
    "GPT3-20B": (44, 6144, 48, 48, 24576, 51200),
    "GPT3-175B": (96, 12288, 96, 96, 49152, 51200),
    "LLAMA2-7B": (32, 4096, 32, 32, 11008, 32000),
    "LLAMA2-13B": (40, 5120, 40, 40, 13824, 32000),
    "LLAMA2-70B": (80, 8192, 64, 8, 28672, 32000),
    "Nemotron-8B": (32, 4096, 32, 32, 16384, 256000),
    "Nemotron-22B": (40, 6144, 48, 48, 24576, 256000),
    "Nemotron-340B": (96, 18432, 96, 8, 73728, 256000),
    "LLAMA3-8B": (32, 4096, 32, 8, 14336, 128256),
    "LLAMA3-70B": (80, 8192, 64, 8, 28672, 128256),
}
# NVIDIA NeMo, Performance Benchmarks, container 24.07, DGX-H100, fp8: GPUs, samples per step and microbatch, tokens,
# tensor, pipeline, context and virtual degrees, tokens per second and GPU
RUNS = [
    ("GPT3-5B", 64, 2048, 4, 2048, 1, 1, 1, 1, 22521),
    ("GPT3-20B", 64, 256, 2, 2048, 2, 1, 1, 1, 5851),
    ("GPT3-175B", 128, 256, 1, 2048, 4, 8, 1, 6, 726),
    ("GPT3-175B", 512, 2048, 2, 2048, 4, 8, 1, 6, 782),
    ("LLAMA2-7B", 8, 128, 1, 4096, 1, 1, 1, 1, 16847),
    ("LLAMA2-13B", 16, 128, 1, 4096, 1, 4, 1, 10, 8646),
    ("LLAMA2-70B", 64, 128, 1, 4096, 4, 4, 1, 20, 1707),
    ("Nemotron-8B", 64, 256, 4, 4096, 2, 1, 1, 1, 12701),
    ("Nemotron-22B", 64, 256, 2, 4096, 2, 4, 1, 10, 4256),
    ("Nemotron-340B", 128, 32, 1, 4096, 8, 8, 1, 12, 322),
    ("LLAMA3-8B", 8, 128, 1, 8192, 1, 1, 2, 1, 12036),
    ("LLAMA3-70B", 64, 128, 1, 8192, 4, 4, 2, 5, 1533),
]


def nemo(folder: Path) -> Validation:
    """Predictions beside all of them, with the presets as they are."""
    lines = [HEADER]
    for model, gpus, batch, microbatch, tokens, tensor, pipeline, context, virtual, speed in RUNS:
        seconds = batch * tokens / (speed * gpus)
        plan = (gpus, batch, microbatch, tokens, tensor, pipeline, context, virtual)
        rest = (seconds, gpus // (tensor * pipeline * context), "H100,fp8,flash,none,NeMo,megatron-core 0.8+,1")
        lines.append(",".join(map(str, (f"{model}-{gpus}", model, *SHAPES[model], *plan, *rest))))
    path = folder / "nemo.csv"
    path.write_text("\n".join(lines))
    return validate([path])


# arXiv 2201.11990 (MT-NLG 530B on Selene): nodes of 8 A100, seconds of a step of 1,920 samples
MT_NLG = [(280, 60.1), (350, 50.2), (420, 44.4)]


def mt_nlg(folder: Path) -> Validation:
    """The same for these."""
    model = "105,20480,128,128,81920,51200"
    rest = "A100-80GB,bf16,unfused,full,Megatron-DeepSpeed,megatron-deepspeed 2022,1"
    lines = [
        f"{nodes},MT-NLG,{model},{8 * nodes},1920,1,2048,8,35,1,1,{seconds},{nodes // 35},{rest}"
        for nodes, seconds in MT_NLG
    ]
    path = folder / "mt-nlg.csv"
    path.write_text("\n".join([HEADER, *lines]))
    return validate([path])
