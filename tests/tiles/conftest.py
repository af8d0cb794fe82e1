import os

import pytest

pytest.importorskip("llvmlite")


@pytest.fixture(scope="session", autouse=True)
def kernels_of_this_session(tmp_path_factory):
    """Compiled kernels are kept for the session, and not in anybody's home."""
    os.environ["HEDDLE_TILES_CACHE"] = str(tmp_path_factory.mktemp("kernels"))
    yield
    del os.environ["HEDDLE_TILES_CACHE"]
