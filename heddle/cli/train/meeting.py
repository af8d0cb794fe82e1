"""`heddle meeting`: where sites that come and go agree on who takes part in the next outer step."""

from __future__ import annotations

from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, ranged


def meeting(
    listen: Annotated[str, typer.Option("--listen", help="The only address to listen on.", metavar="HOST:PORT")],
    quorum: Annotated[int, ranged("--quorum", within=COUNT, help="The fewest sites for an outer step.")] = 2,
    wait: Annotated[
        float, ranged("--wait", within="[0.1, 86400]", help="Seconds after which the others continue without a site.")
    ] = 60.0,
) -> None:
    """Coordinate sites that train together, until their run ends; HEDDLE_SECRET keeps strangers out."""
    from rich.console import Console

    from heddle.cli.common import require_torch
    from heddle.errors import HeddleError

    require_torch("meeting")
    from heddle.train.sites.place import MeetingPlace
    from heddle.train.sites.wire import parsed_address, shared_secret

    console = Console(highlight=False)

    def tell(words: str) -> None:
        console.print(words, markup=False, soft_wrap=True)

    secret, address = shared_secret(), parsed_address(listen)
    try:
        place = MeetingPlace(address, secret, quorum, wait, tell)
    except OSError as error:
        raise HeddleError(
            f"Cannot listen on {listen}.", f"{error.strerror or error}.", "Name an address of this machine."
        ) from None
    tell(f"Sites meet at {address[0]}:{place.port}: at least {quorum}, no site waits longer than {wait:g} s.")
    try:
        place.serve()
    finally:
        place.close()
    tell("The run is over.")
