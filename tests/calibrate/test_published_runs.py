"""Predictions beside runs that others published, with the presets as they are."""

import pytest

from tests.helpers.published_runs import MT_NLG, RUNS, mt_nlg, nemo


def test_recent_runs_in_eight_bits(tmp_path):
    found = nemo(tmp_path)
    assert not found.skipped
    assert len(found.rows) == len(RUNS)
    assert found.seconds.mape <= 8
    assert found.seconds.worst <= 18


def test_a_large_pipeline_of_deepspeed(tmp_path):
    found = mt_nlg(tmp_path)
    assert not found.skipped
    assert len(found.rows) == len(MT_NLG)
    first, *_, last = found.rows  # 240 and 160 microbatches a replica, between which only these differ
    assert first.predicted_s - last.predicted_s == pytest.approx(first.measured_s - last.measured_s, rel=0.03)
    # what a step takes once is 5 to 6 s more than priced, and no reason for that is known
    short = [row.measured_s - row.predicted_s for row in found.rows]
    assert max(short) < 6
    assert max(short) - min(short) < 0.6
