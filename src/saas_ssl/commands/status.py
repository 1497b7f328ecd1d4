"""`saas status`: where a run is."""

import time
from pathlib import Path
from typing import Annotated

import typer

from saas_ssl.commands.options import console_of


def status(run: Annotated[Path, typer.Argument(help="Run directory of saas label.")]) -> None:
    """Say where a run is, from its files, while it runs or after."""
    from saas_ssl.progress.status import status
    from saas_ssl.runs.directory import is_running

    for line in status(run, is_running(run), time.time()):
        console_of(quiet=False).print(line)
