"""Where the published workloads lie: beside the repository, not in it."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the published workloads are not in {DATA.name}/ beside the repository"
)
