"""The command line: all commands as one program, and how it ends."""

import os
import signal
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from saas_ssl.commands.compare import compare
from saas_ssl.commands.demo import demo
from saas_ssl.commands.export import export
from saas_ssl.commands.label import label
from saas_ssl.commands.predict import predict
from saas_ssl.commands.reproduce import reproduce
from saas_ssl.commands.review import review
from saas_ssl.commands.status import status

app = typer.Typer(
    help="Label the rest: a few labels in, all labels and a classifier out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"saas-ssl {version('saas-ssl')}")
        raise typer.Exit


@app.callback()
def saas(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_tell_version, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """Label the rest: a few labels in, all labels and a classifier out."""


for command in (demo, label, status, review, predict, export, compare, reproduce):
    app.command()(command)


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
