"""What the cost model says of Heddle's own kernels is what they are."""

from heddle.cost.kernels import HEDDLE_CPU, HEDDLE_GPU
from heddle.models.loss import CHUNK


def test_the_loss_takes_as_many_logits_at_once_as_the_memory_model_says():
    assert HEDDLE_GPU.logits_at_once == HEDDLE_CPU.logits_at_once == CHUNK
