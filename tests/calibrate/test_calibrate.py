"""Calibration that never makes it worse: it starts from the cluster given, and keeps it where fitting does not help."""

from dataclasses import replace

import numpy as np
import pytest

from heddle.calibrate.calibrate import calibrate
from heddle.calibrate.runs_csv import read_rows
from heddle.simulating.closed_form import closed_form
from heddle.spec.shorthand import cluster_from_table

HEADER = "id,step_s,layers,hidden,heads,vocab,seq,gbs,mbs,tp,pp,dp,gpu,n_gpus,precision,attn,framework,interconnect"
GIVEN = cluster_from_table({"preset": "dgx-a100-80gb"})


def measured(tmp_path, cluster, noise=0.0, link="", devices=8):
    """Runs of FSDP's kind as they are predicted on a cluster, with some noise."""
    path, draw = tmp_path / "rows.csv", np.random.default_rng(0)
    shapes = [(hidden, samples) for hidden in (1024, 2048, 3072, 4096) for samples in (1, 2, 4, 8)]

    def lines(seconds):
        return [
            f"r{i},{s},24,{h},16,50304,2048,{devices * b},{b},1,1,{devices},A100-80GB,{devices},bf16,flash,DDP,{link}"
            for i, ((h, b), s) in enumerate(zip(shapes, seconds, strict=True))
        ]

    path.write_text("\n".join([HEADER, *lines([1.0] * len(shapes))]))
    rows, skipped = read_rows(path, cluster)
    assert not skipped
    times = [float(closed_form(row.work, row.cluster).seconds) * float(np.exp(draw.normal(0, noise))) for row in rows]
    path.write_text("\n".join([HEADER, *lines(times)]))
    return path


def test_rows_that_the_cluster_explains_leave_it_as_it_was(tmp_path):
    found = calibrate(GIVEN, [measured(tmp_path, GIVEN, noise=0.03)])
    assert found.kept
    assert found.cluster == GIVEN


def test_what_rows_do_not_show_stays(tmp_path):
    slower = replace(GIVEN, efficiency=replace(GIVEN.efficiency, matmul=0.6))
    found = calibrate(GIVEN, [measured(tmp_path, slower)])
    assert not found.kept
    assert found.fit.leave_one_out < found.fit.unfitted
    assert found.cluster.efficiency.matmul == pytest.approx(0.6, rel=0.05)
    assert found.cluster.efficiency.gather_gbs == pytest.approx(
        GIVEN.efficiency.gather_gbs, rel=0.01
    )  # no ZeRO between nodes
    assert not found.fit.implausible


def test_a_share_that_no_hardware_reaches_is_named(tmp_path):
    faster = replace(GIVEN, efficiency=replace(GIVEN.efficiency, matmul=0.99))
    found = calibrate(GIVEN, [measured(tmp_path, faster)], ["matmul"])
    assert found.fit.implausible
    assert "overlap" in found.fit.implausible[0]


def test_the_network_of_a_row_counts_whatever_cluster_is_calibrated(tmp_path):
    path = measured(tmp_path, GIVEN, link="4x100Gb/s", devices=64)
    (row, *_), _ = read_rows(path, GIVEN)
    assert row.cluster.links[-1].gbs == 4 * 100 / 8 / 8
    found = calibrate(GIVEN, [path])
    assert found.kept
    assert found.fit.unfitted < 0.01  # the rows are those of this network, and priced as such
    assert found.cluster.links == GIVEN.links
