"""Options that commands share, and what they make of them."""

import inspect
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from saas_ssl.training.presets import Settings

if TYPE_CHECKING:
    from rich.console import Console

STARTED = time.monotonic()  # a budget counts from here

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

Run = Annotated[Path, typer.Argument(help="Run directory of saas label.")]
MovedData = Annotated[
    str | None,
    typer.Option(help="Where the data of the run are now, if no longer where it found them."),
]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Labelled sets to draw.")]
FirstSeed = Annotated[int, typer.Option(help="The first of the seeds.")]
COMPUTING = "How it is computed"
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        show_default="1",
        help="Of each process; more are faster only where no other program needs the cores.",
        rich_help_panel=COMPUTING,
    ),
]

Device = Annotated[
    str | None,
    typer.Option(
        metavar="auto|cpu|cuda|cuda:1|mps",
        show_default="auto",
        help="",
        rich_help_panel=COMPUTING,
    ),
]

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        show_default="1",
        help="Processes on this machine, each with a trajectory of its own.",
        rich_help_panel=COMPUTING,
    ),
]

RunsAtATime = Annotated[
    int, typer.Option(min=1, max=1024, help="Runs at a time.", rich_help_panel=COMPUTING)
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Fit the run to 90s, 20m, 1.5h or 2d, reading and writing included.",
        rich_help_panel=COMPUTING,
    ),
]


def typed() -> str:
    """The command as it was typed."""
    return shlex.join(["saas", *sys.argv[1:]])


def only_given(values: dict[str, Any]) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def console_of(quiet: bool, stderr: bool = False) -> "Console":
    """Where to print."""
    from rich.console import Console  # heavy imports only where a command needs them

    return Console(
        quiet=quiet, stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
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

    def called(**values: Any) -> None:
        command(**values)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called
