"""`saas label`: infer the labels of all rows from those of a few."""

from pathlib import Path
from typing import Annotated, Any

import typer

from saas_ssl.commands.options import (
    COMPUTING,
    STARTED,
    Budget,
    Device,
    ImageSize,
    KeepLabels,
    Labels,
    Overwrite,
    Quiet,
    Test,
    Threads,
    Unlabelled,
    Workers,
    console_of,
    only_given,
    typed,
    with_settings,
)
from saas_ssl.training.presets import PRESETS


@with_settings
def label(
    data: Annotated[
        str | None,
        typer.Argument(
            help="A folder of images, a .csv, .npz or .parquet file, idx:DIR, cifar10:DIR, "
            "svhn:DIR or digits."
        ),
    ] = None,
    labels: Labels = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/label, runs/label-2, ...")
    ] = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in --out where it was interrupted; with no other arguments, "
            "exactly as it was begun.",
        ),
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(help=f"automatic (from the data), {', '.join(PRESETS)}.", metavar="NAME"),
    ] = None,
    image_size: ImageSize = None,
    keep_labels: KeepLabels = None,
    unlabelled: Unlabelled = None,
    test: Test = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; docs/cli.md has all."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="run.json of an earlier run: do the same again, but for what is given."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed, other draws; default: 0.")] = None,
    budget: Budget = None,
    workers: Workers = None,
    parallel: Annotated[
        str | None,
        typer.Option(
            metavar="trajectories|data",
            show_default="trajectories",
            help="What several processes do: trajectories of their own, or one together, each "
            "with its share of the rows.",
            rich_help_panel=COMPUTING,
        ),
    ] = None,
    device: Device = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="fp32|bf16|fp16",
            show_default="fp32",
            help="Of the layers of networks.",
            rich_help_panel=COMPUTING,
        ),
    ] = None,
    compile_: Annotated[
        bool | None,
        typer.Option(
            "--compile",
            help="Compile the networks first: minutes, then faster.",
            rich_help_panel=COMPUTING,
        ),
    ] = None,
    threads: Threads = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            show_default="2m",
            help="How much work a crash may cost, within an outer iteration or epoch.",
            rich_help_panel=COMPUTING,
        ),
    ] = None,
    accept: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            show_default="0.95",
            help="Accept labels of at least this probability; the others are for review.",
        ),
    ] = None,
    label_folds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="5",
            help="Leave one of N folds of the given labels out of each outer iteration, to learn "
            "how far labels can be trusted; 0: none.",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="tensorboard", help="Write metrics and images there, too."),
    ] = None,
    quiet: Quiet = False,
    **parameters: Any,
) -> None:
    """Infer the labels of all rows of DATA from those of a few, and train a classifier."""
    from saas_ssl.labelling.session import label_into
    from saas_ssl.labelling.task import ask
    from saas_ssl.training.choosing import setting

    request = {
        "data": data,
        "labels": labels,
        "image_size": image_size,
        "keep_labels": keep_labels,
        "unlabelled": unlabelled,
        "test": test,
    }
    execution = {
        "workers": workers,
        "parallel": parallel,
        "precision": precision,
        "compile": compile_,
        "device": device,
        "threads": threads,
    }
    if data is None and config is None and not resume:
        raise typer.BadParameter(
            "name the data, or an earlier run with --config", param_hint="DATA"
        )
    task, goes_on = ask(
        command=typed(),
        out=out,
        resume=resume,
        request=only_given(request),
        preset=preset,
        config=config,
        given=only_given(parameters) | dict(map(setting, set_ or [])),
        seed=seed,
        execution=only_given(execution),
        budget=budget,
        checkpoint_every=checkpoint_every,
        log=log,
        scrutiny=only_given({"accept": accept, "label_folds": label_folds}),
    )
    label_into(task, console_of(quiet), overwrite, goes_on, STARTED)
