"""The command line, thin: `saas demo`, `label`, `review`, `predict`, `export`, `status`, `compare`,
`reproduce`.
"""

import inspect
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from saas_ssl.training.presets import PRESETS, Settings

if TYPE_CHECKING:
    from rich.console import Console

_STARTED = time.monotonic()  # a budget counts from here

app = typer.Typer(
    help="Label the rest: a few labels in, all labels and a classifier out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Labels = Annotated[
    str | None,
    typer.Option(
        help="CSV with the columns path (or id) and label; without it, the labels that the data "
        "have: of a folder, its subfolders."
    ),
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        min=8,
        max=1024,
        help="Side of the images; default: their own if all are alike and small, else 32.",
    ),
]
KeepLabels = Annotated[
    int | None,
    typer.Option(min=2, help="Hide all labels but N, as many in each class, and measure."),
]
Unlabelled = Annotated[
    int | None, typer.Option(min=1, help="With --keep-labels: use only N of the other rows.")
]
Test = Annotated[str | None, typer.Option(help="Labelled data to test on once, at the end.")]
_HOW = "How it is computed"
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        show_default="1",
        help="Of each process; more are faster only where no other program needs the cores.",
        rich_help_panel=_HOW,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="auto|cpu|cuda|cuda:1|mps", show_default="auto", help="", rich_help_panel=_HOW
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        show_default="1",
        help="Processes on this machine, each with a trajectory of its own.",
        rich_help_panel=_HOW,
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Fit the run to 90s, 20m, 1.5h or 2d, reading and writing included.",
        rich_help_panel=_HOW,
    ),
]


@app.callback()
def saas() -> None:
    """Label the rest: a few labels in, all labels and a classifier out."""


@app.command()
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
    from saas_ssl.training.budget import seconds_of

    how = {"workers": workers, "device": device, "threads": threads}
    task = Task(
        out=out or free_name(Path("runs/demo")),
        request=Request(data="digits:train", keep_labels=50, test="digits:test"),
        command=_typed(),
        preset="digits",
        seed=seed,
        execution=Execution(**_given(how)),
        budget=None if budget is None else seconds_of(budget),
    )
    label_into(task, _console(quiet), overwrite, started=_STARTED)


