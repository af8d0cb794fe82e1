"""Launch lines as the projects publish them, as jobs: model, plan, and what became of every argument."""

import json

import pytest

from heddle.errors import HeddleError
from heddle.trainers.registry import imported_settings
from tests.helpers.commands import call
from tests.trainers.cases import job

# The arguments of examples/gpt3/train_gpt3_175b_distributed.sh of Megatron-LM.
GPT3 = """
GPUS_PER_NODE=8
NUM_NODES=1
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES --master_addr localhost --master_port 29500)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
)
TRAINING_ARGS=(
    --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 --weight-decay 0.1
    --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0 --fp16
    --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000
)
MODEL_PARALLEL_ARGS=(--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16)
DATA_ARGS=(--data-path $DATA_PATH --vocab-file $VOCAB_FILE --merge-file $MERGE_FILE --split 949,50,1)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]} \\
    ${DATA_ARGS[@]} --log-interval 100 --save-interval 10000 --eval-interval 1000 --save $OUT --load $OUT
"""
# Those of examples/mixtral/train_mixtral_8x7b_distributed.sh that are about model and plan.
MIXTRAL = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --use-mcore-models --disable-bias-linear --seq-length 4096 "
    "--max-position-embeddings 32768 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
    "--num-attention-heads 32 --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm "
    "--position-embedding-type rope --swiglu --untie-embeddings-and-output-weights --group-query-attention "
    "--num-query-groups 8 --no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000 --num-experts 8 "
    "--moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm "
    "--moe-token-dispatcher-type alltoall --overlap-param-gather --overlap-grad-reduce "
    "--tokenizer-type Llama2Tokenizer --micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --bf16 "
    "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 "
    "--use-distributed-optimizer --sequence-parallel"
)
# A row of examples/academic_paper_scripts/sc21/run_table_1.sh: 145B on 192 nodes.
SC21 = (
    "--activations-checkpoint-method uniform --num-layers-per-virtual-pipeline-stage 5 --tensor-model-parallel-size 8 "
    "--pipeline-model-parallel-size 8 --micro-batch-size 2 --global-batch-size 2304 --num-layers 80 "
    "--hidden-size 12288 --num-attention-heads 96 --DDP-impl local --log-interval 5 --seq-length 2048 "
    "--max-position-embeddings 2048 "
    "--train-iters 500 --lr-decay-iters 320 --lr 0.0001 --min-lr 0.00001 --lr-decay-style cosine "
    "--lr-warmup-fraction 0.01 --split 969,30,1 --clip-grad 1.0 --fp16 --loss-scale 8192"
)


def test_the_line_for_gpt3_is_the_paper_s_plan():
    found = imported_settings("megatron", GPT3)
    made = found.job(nodes=16)
    assert made.model.parameters == job("gpt3-175b").model.parameters
    assert (made.plan.tensor, made.plan.pipeline, made.plan.data, made.plan.zero) == (8, 16, 1, 0)
    assert made.plan.stages == (6,) * 16
    assert made.train.warmup == 430
    assert made.train.final_learning_rate == pytest.approx(0.1)
    assert made.precision == "fp16"
    assert made.cluster.software.facts.data_overlap == 0  # nobody asked for it
    assert found.unknown == []
    assert any("50257" in line for line in found.assumed)


def test_too_few_processes_are_made_enough_and_said():
    found = imported_settings("megatron", GPT3)
    assert found.job().plan.world == 128
    assert any("128 instead of 8" in line for line in found.assumed)


def test_the_line_for_mixtral_has_its_experts():
    found = imported_settings("megatron", MIXTRAL)
    made = found.job()
    preset = job("mixtral-8x7b").model
    assert made.model.parameters == preset.parameters
    assert made.model.active_parameters == preset.active_parameters
    assert (made.plan.pipeline, made.plan.data, made.plan.zero, made.plan.sequence) == (4, 8, 1, False)
    assert made.plan.expert == 8
    assert made.cluster.software.facts.data_overlap == 1
    assert found.unknown == []


