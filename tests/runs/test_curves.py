"""Loss over tokens and time: running means that know no future, and who reaches a loss when."""

from pathlib import Path

import numpy as np
import pytest

from heddle.runs.curves import Curve, Setting, common_loss, running_mean


def curve(loss, seconds=1.0, seed=0):
    count = np.arange(1, len(loss) + 1, dtype=float)
    return Curve(Path("run"), seed, 100 * count, seconds * count, np.array(loss, dtype=float), None)


def test_a_running_mean_looks_back_only():
    values = [4.0, 2.0, 6.0, 0.0]
    assert running_mean(values, 2).tolist() == [4.0, 3.0, 4.0, 3.0]
    assert running_mean(values, 1).tolist() == values
    assert running_mean(values, 99).tolist() == [4.0, 3.0, 4.0, 3.0]


def test_a_loss_is_reached_when_it_is_first_as_low():
    assert curve([5, 4, 3, 3.5], seconds=2.0).reach(4) == (200.0, 4.0)
    assert curve([5, 4]).reach(3) is None


def test_a_setting_reaches_a_loss_when_all_of_its_seeds_do():
    both = Setting("a", (curve([5, 4, 3]), curve([5, 3, 3])))
    assert both.reach(3) == (250.0, 2.5)
    assert Setting("b", (curve([5, 4, 3]), curve([5, 4, 4]))).reach(3) is None


def test_the_loss_to_reach_is_one_that_every_run_gets_to():
    settings = [Setting("a", (curve([5, 3.20041, 3.4]),)), Setting("b", (curve([5, 2]), curve([5, 3])))]
    assert common_loss(settings) == 3.201
    assert all(each.reach(common_loss(settings)) for each in settings)


@pytest.mark.parametrize("along", ["tokens", "seconds"])
def test_a_band_holds_every_seed(along):
    seeds = (curve([5, 4, 3]), curve([6, 4, 2], seconds=1.5))
    at, mean, low, high = Setting("a", seeds).band(along)
    assert (low <= mean).all()
    assert (mean <= high).all()
    for seed in seeds:
        inside = np.interp(at, getattr(seed, along), seed.loss)
        assert (low <= inside + 1e-12).all()
        assert (inside <= high + 1e-12).all()
