"""A user's file is run as it is now, however soon after its last change."""

import importlib.util
import os

from heddle.user_code import spec_of


def value(path):
    spec = spec_of("of_a_user", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VALUE


def test_an_edit_that_keeps_size_and_time_is_seen_and_nothing_is_written_beside_it(tmp_path):
    path = tmp_path / "mine.py"
    for number in (1, 2):
        path.write_text(f"VALUE = {number}\n")
        os.utime(path, (1_000_000, 1_000_000))
        assert value(path) == number
    assert list(tmp_path.iterdir()) == [path]
