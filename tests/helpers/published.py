"""Where published workloads and measured runs lie: beside the repository, not in it."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no published data in {DATA.name}/ beside the repository")
