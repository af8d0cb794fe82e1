"""Scripts are read as a shell would read them; bash itself is the judge."""

import shutil
import subprocess

import pytest

from heddle.errors import HeddleError
from heddle.trainers.launch_line import launch_words
from tests.helpers.cases import thinned

SCRIPTS = {
    "arrays": """
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"4"}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE   # eight
    --nnodes $NNODES
)
MODEL_ARGS=(
    --num-layers 32 # of them
    --hidden-size 4096
    "--split '99,1,0'"
    --swiglu
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    ${MODEL_ARGS[@]} \\
    --global-batch-size $WORLD_SIZE
""",
    "branches": """
SIZE=39B
DTYPE="fp8"
if [ ${SIZE} == "1.7B" ]; then
    TP=1
    EXTRA="--activations-checkpoint-method uniform "
elif [ ${SIZE} == "39B" ]; then
    TP=8
    PP=2
    EXTRA="--activations-checkpoint-method uniform --num-layers-per-virtual-pipeline-stage 5"
else
    echo "Invalid configuration"
fi
ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    ARGS+=(
        "--fp8-format hybrid"
        --fp8-param-gather
    )
fi
if [ -n "${NOT_SET}" ]; then
    ARGS+=(--wandb-project ${WANDB_PROJECT:-"none"})
fi
if [[ "$DTYPE" == "bf16" ]] || [[ -z "$NOT_SET" ]]; then
    ARGS+=(--mock-data)
fi
python pretrain_gpt.py ${EXTRA} --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} ${ARGS[@]}
""",
    "options": """
options=" \\
    --num-layers 24 \\
    --hidden-size 2048 "
USE_UV=${USE_UV:-1}
if [ "${USE_UV}" = 1 ]; then
    PREFIX="env"
else
    PREFIX=""
fi
for each in 1 2; do
    options="$options --never $each"
done
$PREFIX python -m torch.distributed.run --nproc_per_node 8 pretrain_gpt.py ${options} --lr 6.0e-5
""",
}


def as_bash_does(text):
    """The words that a launcher would be given."""
    heard = 'torchrun() { printf "%s\\n" torchrun "$@"; }; python() { printf "%s\\n" python "$@"; }\n'
    heard += 'env() { printf "%s\\n" env "$@"; }; echo() { :; }\n'
    done = subprocess.run(["bash", "-c", heard + text], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash is installed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_of_bash(name):
    found = launch_words(SCRIPTS[name])
    expected = as_bash_does(SCRIPTS[name])
    if name == "options":  # what a loop does is not known without running it
        expected = [word for word in expected if word not in ("--never", "1", "2")]
    assert [word for part in found for word in part.split()] == [word.strip("'") for word in expected]


def test_nothing_is_run(tmp_path):
    mark = tmp_path / "mark"
    words = launch_words(f"torchrun pretrain_gpt.py --num-layers $(touch {mark}; echo 4) --hidden-size `touch {mark}`")
    assert not mark.exists()
    assert "--num-layers" in words


def test_arguments_alone_are_a_line():
    assert launch_words("--num-layers 2 --split '99 1'") == ["--num-layers", "2", "--split", "99 1"]


DOUBLES = ['A="$A$A"', 'A=("${A[@]}" "${A[@]}")', 'A="$A ${B:-$A}"']


@pytest.mark.parametrize("doubles", thinned(DOUBLES, slow=DOUBLES[1:]))
def test_a_variable_that_doubles_itself_is_told_before_it_fills_memory(doubles):
    script = "A=(--num-layers 4)\n" + f"{doubles}\n" * 60 + 'torchrun pretrain_gpt.py "${A[@]}"\n'
    with pytest.raises(HeddleError, match="variables of the launch line are too long"):
        launch_words(script)


def test_a_number_that_squares_itself_ends_as_in_a_shell():
    script = "A=99\n" + "A=$((A * A))\n" * 40 + "torchrun pretrain_gpt.py --num-layers $A\n"
    assert launch_words(script)[-1] == "0"


def test_a_quotation_that_is_not_closed_is_told():
    with pytest.raises(HeddleError, match="quotation mark"):
        launch_words("torchrun pretrain_gpt.py --data-path 'x")
