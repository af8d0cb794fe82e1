"""Whether a plan fits the devices that its processes found."""

from dataclasses import replace

import pytest

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.runtime.allotment import Allotted, in_words, refuse, refuse_mixed
from heddle.spec import Plan
from heddle.spec.cluster import Cluster, Device, Link

LINKS = (Link(name="fast", gbs=400.0),)
GPU = Allotted("boot", "node1", True, "NVIDIA H100", 79 * GIB, "", True, "8 × mlx5")


def nodes(*counts):
    """GPUs on nodes, so many on each."""
    return [
        replace(GPU, host=f"boot{node}", node=f"node{node}", identity=f"{node}-{number}")
        for node, count in enumerate(counts)
        for number in range(count)
    ]


def cluster(devices=8, memory=80.0):
    return Cluster(devices=devices, nodes=2, device=Device(name="H100", memory_gib=memory), links=LINKS)


def test_ranks_that_would_choose_different_precisions_are_refused():
    refuse_mixed(["bf16", "bf16"])
    with pytest.raises(HeddleError) as error:
        refuse_mixed(["bf16", "bf16", "fp32"])
    assert error.value.what == "Rank 0 would train in bf16, but rank 2 in fp32."
    assert 'precision = "fp32"' in error.value.hint


def test_what_fits_is_taken():
    refuse(Plan(tensor=8, data=2), cluster(), nodes(8, 8))
    refuse(Plan(tensor=8, data=2), None, nodes(8, 8))
    refuse(Plan(tensor=16), cluster(devices=16), nodes(8, 8))  # one switch joins the hosts of such a cluster
    cpu = Allotted("boot", "node1", False, "cpu", 4 * GIB, "", False, "")
    refuse(Plan(tensor=2), cluster(), [cpu, cpu])


@pytest.mark.parametrize(
    ("plan", "about", "found", "parts"),
    [
        (
            Plan(tensor=16),
            cluster(),
            nodes(8, 8),
            ("tensor = 16 splits every layer over 2 nodes", "links", "tensor = 8"),
        ),
        (
            Plan(data=3),
            None,
            [*nodes(2), nodes(1)[0]],
            ("Ranks 0 and 2 have the same GPU", "has 3 processes and shows them 2 GPUs", "--gpus-per-node"),
        ),
        (
            Plan(data=2),
            cluster(),
            [*nodes(1), replace(nodes(2)[1], memory=40 * GIB)],
            ("rank 1, a NVIDIA H100, has 40 GiB; [cluster] states 80", "run out", "memory_gib = 40"),
        ),
        (
            Plan(data=2),
            None,
            [*nodes(1), replace(GPU, gpu=False)],
            ("Rank 1 sees no GPU, but rank 0 does", "same kind", "--gpus-per-node"),
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_three_parts(plan, about, found, parts):
    with pytest.raises(HeddleError) as error:
        refuse(plan, about, found)
    for part, words in zip(parts, (error.value.what, error.value.why, error.value.hint), strict=True):
        assert part in words


def test_one_line_says_what_was_found():
    assert in_words(nodes(8, 8)).startswith(
        "16 × NVIDIA H100 on 2 nodes; 79 GiB each; GPUs reach each other's memory; network 8 × mlx5; over "
    )
