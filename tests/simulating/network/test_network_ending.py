"""What a step over a network ends with, by hand: sums over ends and replicas, and agreement."""

from __future__ import annotations

import numpy as np
import pytest

from heddle.simulating.network.ending import agreed, tied_ends
from heddle.simulating.network.over_network import OverNetwork
from heddle.simulating.network.replicas import SEGMENT, early_share, exchange_seconds
from heddle.spec.job import job_from_tables
from tests.simulating.network.test_over_network import DELAY, RATES, network, tables


def priced(plan: dict, untied: bool = False) -> OverNetwork:
    given = tables(plan)
    given["model"] |= {"tied": not untied}
    return OverNetwork(job_from_tables(given), network(DELAY, RATES))


def test_the_ends_of_a_pipeline_have_the_sum_when_the_later_part_has_come():
    delay, speed = np.array([[0.0, 5.0], [7.0, 0.0]]), np.array([[np.inf, 10.0], [20.0, np.inf]])
    places = np.array([[[0, 1]]])  # one tensor rank, one replica, two stages
    found = tied_ends(np.array([[100.0, 90.0]]), places, 40.0, 1, delay, speed)
    assert found.tolist() == [[max(100.0, 90.0 + 40 / 20 + 7), 100.0 + 40 / 10 + 5]]


def test_all_agree_when_the_first_stage_has_asked_everybody_and_all_are_done():
    delay = np.array([[0.0, 5.0], [7.0, 0.0]])
    places = np.array([[[0, 1]]])
    # the one who is done first has asked by then, the other has to ask
    assert agreed(np.array([[100.0, 80.0]]), places, delay).tolist() == [[100 + 5 + 7, 100 + 5]]
    assert agreed(np.array([[80.0, 100.0]]), places, delay).tolist() == [[100 + 7, 100 + 7 + 5]]


def test_one_device_agrees_with_itself_at_once():
    assert agreed(np.array([[3.0]]), np.array([[[0]]]), np.zeros((1, 1))).tolist() == [[3.0]]


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (1e3, 2 * (0.1 + 0.5e3 / 1e6) + 0.5e3 / 1e6),  # links wait for their own delay
        (1e6, 2 * 1.0 + 0.1),  # links are never idle
        (8 * SEGMENT, 2 * 4 * 2 * SEGMENT / 1e6 + 0.1),  # nor in many messages
    ],
    ids=["delay", "rate", "many messages"],
)
def test_half_of_an_exact_sum_over_three_has_two_messages_under_way(share, expected):
    delay, speed = np.where(np.eye(3), 0.0, 0.05), np.where(np.eye(3), np.inf, 1e6)
    work = priced({"data": 4, "microbatch": 2}).work
    sent = np.full((3, 3), 4.0)
    found = exchange_seconds(delay, speed, np.arange(3), 3 * share / 4, work, sent)
    assert found == pytest.approx(2 * expected)


def test_a_tied_embedding_costs_a_pipeline_its_way_over_the_link_between_its_ends():
    tied, untied = (priced({"pipeline": 4}, each).step for each in (False, True))
    size = 64 * 96 * 4
    assert tied.exchange == pytest.approx(0.05 + size / 1e6)
    assert untied.exchange == 0
    # the last stage asks rank 0 no later than that one is asked by it
    assert tied.agreement == pytest.approx(0.05)
    assert untied.agreement == pytest.approx(0.1)


def test_only_buckets_before_the_last_hide_beside_the_backward():
    work = priced({"data": 4, "microbatch": 2}).work
    one = float(work.bucket_bytes) / 4
    assert early_share(one * 0.9, work) == 0
    assert early_share(one * 3.9, work) == 3 / 4
