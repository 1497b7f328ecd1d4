"""`saas demo`: the whole of it on bundled digits, with the truth known."""

from pathlib import Path
from typing import Annotated

import typer

from saas_ssl.commands.options import (
    STARTED,
    Budget,
    Device,
    Overwrite,
    Quiet,
    Threads,
    Workers,
    console_of,
    only_given,
    typed,
)


def demo(
    seed: Annotated[int, typer.Option(help="Another seed, other labels and weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/demo, runs/demo-2, ...")
    ] = None,
    overwrite: Overwrite = False,
    budget: Budget = None,
    workers: Workers = None,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Label 1,297 of scikit-learn's digits from 50 given labels, and test on 450 others."""
    from saas_ssl.labelling.request import Request
    from saas_ssl.labelling.session import label_into
    from saas_ssl.labelling.task import Execution, Task
    from saas_ssl.runs.directory import free_name
    from saas_ssl.training.times import seconds_of

    how = {"workers": workers, "device": device, "threads": threads}
    task = Task(
        out=out or free_name(Path("runs/demo")),
        request=Request(data="digits:train", keep_labels=50, test="digits:test"),
        command=typed(),
        preset="digits",
        seed=seed,
        execution=Execution(**only_given(how)),
        budget=None if budget is None else seconds_of(budget),
    )
    label_into(task, console_of(quiet), overwrite, started=STARTED)
