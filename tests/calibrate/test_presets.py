"""What presets say of their own accuracy is what the published runs show."""

import re
from collections import defaultdict

import numpy as np

from heddle.calibrate.row_header import read_csv
from heddle.calibrate.runs_csv import NEEDED, read_rows
from heddle.calibrate.validate import validate
from heddle.spec.presets import cluster_presets
from tests.helpers.published import DATA, needs_data
from tests.helpers.published_runs import mt_nlg, nemo

FOLDER = DATA / "measured" / "validation"


@needs_data
def test_presets_say_how_many_runs_they_were_validated_on(tmp_path):
    errors = defaultdict(list)
    for path in sorted(FOLDER.glob("*.csv")):
        if set(NEEDED) <= set(read_csv(path)[0]):
            found = {each.id: each.error_pct for each in validate([path]).rows}
            for row in read_rows(path)[0]:
                errors[row.cluster.name].append(found[row.id])
    errors["dgx-h100"] += [each.error_pct for each in nemo(tmp_path).rows]
    errors["dgx-a100-80gb"] += [each.error_pct for each in mt_nlg(tmp_path).rows]
    for name, table in cluster_presets().items():
        said = re.search(r"validated on (\d+) runs, mean error ([\d.]+) %", table["efficiency"]["source"])
        assert (said is not None) == (name in errors), name
        if said is not None:
            assert int(said[1]) == len(errors[name]), name
            assert abs(float(said[2]) - np.abs(errors[name]).mean()) < 0.06, name