def _typed() -> str:
    """The command as it was typed."""
    return shlex.join(["saas", *sys.argv[1:]])


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every parameter of the algorithm, by its public name."""
    signature = inspect.signature(command)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name, field in Settings.model_fields.items():
        if field.json_schema_extra:
            kind: Any = field.annotation
            choices = get_args(kind) if get_origin(kind) is Literal else ()
            option = typer.Option(
                f"--{name.replace('_', '-')}",
                help=field.description,
                metavar="|".join(choices) or None,
                rich_help_panel="Parameters of the algorithm",
                show_default=False,
            )
            kind = str | None if choices else kind | None
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=Annotated[kind, option],
                )
            )

    def with_settings(**values: Any) -> None:
        command(**values)

    with_settings.__name__, with_settings.__doc__ = command.__name__, command.__doc__
    with_settings.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_settings.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_settings


@app.command()
@_with_settings
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
            rich_help_panel=_HOW,
        ),
    ] = None,
    device: Device = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="fp32|bf16|fp16",
            show_default="fp32",
            help="Of the layers of networks.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    compile_: Annotated[
        bool | None,
        typer.Option(
            "--compile",
            help="Compile the networks first: minutes, then faster.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    threads: Threads = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            show_default="2m",
            help="How much work a crash may cost, within an outer iteration or epoch.",
            rich_help_panel=_HOW,
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
    from saas_ssl.labelling.request import setting
    from saas_ssl.labelling.session import label_into
    from saas_ssl.labelling.task import ask

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
        command=_typed(),
        out=out,
        resume=resume,
        request=_given(request),
        preset=preset,
        config=config,
        given=_given(parameters) | dict(map(setting, set_ or [])),
        seed=seed,
        execution=_given(execution),
        budget=budget,
        checkpoint_every=checkpoint_every,
        log=log,
        scrutiny=_given({"accept": accept, "label_folds": label_folds}),
    )
    label_into(task, _console(quiet), overwrite, goes_on, _STARTED)


@app.command()
def status(run: Annotated[Path, typer.Argument(help="Run directory of saas label.")]) -> None:
    """Say where a run is, from its files, while it runs or after."""
    from saas_ssl.progress.status import status
    from saas_ssl.runs.directory import is_running

    for line in status(run, is_running(run), time.time()):
        _console(quiet=False).print(line)


@app.command()
def review(
    run: Annotated[Path, typer.Argument(help="Run directory of saas label.")],
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
    data: Annotated[
        str | None,
        typer.Option(help="Where the data of the run are now, if no longer where it found them."),
    ] = None,
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

        _console(quiet).print(export_corrected(run, export, overwrite))
        return
    from saas_ssl.review.serving import serve

    serve(run, data, host, port, browser, _console(quiet=False), quiet)


@app.command()
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

    from saas_ssl.labelling.predicting import STDOUT, predict_into

    torch.set_num_threads(threads or 1)
    predict_into(run, data, out, overwrite, _console(quiet, stderr=out == STDOUT))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run directory of saas label.")],
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
    data: Annotated[
        str | None,
        typer.Option(help="Where the data of the run are now, if no longer where it found them."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file, or what an export wrote.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write the classifier or the labels of a run for another program."""
    import torch

    from saas_ssl.exporting import export

    torch.set_num_threads(1)
    _console(quiet).print(
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


@app.command()
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
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Labelled sets to draw.")] = 3,
    seed: Annotated[int, typer.Option(help="The first of the seeds.")] = 0,
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
    workers: Annotated[
        int,
        typer.Option(min=1, max=1024, help="Runs at a time.", rich_help_panel=_HOW),
    ] = 1,
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
        conditions, names, range(seed, seed + seeds), out, workers, _console(quiet), overwrite
    )


@app.command()
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
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Labelled sets to draw.")] = 3,
    seed: Annotated[int, typer.Option(help="The first of the seeds.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder; default: runs/NAME-SCALE.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what is missing in --out.")
    ] = False,
    overwrite: Overwrite = False,
    workers: Annotated[
        int, typer.Option(min=1, max=1024, help="Runs at a time.", rich_help_panel=_HOW)
    ] = 1,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Run a table or figure of the paper: the figure, all numbers, and a verdict on its claims."""
    from saas_ssl.experiments.reproduce import conditions_of, listing, reproduce_into

    if list_:
        _console(quiet=False).print(listing())
        return
    if name is None:
        raise typer.BadParameter("name one of them, or give --list", param_hint="NAME")
    conditions = conditions_of(name, scale, data, test, device or "auto", threads or 1)
    reproduce_into(
        conditions,
        range(seed, seed + seeds),
        out or Path("runs") / f"{name}-{scale}",
        workers,
        _console(quiet),
        resume,
        overwrite,
    )


def _console(quiet: bool, stderr: bool = False) -> "Console":
    """Where to print."""
    from rich.console import Console  # heavy imports only where a command needs them

    return Console(
        quiet=quiet, stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


def main() -> None:
    """Run the command; a user's error is one sentence on stderr and exit code 1."""
    # Being told to end is like Ctrl-C: what is half written goes away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        try:
            app()
        finally:
            while True:
                try:
                    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends, which takes a moment
                    break
                except KeyboardInterrupt:
                    pass  # one more Ctrl-C, before it was ignored
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        sys.exit(f"saas: {' '.join(str(error).splitlines())}")
    except Exception as error:
        if (code := getattr(error, "exit_code", None)) is not None:
            sys.exit(code)  # told to stop, and has said how to go on
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        sys.exit("saas: there is not enough memory for this")
