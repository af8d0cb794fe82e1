"""Tables for notebooks: rows as a pandas DataFrame, where that is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heddle.errors import HeddleError


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows as a pandas DataFrame."""
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise HeddleError(
            "pandas is not installed.", "Tables for notebooks are its DataFrames.", "pip install pandas"
        ) from None
    return pandas.DataFrame(list(rows))
