"""Predictions beside runs that others published, with the presets as they are."""

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
    assert found.seconds.worst <= 8
