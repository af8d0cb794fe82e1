"""Where torch.compile keeps the code that it makes: in a folder that nobody else can write to."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from heddle.errors import HeddleError
from heddle.files import shown
from heddle.native.cache import private, user_folder

CHOSEN = "TORCHINDUCTOR_CACHE_DIR"


def keep_torch_private() -> None:
    """Have torch.compile keep its code where nobody else can write.

    PyTorch's own choice is a folder in the shared temporary one, named after the user: whoever makes it first owns it.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    usual = default_cache_dir()
    if os.environ.get(CHOSEN, usual) != usual:
        return  # chosen by the user
    for folder in (Path(usual), user_folder("torch")):
        with suppress(OSError):
            if folder is not None:
                os.close(private(folder, ours=False))
                os.environ[CHOSEN] = str(folder)
                return
    raise HeddleError(
        f"torch.compile would keep its code in {shown(usual)}, which other users may write to.",
        "What lies there is run.",
        f"Set {CHOSEN} to a folder of your own.",
    )
