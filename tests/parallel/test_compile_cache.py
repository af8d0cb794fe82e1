"""torch.compile keeps its code where nobody else can write."""

import os
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from heddle.errors import HeddleError
from heddle.parallel.compile_cache import CHOSEN, keep_torch_private


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A temporary folder of everybody, and a home."""
    monkeypatch.setenv(CHOSEN, "")
    monkeypatch.delenv(CHOSEN)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_folder_that_nobody_has_yet_is_made_private(shared):
    keep_torch_private()
    assert os.environ[CHOSEN] == default_cache_dir()
    assert Path(default_cache_dir()).stat().st_mode & 0o777 == 0o700
    keep_torch_private()  # again, as for the next model
    assert os.environ[CHOSEN] == default_cache_dir()


@pytest.mark.parametrize("planted", ["writable", "link", "another's"])
def test_a_folder_that_a_stranger_prepared_is_not_used(shared, monkeypatch, planted):
    if planted == "link":
        (shared / "theirs").mkdir()
        Path(default_cache_dir()).symlink_to(shared / "theirs")
    else:
        Path(default_cache_dir()).mkdir()
        Path(default_cache_dir()).chmod(0o777 if planted == "writable" else 0o755)
    if planted == "another's":
        theirs, found = Path(default_cache_dir()).stat().st_ino, os.fstat

        def owned(handle):
            real = found(handle)
            return os.stat_result([*real[:4], real.st_uid + (real.st_ino == theirs), *real[5:]])

        monkeypatch.setattr(os, "fstat", owned)
    keep_torch_private()
    assert os.environ[CHOSEN] == str(shared / "home" / "heddle" / "torch")


def test_the_user_s_own_choice_stays(shared, monkeypatch):
    monkeypatch.setenv(CHOSEN, str(shared / "mine"))
    keep_torch_private()
    assert os.environ[CHOSEN] == str(shared / "mine")


def test_without_any_private_folder_nothing_is_compiled(shared):
    Path(default_cache_dir()).mkdir()
    Path(default_cache_dir()).chmod(0o777)
    (shared / "home").write_text("no folder")
    with pytest.raises(HeddleError, match=r"other users may write"):
        keep_torch_private()
