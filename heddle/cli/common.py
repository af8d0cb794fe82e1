"""What several commands share: finding torch, writing traces."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, how_to_install
from heddle.files import write_output as write_output


def require_torch(command: str) -> None:
    """Say which extra is missing before anything tries to import it."""
    missing = [name for name in ("torch", "safetensors", "tokenizers") if importlib.util.find_spec(name) is None]
    if missing:
        raise HeddleError(
            f"`heddle {command}` needs {', '.join(missing)}, which this environment lacks.",
            "Planning and simulating work without them; training does not.",
            f"Install them: {how_to_install('train')}.",
        )


def write_trace(path: Path, trace: Any, memory: Any = None) -> str:
    """Write a trace as a picture or for Perfetto, by the name of the file; say what to do with it."""
    import json

    from heddle.trace import to_perfetto, to_png, to_svg

    match path.suffix:
        case ".svg":
            write_output(path, to_svg(trace))
        case ".png":
            write_output(path, to_png(trace))
        case ".json":
            write_output(path, json.dumps(to_perfetto(trace, memory)))
            return f"Written to {path}. Open it at https://ui.perfetto.dev."
        case _:
            raise HeddleError(
                f"{path} is neither .json, .svg nor .png.",
                "A trace is written for ui.perfetto.dev, or as a picture.",
                f"Name it {path.stem}.json, {path.stem}.svg or {path.stem}.png.",
            )
    return f"Written to {path}."


def check_page(path: Path) -> None:
    """A page goes to a file that is called one: nobody's job or cluster is written over by mistake."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise HeddleError(
            f"-o {path} is not the name of a page.",
            "The page is HTML, and would replace whatever is there.",
            f"Name it {path.stem or 'page'}.html.",
        )
