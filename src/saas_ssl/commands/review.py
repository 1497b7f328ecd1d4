"""`saas review`: check labels on a local page, or export what was checked."""

from pathlib import Path
from typing import Annotated

import typer

from saas_ssl.commands.options import MovedData, Run, console_of


def review(
    run: Run,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="F.csv",
            help="Open no page: write the labels, given and checked, for saas label --labels.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --export: replace the file.")
    ] = False,
    data: MovedData = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    host: Annotated[
        str, typer.Option(help="Another address lets other machines in, if they have the token.")
    ] = "127.0.0.1",
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing but errors, and the page's address.")
    ] = False,
) -> None:
    """Check labels on a local page, those first that are most worth a look."""
    if overwrite and export is None:
        raise typer.BadParameter("it goes with --export", param_hint="--overwrite")
    if export is not None:
        from saas_ssl.review.corrected import export_corrected

        console_of(quiet).print(export_corrected(run, export, overwrite))
        return
    from saas_ssl.review.serving import serve

    serve(run, data, host, port, browser, console_of(quiet=False), quiet)
