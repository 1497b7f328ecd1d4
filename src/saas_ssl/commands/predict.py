"""`saas predict`: label new data."""

from typing import Annotated

import typer

from saas_ssl.commands.options import Overwrite, Quiet, Threads, console_of


def predict(
    run: Annotated[str, typer.Argument(help="Run directory of saas label.")],
    data: Annotated[str, typer.Argument(help="New data of any kind that saas label reads.")],
    out: Annotated[str, typer.Option(help="A .csv or .parquet file, or - for standard output.")],
    overwrite: Overwrite = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Label new data with the classifier of a run."""
    import torch

    from saas_ssl.labelling.predicting import predict_into
    from saas_ssl.runs.tables import STDOUT

    torch.set_num_threads(threads or 1)
    predict_into(run, data, out, overwrite, console_of(quiet, stderr=out == STDOUT))