def test_a_line_of_2021_is_priced_as_software_of_2021():
    made = imported_settings("megatron", SC21).job(nodes=192)
    assert made.plan.virtual == 2
    assert made.plan.stages == (5,) * 16
    assert made.plan.recompute == "full"
    assert made.plan.world == 1536
    assert made.cluster.software.profile == "megatron-lm 2021"


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--recompute-activations", "recompute", "selective"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "recompute", "full"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "zero", 3),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "zero", 2),
        ("--use-torch-fsdp2", "zero", 3),
        ("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5", "stages", (5, 9, 9, 9)),
        ("--pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 2", "stages", (10, 10, 10, 2)),
        (
            (
                "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
                "--account-for-loss-in-pipeline-split"
            ),
            "stages",
            (16, 16),
        ),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2", "virtual", 2),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*15|t*17L", "stages", (15, 17)),
        ("--context-parallel-size 2 --cp-comm-type a2a", "context_exchange", "all-to-all"),
        ("--optimizer-cpu-offload", "offload", ("optimizer:host",)),
    ],
)
def test_what_arguments_mean(arguments, field, value):
    line = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 1024 --num-attention-heads 16 "
        f"--seq-length 1024 --global-batch-size 64 --vocab-size 1024 --bf16 {arguments}"
    )
    assert getattr(imported_settings("megatron", line).job().planned.plan, field) == value


def test_arguments_are_accounted_for():
    found = imported_settings(
        "megatron",
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --fp8-format hybrid --save x "
        "--brand-new-thing 3 --mtp-num-layers 1",
    )
    assert any(line.startswith("--fp8-format hybrid") for line in found.dropped)
    assert any(line.startswith("--mtp-num-layers 1") for line in found.dropped)
    assert found.unknown == ["--brand-new-thing 3"]
    assert found.harmless == 1


SMALL = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("--hidden-size 64", "no --num-layers"),
        ("--num-layers four --hidden-size 64", "'four' is not a number"),
        ("--num-layers 4 --hidden-size 64 --num-attention-heads 4", "no --seq-length"),
        (
            (
                "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --num-experts 2 "
                "--swiglu --disable-bias-linear --moe-layer-freq __import__('os')"
            ),
            "neither a whole number nor a list",
        ),
        (
            (
                "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
                "--pipeline-model-parallel-layout (t|)*999999999L"
            ),
            "is not understood",
        ),
        (f"{SMALL} --pipeline-model-parallel-layout (t|)*{'9' * 5000}L", "is not understood"),
        (f"--hidden-size 64 --num-layers {'9' * 5000}", "is not a whole number"),
        ("--hidden-size 64 --num-layers 999999999999", "is too large"),
        ("--hidden-size 64 --num-layers nan", "is not a whole number"),
        (f"{SMALL} --tensor-model-parallel-size 0", "is not a whole number of at least 1"),
        (f"{SMALL} --pipeline-model-parallel-size -2", "is not a whole number of at least 1"),
        (f"{SMALL} --pipeline-model-parallel-size 999999999", "chunks has 4 layers"),
        (f"{SMALL} --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 99999999", "has 4 layers"),
    ],
    ids=lambda value: value[-60:],
)
def test_what_cannot_be_read_is_told(line, what):
    with pytest.raises(HeddleError, match=what) as found:
        imported_settings("megatron", line)
    assert found.value.why
    assert found.value.hint


