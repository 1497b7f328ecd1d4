"""`saas reproduce`: a table or figure of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from saas_ssl.commands.options import (
    Device,
    FirstSeed,
    Overwrite,
    Quiet,
    RunsAtATime,
    Seeds,
    Threads,
    console_of,
)


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Which table or figure of the paper; --list has all.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List all, and end.")] = False,
    scale: Annotated[
        str,
        typer.Option(
            metavar="smoke|laptop|paper",
            help="Digits in a minute, any images in an hour, or the protocol of the paper.",
        ),
    ] = "smoke",
    data: Annotated[
        str | None,
        typer.Option(
            show_default="digits, for smoke",
            help="Fully labelled images of any kind that saas label reads; for the paper "
            "cifar10:DIR or svhn:DIR.",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="Test data; not needed where the data have a part for it."),
    ] = None,
    seeds: Seeds = 3,
    seed: FirstSeed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder; default: runs/NAME-SCALE.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what is missing in --out.")
    ] = False,
    overwrite: Overwrite = False,
    workers: RunsAtATime = 1,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Run a table or figure of the paper: the figure, all numbers, and a verdict on its claims."""
    from saas_ssl.experiments.reproduce import conditions_of, listing, reproduce_into

    if list_:
        console_of(quiet=False).print(listing())
        return
    if name is None:
        raise typer.BadParameter("name one of them, or give --list", param_hint="NAME")
    conditions = conditions_of(name, scale, data, test, device or "auto", threads or 1)
    reproduce_into(
        conditions,
        range(seed, seed + seeds),
        out or Path("runs") / f"{name}-{scale}",
        workers,
        console_of(quiet),
        resume,
        overwrite,
    )
