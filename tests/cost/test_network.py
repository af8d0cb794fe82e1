"""Communication costs against worked examples: rings, hierarchies, messages between stages."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.cost import network
from heddle.cost import step as stage
from heddle.cost.model_columns import model_columns
from heddle.cost.step import Exchange
from heddle.cost.work import Work
from heddle.spec import Cluster, Device, Efficiency, Link, ModelSpec, Peak

GB = 10**9
# Nothing takes time but bytes: 100 GB/s inside a node of 8, 10 GB/s a device between nodes.
PLAIN = Cluster(
    nodes=16,
    devices=8,
    device=Device(name="d", memory_gib=80.0, memory_gbs=1000.0, tflops=Peak(bf16=100.0)),
    links=(Link(name="in", devices=8, gbs=100.0, efficiency=1.0), Link(name="out", gbs=10.0, efficiency=1.0)),
    efficiency=Efficiency(collective_us=0.0, gather_gbs=5.0, jitter=0.02),
)


def test_a_ring_moves_its_share_past_every_rank():
    assert float(network.all_gather(PLAIN, GB, 4)) == pytest.approx(3 / 4 / 100)
    assert float(network.all_reduce(PLAIN, GB, 4)) == pytest.approx(2 * 3 / 4 / 100)
    assert float(network.all_gather(PLAIN, GB, 1)) == 0


def test_ranks_of_one_node_share_the_links_between_nodes():
    # 16 neighbors lie on two nodes, 8 on each: 8 cards of 10 GB/s side by side are still slower than the links inside
    assert float(network.all_gather(PLAIN, GB, 16)) == pytest.approx(15 / 16 / 80)
    # the same group, one rank a node: each has its own card only
    assert float(network.all_gather(PLAIN, GB, 16, 8)) == pytest.approx(15 / 16 / 10)
    # two ranks a node
    assert float(network.all_gather(PLAIN, GB, 16, 4)) == pytest.approx(15 / 16 / 20)


def test_gathers_in_a_pass_reach_less_between_nodes_and_as_much_inside():
    assert float(network.all_gather(PLAIN, GB, 16, 8, in_pass=True)) == pytest.approx(15 / 16 / 5)
    assert float(network.all_gather(PLAIN, GB, 8, 1, in_pass=True)) == pytest.approx(7 / 8 / 100)


def test_latency_is_a_ring_s_or_a_tree_s():
    links = tuple(replace(link, latency_us=10.0) for link in PLAIN.links)
    slow = replace(PLAIN, links=links)
    assert float(network.all_gather(slow, 0, 8)) == pytest.approx(7 * 10e-6)
    assert float(network.all_reduce(slow, 0, 8)) == pytest.approx(2 * 3 * 10e-6)  # 2 log2(8) steps of a tree
    assert float(network.point_to_point(slow, GB, 16)) == pytest.approx(10e-6 + 1 / 10)


@given(st.integers(1, 128), st.integers(1, 64), st.integers(0, 10**10))
def test_collectives_take_no_less_with_more_ranks_or_bytes(size, stride, count):
    once = float(network.all_reduce(PLAIN, count, size, stride))
    assert 0 <= once <= float(network.all_reduce(PLAIN, 2 * count, size, stride))
    # an all-reduce is a reduce-scatter and an all-gather (Patarasuk and Yuan 2009)
    assert once == pytest.approx(2 * float(network.all_gather(PLAIN, count, size, stride)))


def work(**plan):
    model = ModelSpec(layers=8, hidden=1024, heads=16, vocab=1000, sequence=1000)
    return Work(**model_columns(model), batch=64, precision="bf16", **plan)


def test_scatter_gather_sends_one_slice_a_rank():
    """PTD-P §4.1: with tensor = 8, an eighth goes over the slow link; the rest over the fast ones."""
    count = 1000 * 1024 * 2
    plain = work(tensor=8, pipeline=4, scatter=0)
    assert float(network.between_stages(PLAIN, plain)) == pytest.approx(count / (10 * GB))
    cut = float(network.between_stages(PLAIN, replace(plain, scatter=1)))
    assert cut == pytest.approx(count / 8 / (10 * GB) + 7 / 8 * count / (100 * GB))
    sliced = float(network.between_stages(PLAIN, replace(plain, scatter=1, sequence_parallel=1)))
    assert sliced == pytest.approx(count / 8 / (10 * GB))
    assert float(network.between_stages(PLAIN, work(tensor=8))) == 0


def test_tensor_parallel_bytes_are_the_paper_s():
    """8·b·s·h·(t-1)/t elements a layer and microbatch (PTD-P §3.2): 2 all-reduces each way."""
    seconds = float(stage.tensor_exchange(PLAIN, work(tensor=8)))
    assert 2 * seconds == pytest.approx(8 * 1000 * 1024 * 7 / 8 * 2 / (100 * GB))
    assert float(stage.tensor_exchange(PLAIN, work(tensor=8, sequence_parallel=1))) == pytest.approx(seconds)


def test_zero_3_moves_half_as_much_again_as_plain_replicas():
    """ZeRO (arXiv 1910.02054 §7.2.2): 3 times the parameters instead of 2, gradients as short as weights."""
    cluster = replace(PLAIN, efficiency=replace(PLAIN.efficiency, gather_gbs=1000.0))
    replicas = work(data=8, reduce_bytes=2)
    whole = float(stage.data_exchange(cluster, replicas, 10**9))
    sharded = float(stage.shard_exchange(cluster, replace(replicas, zero=3), 10**9))
    assert sharded == pytest.approx(1.5 * whole)
    assert float(stage.data_exchange(cluster, replace(replicas, zero=1), 10**9)) == pytest.approx(whole)


def test_the_slowest_of_many_nodes_sets_the_pace():
    nodes = np.array([1, 2, 16, 128])
    late = stage.slowdown(PLAIN, work(tensor=8, data=nodes))
    assert late[0] == 1  # type: ignore[index]
    assert np.all(np.diff(late) > 0)
    # the mean of the largest of n normal numbers, by drawing them
    draws = np.random.default_rng(0).normal(0, 0.02, (4000, 128)).max(axis=1).mean()
    # sqrt(2 ln n) leads; the next term of Cramér's expansion, a fifth of it here, is left out of the model
    lead = np.sqrt(2 * np.log(128))
    beyond = 0.02 * (np.log(np.log(128)) + np.log(4 * np.pi) - 2 * np.euler_gamma) / (2 * lead)
    assert late[-1] - 1 == pytest.approx(0.02 * lead)  # type: ignore[index]
    assert late[-1] - 1 - beyond == pytest.approx(draws, rel=0.03)  # type: ignore[index]


def test_hidden_communication_is_never_more_than_there_is():
    assert float(stage.hidden(PLAIN, 2.0, 1.0)) == pytest.approx(PLAIN.efficiency.overlap)
    assert float(stage.hidden(PLAIN, 1.0, 2.0)) == pytest.approx(PLAIN.efficiency.overlap)


def test_gathers_in_a_pass_are_a_rate_not_a_share_of_the_link():
    """What limits them is their many pieces: a link of four times the speed gains nothing, a slower one limits."""
    fast, slow = (replace(PLAIN, links=(*PLAIN.links[:-1], replace(PLAIN.links[-1], gbs=gbs))) for gbs in (40.0, 2.0))
    seconds = [float(network.all_gather(cluster, GB, 16, 8, in_pass=True)) for cluster in (PLAIN, fast, slow)]
    assert seconds == pytest.approx([15 / 16 / 5, 15 / 16 / 5, 15 / 16 / (2 * PLAIN.links[-1].efficiency)])


def test_short_pieces_over_many_ranks_take_the_quick_hops_of_nccl():
    """One piece for each tensor over 64 nodes: LL128's 4 us a hop; one large piece: full speed at 14 us a hop."""
    far = replace(PLAIN, links=(*PLAIN.links[:-1], replace(PLAIN.links[-1], latency_us=14.0)))
    speed, long, short = network.ring_of(far, 512, 1)
    assert float(short) / float(long) == pytest.approx(4 / 14)
    host = replace(far, device=replace(far.device, host=True))  # gloo knows no such protocol
    assert float(network.ring_of(host, 512, 1)[2]) == float(network.ring_of(host, 512, 1)[1]) == float(long)
    exchange = Exchange(9.0, 0.0, long, short, 1 / speed, 1 / speed, 0, 1)
    _, few, _ = exchange.seconds(1e6)
    _, many, _ = exchange.seconds(1e12)
    assert float(few) == pytest.approx(9 * float(short) + 1e6 / float(speed) / 0.92)
    assert float(many) == pytest.approx(9 * float(long) + 1e12 / float(speed))
