"""The command line, thin: `saas demo`, `saas label`, `saas predict`."""

import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from saas_ssl.presets import PRESETS, Settings

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="Label the rest: a few labels in, all labels and a classifier out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Threads = Annotated[
    int,
    typer.Option(
        min=1, max=1024, help="More are faster only where no other program needs the cores."
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
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Label 1,297 of scikit-learn's digits from 50 given labels, and test on 450 others."""
    from saas_ssl.labelling import Request, label_into
    from saas_ssl.runs import free_name

    request = Request(data="digits:train", keep_labels=50, test="digits:test")
    out = out or free_name(Path("runs/demo"))
    label_into(out, overwrite, request, PRESETS["digits"], {}, seed, _console(threads, quiet))


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
    labels: Annotated[
        str | None,
        typer.Option(
            help="CSV with the columns path and label, for a folder; without it, the folder's "
            "subfolders are the classes."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/label, runs/label-2, ...")
    ] = None,
    overwrite: Overwrite = False,
    preset: Annotated[
        str | None,
        typer.Option(help=f"automatic (from the data), {', '.join(PRESETS)}.", metavar="NAME"),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            min=8,
            max=1024,
            help="Side of the images; default: their own if all are alike and small, else 32.",
        ),
    ] = None,
    keep_labels: Annotated[
        int | None,
        typer.Option(min=2, help="Hide all labels but N, as many in each class, and measure."),
    ] = None,
    unlabelled: Annotated[
        int | None, typer.Option(min=1, help="With --keep-labels: use only N of the other rows.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Labelled data to test on once, at the end.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; docs/cli.md has all."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="run.json of an earlier run: do the same again, but for what is given."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed, other draws; default: 0.")] = None,
    threads: Threads = 1,
    quiet: Quiet = False,
    **parameters: Any,
) -> None:
    """Infer the labels of all rows of DATA from those of a few, and train a classifier."""
    from saas_ssl.labelling import Request, label_into, repeated, setting
    from saas_ssl.presets import named_preset
    from saas_ssl.runs import free_name

    asked: dict[str, Any] = {
        "data": data,
        "labels": labels,
        "image_size": image_size,
        "keep_labels": keep_labels,
        "unlabelled": unlabelled,
        "test": test,
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    given = {name: value for name, value in parameters.items() if value is not None}
    given |= dict(map(setting, set_ or []))
    base = None
    if config is not None:
        earlier, base, earlier_seed = repeated(config)
        asked = {**earlier.model_dump(), **asked}
        seed = earlier_seed if seed is None else seed
    elif data is None:
        raise typer.BadParameter(
            "name the data, or an earlier run with --config", param_hint="DATA"
        )
    if preset is not None:
        base = None if preset == "automatic" else named_preset(preset)
    out, console = out or free_name(Path("runs/label")), _console(threads, quiet)
    label_into(out, overwrite, Request(**asked), base, given, seed or 0, console)


@app.command()
def predict(
    run: Annotated[str, typer.Argument(help="Run directory of saas label.")],
    data: Annotated[str, typer.Argument(help="New data of any kind that saas label reads.")],
    out: Annotated[str, typer.Option(help="A .csv or .parquet file, or - for standard output.")],
    overwrite: Overwrite = False,
    threads: Threads = 1,
    quiet: Quiet = False,
) -> None:
    """Label new data with the classifier of a run."""
    from saas_ssl.predicting import STDOUT, predict_into

    predict_into(run, data, out, overwrite, _console(threads, quiet, stderr=out == STDOUT))


def _console(threads: int, quiet: bool, stderr: bool = False) -> "Console":
    """Where to print; torch gets its threads here, once."""
    import torch  # heavy imports only where a command needs them
    from rich.console import Console

    torch.set_num_threads(threads)
    return Console(
        quiet=quiet, stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


def main() -> None:
    """Run the command; a user's error is one sentence on stderr and exit code 1."""
    # Being told to end is like Ctrl-C: what is half written goes away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        sys.exit(f"saas: {' '.join(str(error).splitlines())}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        sys.exit("saas: there is not enough memory for this")
