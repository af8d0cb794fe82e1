"""Grids of cases: the few that between them meet every feature run always, the others with `-m slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], slow: Iterable[Any]) -> list[Any]:
    """All cases, as parameters of a test; those in `slow` run in the slow suite only."""
    every, left = list(cases), list(slow)
    assert all(case in every for case in left), "a slow case is none of the cases"
    return [pytest.param(case, marks=pytest.mark.slow) if case in left else case for case in every]
