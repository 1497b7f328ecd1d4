"""The command line, thin: `saas demo`."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Label the rest: a few labels in, all labels and a classifier out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def saas() -> None:
    """Label the rest: a few labels in, all labels and a classifier out."""


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Another seed, other labels and weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/demo, runs/demo-2, ...")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    threads: Annotated[
        int,
        typer.Option(
            min=1, max=1024, help="More are faster only where no other program needs the cores."
        ),
    ] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Label 1,297 of scikit-learn's digits from 50 given labels, and test on 450 others."""
    import torch  # heavy imports only where a command needs them
    from rich.console import Console

    from saas_ssl.data import hold_out, keep_labels, read_digits
    from saas_ssl.job import Truth, run_job, total_image_passes
    from saas_ssl.pipeline import prepare
    from saas_ssl.presets import named_preset
    from saas_ssl.progress import Display, results_table
    from saas_ssl.randomness import generator_at
    from saas_ssl.runs import check_target, free_name, run_directory

    out = out or free_name(Path("runs/demo"))
    check_target(out, overwrite)
    torch.set_num_threads(threads)
    console = Console(quiet=quiet, markup=False, highlight=False, soft_wrap=True)
    # The same test rows for every seed, and none of them in the data that the preset was chosen on.
    rest, test = hold_out(read_digits(), 450, generator_at(0, "test"))
    data = keep_labels(rest, 50, generator_at(seed, "kept labels"))
    truth = Truth(unlabelled=rest.y[data.unlabelled_rows], test=test)
    problem = prepare(data, named_preset("digits"), seed)
    console.print(
        f"digits: {len(data.labelled_rows)} labelled, {len(data.unlabelled_rows)} unlabelled, "
        f"{len(test.y)} held out; one outer iteration moves P_u by {problem.effective_step:g} x "
        "the mean negative log-likelihood"
    )
    with (
        run_directory(out, overwrite) as directory,
        Display(console, total_image_passes(problem)) as display,
    ):
        results = run_job(problem, truth, "digits", directory, display)
    console.print(results_table(results))
    console.print(f"results: {out}/labels.csv, run.json, metrics.jsonl")


def main() -> None:
    """Run the command; a user's error is one sentence on stderr and exit code 1."""
    # Being told to end is like Ctrl-C: what is half written goes away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except (ValueError, OSError) as error:
        sys.exit(f"saas: {error}")