def test_ends_of_a_pipeline_of_one_leave_no_middle():
    line = f"{SMALL} --decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2"
    assert imported_settings("megatron", line).plan["stages"] == [2, 2]


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("training", "steps", "nan"),
        ("training", "seq_len", '"x"'),
        ("training", "seq_len", "0"),
        ("training", "local_batch_size", "0"),
        ("training", "global_batch_size", "[1]"),
        ("optimizer", "lr", '"fast"'),
        ("optimizer", "lr", f"1{'0' * 400}"),
        ("lr_scheduler", "decay_ratio", '"x"'),
        ("parallelism", "tensor_parallel_degree", "-1"),
        ("parallelism", "pipeline_parallel_degree", "999999999"),
        ("parallelism", "module_fqns_per_model_part", "5"),
        ("parallelism", "module_fqns_per_model_part", "[[5]]"),
        ("parallelism", "module_fqns_per_model_part", '["layers.0"]'),
        ("parallelism", "pipeline_parallel_layers_per_stage", "0"),
        ("parallelism", "pipeline_parallel_microbatch_size", '"x"'),
    ],
)
def test_a_wrong_value_for_torchtitan_is_named(table, key, value):
    tables = {"model": 'name = "llama3"\nflavor = "8B"', "parallelism": "pipeline_parallel_degree = 2"}
    if table == "training" and key == "local_batch_size":
        tables["parallelism"] = ""
    if key == "pipeline_parallel_degree":
        tables["parallelism"] = ""
    tables[table] = f"{tables.get(table, '')}\n{key} = {value}"
    text = "\n".join(f"[{name}]\n{lines}" for name, lines in tables.items())
    with pytest.raises(HeddleError) as found:
        imported_settings("torchtitan", text)
    assert key in str(found.value) or "chunks" in found.value.what
    assert found.value.why
    assert found.value.hint


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"train_batch_size": 0}, "train_batch_size = 0 is not a whole number"),
        ({"train_batch_size": 10**400}, "train_batch_size"),
        ({"gradient_accumulation_steps": -1}, "gradient_accumulation_steps = -1"),
        ({"train_micro_batch_size_per_gpu": "two"}, "train_micro_batch_size_per_gpu = 'two'"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage = 4"),
        ({"zero_optimization": {"stage": "3"}}, "zero_optimization.stage = '3'"),
        ({"zero_optimization": {"stage": 3, "offload_param": 5}}, "offload_param = 5 is not a table"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "tape"}}}, "'tape' is not known"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": [1]}}}, "is not known"),
        ({"tensor_parallel": 5}, "tensor_parallel = 5 is not a table"),
        ({"tensor_parallel": {"autotp_size": "x"}}, "tensor_parallel.autotp_size = 'x'"),
        ({"sequence_parallel_size": 1.5}, "sequence_parallel_size = 1.5"),
        ({"optimizer": {"params": 5}}, "optimizer.params = 5 is not a table"),
        ({"optimizer": {"params": {"lr": "x"}}}, "optimizer.params.lr = 'x'"),
        ({"optimizer": {"params": {"betas": [0.9, {}]}}}, "beta2"),
        ({"scheduler": [1]}, "scheduler = \\[1\\] is not a table"),
        ({"scheduler": {"params": {"total_num_steps": 1e400}}}, "total_num_steps"),
        ({"gradient_clipping": float("nan")}, "gradient_clipping = nan"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_value_for_deepspeed_is_named(change, what):
    with pytest.raises(HeddleError, match=what) as found:
        imported_settings("deepspeed", json.dumps({"train_batch_size": 8} | change))
    assert found.value.why
    assert found.value.hint


def test_a_file_for_torchtitan_that_is_no_toml_is_told():
    with pytest.raises(HeddleError, match="is not valid TOML"):
        imported_settings("torchtitan", "[training\nsteps = 3\n")


def test_what_deepspeed_leaves_to_the_script_is_taken():
    auto = {"train_batch_size": "auto", "optimizer": {"params": {"lr": "auto"}}, "gradient_clipping": "auto"}
    found = imported_settings("deepspeed", json.dumps(auto))
    assert any("train_batch_size" in line for line in found.assumed)
    assert "learning_rate" not in found.train
    with pytest.raises(HeddleError, match="is not valid JSON"):
        imported_settings("deepspeed", "{ not JSON")


# [parallelism] and what belongs to it of torchtitan/models/llama3/train_configs/llama3_405b.toml, release 0.2.2.
LLAMA_405B = """
[model]
name = "llama3"
flavor = "405B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 8e-5
eps = 1e-8
[lr_scheduler]
warmup_steps = 600
[training]
local_batch_size = 2
seq_len = 8192
max_norm = 1.0
steps = 3000
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 1
context_parallel_degree = 1
[checkpoint]
enable = false
[activation_checkpoint]
mode = "full"
[compile]
enable = true
[quantize.linear.float8]
enable_fsdp_float8_all_gather = true
"""


def test_a_file_of_torchtitan_is_a_job():
    found = imported_settings("torchtitan", LLAMA_405B)
    made = found.job(nodes=16)
    assert made.model.parameters == job("llama-3.1-405b").model.parameters
    assert (made.plan.tensor, made.plan.data, made.plan.zero, made.plan.recompute) == (8, 16, 3, "full")
    assert (made.plan.microbatch, made.train.global_batch) == (2, 32)
    assert made.train.schedule == "linear"
    assert any("float8" in line for line in found.dropped)


def test_flags_of_later_releases_are_a_job():
    found = imported_settings(
        "torchtitan",
        "torchrun --nproc_per_node=8 --nnodes 8 -m torchtitan.train --module llama3 --config llama3_70b "
        "--parallelism.tensor_parallel_degree 8 --parallelism.pipeline_parallel_degree=4 "
        "--parallelism.pipeline_parallel_schedule Interleaved1F1B --training.local_batch_size 8 "
        "--training.seq_len 8192",
    )
    made = found.job()
    assert made.model.layers == 80
    assert (made.plan.tensor, made.plan.pipeline, made.plan.virtual, made.plan.world) == (8, 4, 2, 64)
    # embedding and output layer count as one layer each: 82 over 8 chunks
    assert made.plan.stages == (10, 11, 10, 10, 10, 10, 10, 9)


DEEPSPEED = {  # examples/deepspeed_config_templates/zero_stage2_offload_config.json of accelerate
    "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True}},
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "allgather_partitions": True,
        "overlap_comm": True,
    },
    "gradient_accumulation_steps": 1,
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}


