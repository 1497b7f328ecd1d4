"""`saas export`: the classifier or the labels for another program."""

from pathlib import Path
from typing import Annotated

import typer

from saas_ssl.commands.options import MovedData, Quiet, Run, console_of


def export(
    run: Run,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="onnx|torch|csv|parquet|label-studio|fiftyone|cleanlab|imagefolder",
            help="The classifier (onnx, torch), or the labels as another program takes them.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="A file, or a folder; docs/export.md has which.")],
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="uint8|float",
            show_default="uint8; float for features",
            help="What the classifier takes: pixels from 0 to 255, or from 0 to 1.",
        ),
    ] = None,
    accepted: Annotated[
        bool, typer.Option("--accepted", help="Leave out labels that are not accepted.")
    ] = False,
    link: Annotated[
        bool, typer.Option("--link", help="imagefolder: link to the images, copy none.")
    ] = False,
    image_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            show_default="that of its local files",
            help="label-studio: what stands before the path of an image.",
        ),
    ] = None,
    data: MovedData = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file, or what an export wrote.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write the classifier or the labels of a run for another program."""
    import torch

    from saas_ssl.exporting import export

    torch.set_num_threads(1)
    console_of(quiet).print(
        export(
            run,
            format_,
            out,
            overwrite=overwrite,
            input=input_,
            accepted=accepted,
            link=link,
            image_prefix=image_prefix,
            data=data,
        )
    )
