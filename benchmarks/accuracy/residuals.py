"""Writes heddle/simulating/residuals.csv, which error bars are made from: how far every run of validation was missed.

    python -m benchmarks.accuracy.residuals ../shared/data/measured/validation

Run it after every change of the cost model; a test says when it is due.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from heddle.calibrate.validate import residual_lines
from tests.helpers.residuals import every_run

TARGET = Path(__file__).parents[2] / "heddle" / "simulating" / "residuals.csv"


def main() -> None:
    with TemporaryDirectory() as scratch:
        runs = every_run(Path(sys.argv[1]), Path(scratch))
    TARGET.write_text("\n".join(residual_lines(runs)) + "\n", encoding="utf-8")
    print(f"{len(runs)} runs written to {TARGET.name}")


if __name__ == "__main__":
    main()
