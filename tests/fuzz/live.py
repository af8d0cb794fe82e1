"""The live pages without their server: `page /plan request.json` is answered as a request, and told as a command is."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

FIRST = {"model": {"preset": "tiny"}, "cluster": {"preset": "dgx-a100-80gb"}, "train": {"global_batch": 8}}


def main() -> None:
    """Answer what the words ask; a mistake is told in its parts, with exit code 2."""
    from heddle.cli.streams import show
    from heddle.errors import HeddleError

    path, file = sys.argv[2:]
    try:
        told = _watched(Path(file)) if path == "/events" else _asked(path, Path(file))
        sys.stdout.write(json.dumps(told, allow_nan=False))
    except HeddleError as error:
        show(error)
        sys.exit(2)


def _asked(path: str, file: Path) -> object:
    from heddle.errors import HeddleError
    from heddle.explore import answers
    from heddle.explore.server import LARGEST

    if not file.is_file() or file.stat().st_size > LARGEST:
        return None
    try:
        question = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None  # as the server refuses it
    function = {"/plan": answers.answer, "/show": answers.show, "/scaling": answers.scaling}[path]
    found = function(question, FIRST)
    if "error" in found:
        raise HeddleError(*(found["error"][part] for part in ("what", "why", "hint")))
    return found


def _watched(folder: Path) -> object:
    from heddle.explore import signs, watch

    follower = watch.Follower(folder)
    about = watch.about(folder)
    _, rows = follower.look()
    found = [each for row in rows for each in signs.alarms(follower.rows, row)]
    state = watch.state(folder, follower.rows, time.time())
    return about, watch.thinned(follower.rows), signs.all_alarms(rows), found, state, signs.folder_alarms(folder)
