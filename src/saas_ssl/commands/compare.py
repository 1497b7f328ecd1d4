"""`saas compare`: several methods on the same labels with the same budget."""

from pathlib import Path
from typing import Annotated

import typer

from saas_ssl.commands.options import (
    Device,
    FirstSeed,
    ImageSize,
    KeepLabels,
    Labels,
    Overwrite,
    Quiet,
    RunsAtATime,
    Seeds,
    Test,
    Threads,
    Unlabelled,
    console_of,
)


def compare(
    data: Annotated[str, typer.Argument(help="Data of any kind that saas label reads.")],
    labels: Labels = None,
    keep_labels: KeepLabels = None,
    unlabelled: Unlabelled = None,
    test: Test = None,
    image_size: ImageSize = None,
    methods: Annotated[
        str, typer.Option(metavar="A,B,C|all", help="Which; docs/comparison.md has all names.")
    ] = "all",
    seeds: Seeds = 3,
    seed: FirstSeed = 0,
    budget: Annotated[
        str,
        typer.Option(
            metavar="PASSES|TIME", help="Of each run: 150k or 1M image passes, or 90s or 20m."
        ),
    ] = "100k",
    network: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default="small_conv, or mlp for features", help=""),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Channels of its first stage; default: its own.")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            metavar="small|original", help="Tuned for CPUs, or as in the methods' own codes."
        ),
    ] = "small",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[METHOD.]NAME=VALUE",
            help="A setting of one method, or of all that have it.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder; what it has of this comparison already is not repeated.")
    ] = Path("runs/compare"),
    overwrite: Overwrite = False,
    workers: RunsAtATime = 1,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train by several methods on the same labels with the same budget, and compare."""
    from saas_ssl.experiments.cell import Conditions
    from saas_ssl.experiments.compare import budget_of, compare_into, given_of, methods_of
    from saas_ssl.labelling.request import Request

    names = methods_of(methods)
    conditions = Conditions(
        request=Request(
            data=data,
            labels=labels,
            image_size=image_size,
            keep_labels=keep_labels,
            unlabelled=unlabelled,
            test=test,
        ),
        network=network,
        width=width,
        budget=budget_of(budget),
        preset=preset,
        given=given_of(set_ or [], names),
        device=device or "auto",
        threads=threads or 1,
    )
    compare_into(
        conditions, names, range(seed, seed + seeds), out, workers, console_of(quiet), overwrite
    )
