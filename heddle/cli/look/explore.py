"""`heddle explore` and `heddle watch`: pages that live, on a server for one reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import ranged

if TYPE_CHECKING:
    from heddle.explore.server import WebSite

PORT = "[0, 65535]"


def explore(
    job: Annotated[
        Path | None, typer.Argument(help="A job file to start from.", metavar="[JOB.toml]", show_default=False)
    ] = None,
    port: Annotated[int, ranged(within=PORT, help="The port to listen on. Default: a free one.")] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on; only this machine can reach the default.")] = (
        "127.0.0.1"
    ),
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Open a page on which one turns the knobs: model, cluster, batch, pinned choices; plans follow at once."""
    from heddle.explore.pages import explore_site
    from heddle.spec.tables import read_toml

    _serve(explore_site(read_toml(job) if job is not None else None), host, port, open_it)


def watch(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs; several are drawn over each other.")],
    port: Annotated[int, ranged(within=PORT, help="The port to listen on. Default: a free one.")] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on; only this machine can reach the default.")] = (
        "127.0.0.1"
    ),
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Open a page that follows runs: loss, speed, memory, prediction, alarms. Reads their folders alone."""
    from heddle.explore.pages import watch_site

    _serve(watch_site(runs), host, port, open_it)


def _serve(site: WebSite, host: str, port: int, open_it: bool) -> None:
    from heddle.console import plain_console
    from heddle.explore.server import Server

    server = Server(site, host, port)
    console = plain_console()
    if host not in ("127.0.0.1", "::1", "localhost"):
        console.print(f"Whoever reaches {host} and has this link can ask.", style="yellow", soft_wrap=True)
    console.print(f"{server.link}\nCtrl-C ends it.", soft_wrap=True, highlight=False)
    if open_it:
        import webbrowser

        webbrowser.open(server.link)
    try:
        server.workers.warm_up()
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        console.print("Stopped.")
    finally:
        server.close()