def test_a_configuration_of_deepspeed_is_a_job():
    found = imported_settings("deepspeed", json.dumps(DEEPSPEED))
    made = found.job(job().model, nodes=2)
    assert (made.plan.data, made.plan.zero, made.plan.offload) == (16, 2, ("optimizer:host",))
    assert made.precision == "fp16"
    assert sum("auto" in line for line in found.assumed) == 2
    with pytest.raises(HeddleError, match="does not describe its model"):
        found.job()


def test_the_command_shows_time_memory_and_a_better_plan(tmp_path, capsys):
    line = MIXTRAL.replace("--num-layers 32", "--num-layers 4").replace(
        "--pipeline-model-parallel-size 4 --expert-model-parallel-size 8",
        "--pipeline-model-parallel-size 2 --expert-model-parallel-size 4",
    )
    target = tmp_path / "job.toml"
    assert call("import", "megatron-args", line, "--nodes", "1", "-o", target) == 0
    told = capsys.readouterr().out
    assert "now     tensor 1 × pipeline 2 × data 4" in told
    assert "per step ±" in told
    assert "better  " in told
    assert call("simulate", target, "--json") == 0
    alone = json.loads(capsys.readouterr().out)
    assert call("import", "megatron-args", line, "--nodes", "1", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["now"]["step_seconds"] == alone["step_seconds"]
    assert facts["better"] is None or facts["better"]["step_seconds"] < facts["now"]["step_seconds"]


def test_the_command_writes_files(tmp_path, capsys):
    target = tmp_path / "job.toml"
    target.write_text('[model]\npreset = "tiny"\n[cluster]\npreset = "dgx-h100"\nnodes = 1\n[plan]\ndata = 8\n')
    assert call("export", "megatron", target) == 0
    assert "--num-layers 4" in capsys.readouterr().out
    assert call("export", "deepspeed", target, "-o", tmp_path / "ds.json") == 0
    shown = capsys.readouterr()
    assert "not expressed: model and data" in shown.err
    assert json.loads((tmp_path / "ds.json").read_text())["train_batch_size"] == 8
    assert call("import", "deepspeed", tmp_path / "ds.json", "--job", target, "--no-search") == 0
    assert "data 8" in capsys.readouterr().out
