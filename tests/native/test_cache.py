"""Code that is kept on disk is run only where nobody else can have put it there."""

import os
import stat

import pytest

from heddle.errors import HeddleError
from heddle.native.cache import SIZE, CodeCache, private, user_folder


@pytest.fixture
def cache(tmp_path):
    made = CodeCache(tmp_path / "code")
    made.write("a.o", b"code of a")
    return made


def test_what_was_written_is_read_again_by_others_of_this_user(cache):
    assert CodeCache(cache.folder).read("a.o") == b"code of a"
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in cache.folder.iterdir())
    assert sorted(file.name for file in cache.folder.iterdir()) == ["a.o", "key"]


def test_every_changed_byte_is_noticed(cache):
    file = cache.folder / "a.o"
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cache.read("a.o") is None
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert cache.read("a.o") is None


def test_a_file_cannot_stand_in_for_another(cache):
    (cache.folder / "a.o").rename(cache.folder / "b.o")
    assert cache.read("b.o") is None


def test_a_file_made_under_another_key_is_not_believed(cache, tmp_path):
    stranger = CodeCache(tmp_path / "stranger")
    stranger.write("a.o", b"their code")
    (stranger.folder / "a.o").replace(cache.folder / "a.o")
    assert cache.read("a.o") is None


@pytest.mark.parametrize("name", ["a.o", "key"])
def test_links_and_pipes_are_neither_followed_nor_waited_for(cache, tmp_path, name):
    file, elsewhere = cache.folder / name, tmp_path / "elsewhere"
    file.rename(elsewhere)
    elsewhere_was = elsewhere.read_bytes()
    for plant in (lambda: file.symlink_to(elsewhere), lambda: os.mkfifo(file), lambda: file.symlink_to("/dev/zero")):
        plant()
        assert cache.read("a.o") is None
        cache.write("a.o", b"code of a")  # replaces what was planted, and leaves alone what it led to
        assert elsewhere.read_bytes() == elsewhere_was
        assert cache.read("a.o") == b"code of a"
        file.unlink()


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(HeddleError, match="Other users may write") as caught:
        CodeCache(folder, "HEDDLE_TILES_CACHE").read("a.o")
    assert "HEDDLE_TILES_CACHE" in caught.value.hint
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    CodeCache(folder).write("a.o", b"code")  # one that only Heddle uses is mended
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_used(cache, monkeypatch):
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert cache.read("a.o") is None
    with pytest.raises(HeddleError, match="belongs to another user"):
        CodeCache(cache.folder, "HEDDLE_TILES_CACHE").read("a.o")


def test_a_link_in_place_of_the_folder_is_not_followed(cache, tmp_path):
    (tmp_path / "link").symlink_to(cache.folder)
    assert CodeCache(tmp_path / "link").read("a.o") is None
    with pytest.raises(OSError):
        private(tmp_path / "link")


def test_files_of_another_user_are_not_read(cache, monkeypatch):
    found = os.fstat

    def foreign(handle):
        real = found(handle)
        fields = list(real)
        fields[4] += stat.S_ISREG(real.st_mode)
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", foreign)
    assert cache.read("a.o") is None


def test_a_disk_that_takes_nothing_costs_only_time(cache, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.write("b.o", b"code")
    assert cache.read("b.o") is None
    assert sorted(file.name for file in cache.folder.iterdir()) == ["a.o", "key"]
    (cache.folder / "key").unlink()
    assert cache.read("a.o") is None


def test_a_name_that_no_folder_can_have_is_told(tmp_path):
    with pytest.raises(HeddleError):
        CodeCache(tmp_path / "a\0b", "HEDDLE_TILES_CACHE").read("a.o")
    assert CodeCache(tmp_path / "a\0b").read("a.o") is None


def test_nobody_s_home_has_no_folder(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(user_folder("tiles")) == "/somewhere/heddle/tiles"
    assert SIZE >= 16
