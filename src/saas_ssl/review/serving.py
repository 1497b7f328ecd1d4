"""`saas review RUN`: a page for one person on this machine, until Ctrl-C."""

import secrets
import shlex
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Timer
from typing import Any

import uvicorn
from rich.console import Console
from torch import Tensor

from saas_ssl.images.pictures import as_picture
from saas_ssl.images.pixels import only_bombs_noticed
from saas_ssl.review.guard import Guard, is_loopback
from saas_ssl.review.log import ReviewLog
from saas_ssl.review.page import Picture, Review, page
from saas_ssl.review.table import Table
from saas_ssl.runs.files import POSTERIOR_FILE, RUN_FILE
from saas_ssl.runs.finished import (
    Labels,
    check_finished,
    read_labels,
    source_of,
    tensor_of,
    typed_rows,
)
from saas_ssl.runs.model import form_of
from saas_ssl.runs.record import read_run
from saas_ssl.sources.source import Source
from saas_ssl.sources.wording import counted

_FEATURES = 12  # of a row that are shown
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104  # only if it is asked for


def serve(
    run: Path,
    data: str | None,
    host: str,
    port: int,
    browser: bool,
    console: Console,
    quiet: bool = False,
) -> None:
    """Show the review page of a finished run; every decision is in RUN/review.jsonl at once.

    Its address is always printed, for there is no other way to the page where no browser opens.
    """
    check_finished(run, labels=True)
    labels = read_labels(run, data)
    ids = [row["id"] for row in labels.rows]
    source = source_of(labels)
    with _bound(host, port) as server, ReviewLog(run, ids, labels.classes) as log:
        port, token = server.getsockname()[1], secrets.token_urlsafe(32)
        guarded = Guard(page(_review(labels, source, log)), token, host, port)
        everywhere = host in _EVERY_ADDRESS
        url = _address("127.0.0.1" if everywhere else host, port, token)
        if not is_loopback(host):
            console.print(
                f"Beware: {host} can be reached by other machines. Whoever has this address can "
                "see your images and decide, and what is sent is not encrypted."
            )
        console.print(f"Review page: {url}")
        if everywhere:
            console.print(f"From other machines: {_address(socket.gethostname(), port, token)}")
        if not quiet:
            console.print("Every decision is saved at once. Ctrl-C ends the page.")
        if browser:
            Timer(0.5, webbrowser.open, [url]).start()
        config = uvicorn.Config(
            guarded,
            log_level="error",
            access_log=False,  # addresses hold the token
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
        try:
            with only_bombs_noticed():  # once, for all threads
                uvicorn.Server(config).run(sockets=[server])
        except KeyboardInterrupt:
            pass  # it is how a review ends
        if not quiet:
            console.print(_last_words(run, log))


def _address(host: str, port: int, token: str) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"http://{named}:{port}/?token={token}"


def _last_words(run: Path, log: ReviewLog) -> str:
    place, n = shlex.quote(str(run)), len(log.reviewed.decisions)
    if not n:
        return "Nothing has been checked yet."
    return (
        f"{counted(n, 'row')} checked. To use that: saas review {place} --export corrected.csv, "
        "then saas label DATA --labels corrected.csv"
    )


def _bound(host: str, port: int) -> socket.socket:
    """A socket that others can connect to; port 0 is any that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{host} is no address of this machine: {error}") from None
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(128)
    except OSError as error:
        server.close()
        raise ValueError(f"{host}, port {port}: {error.strerror or error}") from None
    return server


def _review(labels: Labels, source: Source, log: ReviewLog) -> Review:
    rows = typed_rows(labels)
    place = {id_: at for at, id_ in enumerate(source.ids)}
    at = [place[row.id] for row in rows]
    picture, features = None, None
    if labels.has_images:
        form = form_of(labels.run)
        picture = _pictures(source, at, 255 if form is None else form.white)
    else:
        features = _features(source, at)
    return Review(
        title=labels.run.resolve().name,
        classes=labels.classes,
        table=Table(rows, _order(labels.run, len(rows))),
        log=log,
        trust=_trust(labels.run),
        session=secrets.token_hex(8),
        picture=picture,
        features=features,
        lock=Lock(),
    )


def _trust(run: Path) -> dict[str, Any]:
    """What the run says of how many labels are right."""
    trust = read_run(run)["results"].get("trust")
    if not isinstance(trust, dict) or not {"left_out", "all"} <= trust.keys():
        raise ValueError(f"{run / RUN_FILE} is broken, or of an earlier version")
    return trust


def _order(run: Path, rows: int) -> list[int]:
    """The rows as the run has ranked them."""
    order: list[int] = tensor_of(run, "review_order", rows).tolist()
    if sorted(order) != list(range(rows)):
        raise ValueError(f"{run / POSTERIOR_FILE} is broken: it does not rank the rows of the run")
    return order


def _pictures(source: Source, at: list[int], white: int) -> Picture:
    return lambda row, side: as_picture(source.image(at[row]), side, white)


def _features(source: Source, at: list[int]) -> Callable[[int], list[tuple[str, float]]]:
    """The first few numbers of a row, by their names."""
    x = source.rows
    if not isinstance(x, Tensor) or x.ndim != 2:
        raise ValueError("the run labels features, but its data are images now")
    names = source.features or [f"x{n}" for n in range(x.shape[1])]
    return lambda row: list(zip(names[:_FEATURES], x[at[row], :_FEATURES].tolist(), strict=True))
