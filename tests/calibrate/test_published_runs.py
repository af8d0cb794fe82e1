"""Predictions beside runs that a vendor published, with the presets as they are."""

from tests.helpers.nemo import RUNS, nemo


def test_recent_runs_in_eight_bits(tmp_path):
    found = nemo(tmp_path)
    assert not found.skipped
    assert len(found.rows) == len(RUNS)
    assert found.seconds.mape <= 8
    assert found.seconds.worst <= 18
