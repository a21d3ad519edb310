"""``pnpcm app``: a page in the browser for the restoration of images and scans."""

from __future__ import annotations

from typing import Annotated

import typer

from pnpcm.cli.display import say, starting


def app(
    *,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; 0.0.0.0: every network, without any password."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: a free one.")] = 7860,
    max_pixels: Annotated[
        int, typer.Option(help="Largest number of pixels of an image and of its result.")
    ] = 16_000_000,
    max_megabytes: Annotated[
        int, typer.Option(help="Largest size of an uploaded file in MB; raise it for long scans.")
    ] = 64,
    queue: Annotated[
        int, typer.Option(help="Number of requests that wait; more are refused with a sentence.")
    ] = 20,
) -> None:
    """Open a page in the browser that restores images and MRI scans on this machine.

    One file is computed at a time; others wait. Ctrl-C ends the app and deletes its temporary
    files. Exit code 0, or 2 for bad input. Needs pip install "pnpcm[app]", and "pnpcm[mri]" for
    scans.
    """
    with starting():
        from pnpcm.app.server import serve
        from pnpcm.app.work import MEGA, Limits

        limits = Limits(max_pixels=max_pixels, max_bytes=MEGA * max_megabytes, queue=queue)
    serve(host, port, limits, lambda page: say(f"{page} (Ctrl-C ends the app)"))
