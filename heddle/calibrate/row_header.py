"""The header and the cells of a file of measured runs, in whatever spelling: one name for each column."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from heddle.errors import HeddleError
from heddle.files import read_text

LARGEST = 64 << 20  # bytes of a file

# other spellings of columns, once lower-cased, with "_" for what lies between words
ALIASES = {
    "step_s": "step_time step_time_s step_seconds iteration_time iteration_time_s iter_s time_s seconds",
    "layers": "num_layers n_layers n_layer nlayers",
    "hidden": "hidden_size d_model dim hidden_dim",
    "heads": "num_heads n_heads num_attention_heads attention_heads n_head",
    "kv_heads": "num_kv_heads n_kv_heads num_query_groups query_groups num_key_value_heads",
    "head_size": "head_dim kv_channels d_head",
    "ffn": "ffn_hidden ffn_size ffn_hidden_size intermediate_size d_ff mlp_hidden",
    "vocab": "vocab_size vocabulary padded_vocab_size",
    "seq": "seq_len seqlen seq_length sequence sequence_length context_length",
    "gbs": "global_batch global_batch_size batch batch_size",
    "mbs": "micro_batch micro_batch_size microbatch microbatch_size",
    "tp": "tensor tensor_parallel tp_size tensor_model_parallel_size tensor_parallelism",
    "pp": "pipeline pipeline_parallel pp_size pipeline_model_parallel_size pipeline_parallelism",
    "vpp": "vp virtual virtual_pipeline virtual_pipeline_model_parallel_size interleave chunks",
    "dp": "data data_parallel dp_size data_parallel_size data_parallelism",
    "cp": "context context_parallel cp_size context_parallel_size context_parallelism",
    "ep": "expert expert_parallel ep_size expert_parallel_size expert_model_parallel_size",
    "etp": "expert_tensor expert_tensor_parallel expert_tensor_parallel_size",
    "experts": "num_experts n_experts moe_experts num_moe_experts n_routed_experts",
    "top_k": "topk experts_per_token num_experts_per_tok moe_router_topk moe_topk",
    "expert_ffn": "moe_ffn moe_ffn_hidden_size moe_intermediate_size expert_intermediate_size",
    "shared_ffn": "shared_expert_ffn moe_shared_expert_intermediate_size shared_expert_intermediate_size",
    "dense_layers": "first_k_dense_replace first_dense_layers num_dense_layers",
    "attention_kind": "attn_kind attention_type",
    "n_gpus": "gpus num_gpus ngpus world world_size devices n_devices num_devices",
    "gpus_per_node": "devices_per_node gpus_node node_gpus ngpus_per_node num_gpus_per_node gpu_per_node",
    "gpu": "gpu_type gpu_name device accelerator",
    "zero": "zero_stage zero_level sharding dist_opt",
    "recompute": "recomputation activation_recompute activation_checkpointing ac checkpointing",
    "seq_par": "sequence_parallel sequence_parallelism sp",
    "attn": "attention attention_kernel attention_backend",
    "precision": "dtype compute_dtype",
    "params_b": "params parameters_b params_billion size_b",
    "mem_gb": "memory_gb peak_memory_gb peak_mem_gb max_memory_gb",
    "mem_gib": "memory_gib peak_memory_gib peak_mem_gib",
    "shard_ranks": "dp_shard shard_degree zero_size zero1_size fsdp_size hybrid_shard_size data_parallel_shard_degree",
    "document": "document_tokens doc_len document_length mean_document packed_length",
    "lora": "lora_rank adapter_rank peft_rank",
    "software": "profile software_profile",
    "cp_exchange": "cp_comm_type cp_type context_exchange",
}
NAMES = {alias: name for name, aliases in ALIASES.items() for alias in aliases.split()}


def column(name: str) -> str:
    """The name that a column goes by here."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lstrip("\ufeff").lower()).strip("_")
    return NAMES.get(plain, plain)


def read_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The header and the rows of a CSV file: comma, semicolon or tab, with or without a byte order mark."""
    text = read_text(path, "measured runs, as CSV", LARGEST).lstrip("\ufeff")
    first = text.partition("\n")[0]
    mark = max(",;\t", key=first.count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
        lines = [line for line in reader if any(cell.strip() for cell in line)]
    except csv.Error as error:
        raise HeddleError(
            f"{path} is not a CSV file.", f"Line {reader.line_num}: {error}.", "Give measured runs."
        ) from None
    header = [column(name) for name in lines[0]] if lines else []
    double = next((name for place, name in enumerate(header) if name and name in header[:place]), None)
    if double is not None:
        raise HeddleError(f"{path} has two columns for {double}.", "It is unclear which one to use.", "Remove one.")
    return header, [dict(zip(header, (cell.strip() for cell in line), strict=False)) for line in lines[1:]]
