"""`saas status`: where a run is."""

import time

from saas_ssl.commands.options import Run, console_of


def status(run: Run) -> None:
    """Say where a run is, from its files, while it runs or after."""
    from saas_ssl.progress.status import status
    from saas_ssl.runs.directory import is_running

    for line in status(run, is_running(run), time.time()):
        console_of(quiet=False).print(line)
