"""`heddle meeting`: where sites that come and go agree on who takes part in the next outer step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, ranged


def meeting(
    listen: Annotated[
        str | None, typer.Option("--listen", help="The only address to listen on.", metavar="HOST:PORT")
    ] = None,
    quorum: Annotated[int, ranged("--quorum", within=COUNT, help="The fewest sites for an outer step.")] = 2,
    wait: Annotated[
        float, ranged("--wait", within="[0.1, 86400]", help="Seconds after which the others continue without a site.")
    ] = 60.0,
    new_secret: Annotated[
        Path | None,
        typer.Option("--new-secret", help="Only make a secret for all sites, in a new file.", metavar="FILE"),
    ] = None,
) -> None:
    """Coordinate sites that train together, until their run ends; HEDDLE_SECRET_FILE keeps strangers out."""
    from heddle.cli.common import require_torch
    from heddle.console import plain_console
    from heddle.errors import HeddleError
    from heddle.spec.address import parsed_address, written_address

    console = plain_console()

    def tell(words: str) -> None:
        console.print(words, markup=False, soft_wrap=True)

    if (new_secret is None) == (listen is None):
        raise HeddleError(
            "`heddle meeting` needs either --listen or --new-secret.",
            "Sites meet at an address, with a secret that is made first.",
            "For example --new-secret site.pem, and then --listen 10.0.0.1:29700.",
        )
    require_torch("meeting")
    from heddle.training.sites import secret

    if new_secret is not None:
        secret.new_secret(new_secret)
        tell(f"Copy {new_secret} to every site, and set {secret.SECRET_FILE} to its path there.")
        return
    from heddle.training.sites.place import MeetingPlace

    assert listen is not None
    address = parsed_address(listen, any_port=True)
    shared = secret.shared_secret()
    try:
        place = MeetingPlace(address, shared, quorum, wait, tell)
    except OSError as error:
        raise HeddleError(
            f"Cannot listen on {listen}.", f"{error.strerror or error}.", "Name an address of this machine."
        ) from None
    where = written_address(address[0], place.port)
    tell(f"Sites meet at {where}: at least {quorum}, no site waits longer than {wait:g} s.")
    try:
        place.serve()
    finally:
        place.close()
    tell("The run is over.")
