"""Compute costs: roofline limits, tiles and alignment, and the layer times that a paper measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.cost import compute
from heddle.cost import step as stage
from heddle.cost.model_columns import model_columns
from heddle.cost.work import Work
from heddle.errors import HeddleError
from heddle.spec import Cluster, Device, ModelSpec, Peak
from heddle.spec.shorthand import cluster_from_table

A100 = cluster_from_table({"preset": "dgx-a100-80gb"})
PEAK, BANDWIDTH = 312e12, 2039e9
sizes = st.integers(1, 20_000)


@given(sizes, sizes, sizes)
def test_no_product_beats_the_peak_or_the_memory(m, k, n):
    seconds = float(compute.matmul(A100, "bf16", m, k, n))
    assert seconds >= 2 * m * k * n / PEAK
    assert seconds >= 2 * (m * k + k * n + m * n) / BANDWIDTH


def test_a_large_product_reaches_the_stated_share_of_peak():
    m = k = n = 108 * 256  # whole tiles and whole waves
    share = 2 * m * k * n / PEAK / float(compute.matmul(A100, "bf16", m, k, n))
    assert share == pytest.approx(A100.efficiency.matmul, rel=0.01)


def test_one_tile_more_than_a_wave_costs_a_wave():
    """Wave quantization: 108 tiles of 256 × 128 fill an A100 once, 109 twice; smaller tiles soften it."""
    one, more = (float(compute.matmul(A100, "bf16", 256, 8192, 128 * tiles)) for tiles in (108, 109))
    assert 1.05 < more / one < 2.0


def test_a_device_without_processors_has_no_waves():
    plain = replace(A100, device=replace(A100.device, processors=None))
    one, more = (float(compute.matmul(plain, "bf16", 256, 8192, 128 * tiles)) for tiles in (108, 109))
    assert more / one == pytest.approx(109 / 108)


def test_odd_rows_load_slower():
    """NVIDIA's guide asks for rows of 16 bytes. A head of 108 costs what one of 112 does not (BLOOM's runs)."""
    work = Work(
        **model_columns(ModelSpec(layers=1, hidden=4096, heads=32, vocab=128, sequence=2048)), batch=1, precision="bf16"
    )

    def odd_over_aligned(**kernels):
        odd, aligned = (sum(compute.attention(A100, replace(work, head_size=n, **kernels))) for n in (108, 112))
        return float(odd / aligned)

    assert odd_over_aligned() == pytest.approx(1)  # a fused kernel fills both up to 128
    assert odd_over_aligned(fused=0) > 1.5


def test_only_some_casts_of_fp8_are_paid_for_every_microbatch():
    model = ModelSpec(layers=1, hidden=4096, heads=32, vocab=128, sequence=2048)
    columns = {**model_columns(model), "batch": 64, "precision": "bf16", "fp8": 1}
    h100 = cluster_from_table({"preset": "dgx-h100"})
    bf16 = compute.layer(h100, Work(**columns | {"fp8": 0}))

    def layer(cast_reads, casts_per_step):
        return compute.layer(h100, Work(**columns, cast_reads=cast_reads, casts_per_step=casts_per_step))

    delayed, dynamic = ([layer(reads, per_step) for per_step in (0, 1)] for reads in (1, 2))
    for always, once in (delayed, dynamic):
        assert float(once.forward) < float(always.forward)
        assert float(once.backward) == pytest.approx(float(always.backward))
    # A forward in 8 bits gains with delayed scaling. With dynamic scaling, as our trainer does it, operands are read
    # once more to find their largest value, which a microbatch of 2,048 tokens need not earn back.
    assert float(delayed[0].forward) < float(bf16.forward)
    assert float(dynamic[0].forward) > float(delayed[0].forward)


def test_products_in_eight_bits_are_less_than_twice_as_fast():
    """The fastest found on an H200 is 1,453 of 1,979 TFLOP/s, in 16 bits 794 of 989; small ones gain less."""
    h100 = cluster_from_table({"preset": "dgx-h100"})

    def gain(size):
        return float(compute.matmul(h100, "bf16", size, size, size) / compute.matmul(h100, "fp8", size, size, size))

    assert gain(132 * 256) == pytest.approx(1453.4 / 794.5, rel=0.01)
    assert gain(2048) < 0.95 * gain(132 * 256)


def test_numbers_and_arrays_are_priced_alike():
    model = ModelSpec(layers=2, hidden=1024, heads=16, vocab=50_000, sequence=512)
    tensor, microbatch = np.array([1, 2, 4]), np.array([8, 2, 1])
    work = Work(**model_columns(model), batch=16, precision="bf16", tensor=tensor, microbatch=microbatch)
    together = stage.layer_cost(A100, work)
    for index in range(3):
        alone = stage.layer_cost(A100, replace(work, tensor=int(tensor[index]), microbatch=int(microbatch[index])))
        assert [float(column[index]) for column in np.broadcast_arrays(*together)] == pytest.approx(
            list(map(float, alone))
        )


def test_small_work_takes_as_long_as_it_takes_to_start():
    model = ModelSpec(layers=2, hidden=64, heads=4, vocab=128, sequence=16)
    work = Work(**model_columns(model), batch=1, precision="bf16")
    cost = stage.layer_cost(A100, work)
    floor = compute.KERNELS * A100.efficiency.launch_us * 1e-6
    assert float(cost.forward) == pytest.approx(floor)
    assert float(cost.backward) == pytest.approx(2 * floor)


# Table 4 of arXiv 2205.05198: milliseconds of one layer of the 22B model, tensor = 8, microbatch 4.
TABLE_4 = [
    ({}, 7.7, 11.9),
    ({"sequence_parallel": 1}, 7.2, 11.8),
    ({"full": 1.0}, 7.7, 19.5),
    ({"selective": 1.0}, 7.7, 13.2),
    ({"selective": 1.0, "sequence_parallel": 1}, 7.2, 13.1),
]


@pytest.mark.parametrize(("plan", "forward", "backward"), TABLE_4, ids=str)
def test_the_layer_times_of_the_paper(plan, forward, backward):
    model = ModelSpec(layers=48, hidden=6144, heads=64, vocab=51_200, sequence=2048, dropout=0.1)
    columns = {**model_columns(model), "batch": 4, "microbatch": 4, "precision": "fp16", "fused": 0, "stops_early": 0}
    work = Work(**columns, tensor=8, **plan)
    cost = stage.layer_cost(A100, work)
    assert 1e3 * float(cost.forward) == pytest.approx(forward, rel=0.1)
    assert 1e3 * float(cost.backward + stage.recompute_seconds(work, cost)) == pytest.approx(backward, rel=0.1)


def test_what_a_cluster_does_not_state_is_named():
    unknown = Cluster(name="mine", device=Device(name="X1", memory_gib=8.0))
    with pytest.raises(HeddleError, match=r"has no device\.tflops\.bf16 for X1") as error:
        compute.peak_flops(unknown, "bf16")
    assert "device.tflops.bf16" in error.value.hint
    with pytest.raises(HeddleError, match="does not state the memory bandwidth") as error:
        compute.memory_speed(unknown)
    assert "memory_gbs" in error.value.hint
    known = replace(unknown, device=replace(unknown.device, tflops=Peak(fp32=1.0)))
    with pytest.raises(HeddleError) as error:
        compute.peak_flops(known, "bf16")
    assert "(fp32)" in error.value.hint
