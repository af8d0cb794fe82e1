"""All runs that predictions are held against: the files of a folder, and those that the tests quote."""

from pathlib import Path

from heddle.calibrate.row_header import read_csv
from heddle.calibrate.runs_csv import NEEDED
from heddle.calibrate.validate import Compared, validate
from tests.helpers.published_runs import mt_nlg, nemo


def every_run(folder: Path, scratch: Path) -> list[Compared]:
    """Predictions beside all of them; `scratch`: a folder to write rows to."""
    paths = [path for path in sorted(folder.glob("*.csv")) if set(NEEDED) <= set(read_csv(path)[0])]
    return [*validate(paths).rows, *nemo(scratch).rows, *mt_nlg(scratch).rows]
