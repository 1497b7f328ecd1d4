"""What the review page asks of its server, and what it is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from threading import Lock
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from saas_ssl.review.log import ConflictError, ReviewLog
from saas_ssl.review.table import ORDERS, SHOWS, Query, Table

MOST_ROWS = 200  # of a page, and so of one action
_SIDES = {"thumb": 224, "full": 1600}
_STATIC = {
    "review.js": "text/javascript",
    "review.css": "text/css",
    "theme.css": "text/css",
    "icon.svg": "image/svg+xml",
}

Picture = Callable[[int, int], tuple[bytes, str]]
"""(Row, longest side) -> (a file, its media type)."""


@dataclass(frozen=True)
class Review:
    """All that one review is about."""

    title: str
    classes: Sequence[str]
    table: Table
    log: ReviewLog
    trust: Mapping[str, Any]  # of run.json
    session: str  # unlike that of any other review
    picture: Picture | None  # none: the rows are features
    features: Callable[[int], list[tuple[str, float]]] | None  # some of a row, by their names
    lock: Lock  # one thread at a time writes, or reads what is written


class _Wish(BaseModel):
    model_config = ConfigDict(extra="forbid")

    row: int
    label: str | None
    seen: int = 0


class _Wishes(BaseModel):
    model_config = ConfigDict(extra="forbid")

    decisions: list[_Wish] = Field(min_length=1, max_length=MOST_ROWS)


class _Undo(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seen: int  # the action that the person wants to take back


def page(review: Review) -> Starlette:
    """The page, without any guard."""
    app = Starlette(
        routes=[
            Route("/", _index),
            Route("/static/{name}", _static),
            Route("/api/run", _run),
            Route("/api/rows", _rows),
            Route("/api/changes", _changes),
            Route("/api/decide", _decide, methods=["POST"]),
            Route("/api/undo", _undo, methods=["POST"]),
            Route("/image/{size}/{row:int}", _picture),
        ]
    )
    app.state.review = review
    return app


def _of(request: Request) -> Review:
    review: Review = request.app.state.review
    return review


def _index(_: Request) -> Response:
    return Response(_file("index.html"), media_type="text/html")


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    return Response(_file(name), media_type=_STATIC[name])


def _run(request: Request) -> Response:
    review = _of(request)
    return JSONResponse(
        {
            "title": review.title,
            "classes": list(review.classes),
            "images": review.picture is not None,
            "rows": len(review.table.rows),
            "session": review.session,
        }
    )


def _rows(request: Request) -> Response:
    review = _of(request)
    query = _query(request.query_params, review.classes)
    with review.lock:
        found = review.table.page(query, review.log.reviewed)
        rows = [_row(review, row) for row in found.rows]
        place = {"matching": found.matching, "before": found.before, "next": found.next}
        return JSONResponse({"rows": rows, **place, **_state(review)})


def _changes(request: Request) -> Response:
    review, since = _of(request), _number(request.query_params, "since", 0)
    with review.lock:
        changed = review.log.reviewed.changed.items()
        return _told(review, [row for row, seq in changed if seq > since])


async def _decide(request: Request) -> Response:
    review, body = _of(request), await request.body()

    def decide() -> Response:
        wishes = _Wishes.model_validate_json(body).decisions
        labels = {wish.row: wish.label for wish in wishes}
        review.log.decide(labels, {wish.row: wish.seen for wish in wishes})
        return _told(review, list(labels))

    return await run_in_threadpool(_safely, review, decide)


async def _undo(request: Request) -> Response:
    review, body = _of(request), await request.body()

    def undo() -> Response:
        return _told(review, review.log.undo(_Undo.model_validate_json(body).seen))

    return await run_in_threadpool(_safely, review, undo)


def _safely(review: Review, write: Callable[[], Response]) -> Response:
    """Write, one thread at a time, or say why not."""
    with review.lock:
        try:
            return write()
        except ConflictError as error:
            return _told(review, error.rows, status=409)
        except ValidationError:
            return _refused(400, "This is not what the page sends.")
        except ValueError as error:
            return _refused(400, str(error))
        except OSError as error:
            return _refused(507, f"It could not be saved: {error.strerror or error}.")


def _picture(request: Request) -> Response:
    review, row = _of(request), request.path_params["row"]
    side = _SIDES.get(request.path_params["size"])
    if review.picture is None or side is None or row >= len(review.table.rows):
        raise HTTPException(404)
    try:
        data, kind = review.picture(row, side)
    except Exception:  # decoders raise anything; it was whole when the run read it
        raise HTTPException(410, "This image can no longer be read.") from None
    # The page asks with the name of its session: another one may be about other images.
    return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=86400"})


def _file(name: str) -> bytes:
    folder = files("saas_ssl")
    place = folder / "report" / name if name == "theme.css" else folder / "review" / "static" / name
    return place.read_bytes()


def _row(review: Review, row: int) -> dict[str, Any]:
    shown = review.table.shown(row, review.log.reviewed)
    return shown if review.features is None else {**shown, "features": review.features(row)}


def _state(review: Review) -> dict[str, Any]:
    """What every answer says: the last action, the one that could be undone, and how far it is."""
    reviewed = review.log.reviewed
    last = reviewed.last
    return {
        "seq": reviewed.seq,
        "undo": None if last is None else {"seq": last.seq, "rows": len(last.decisions)},
        "progress": review.table.progress(reviewed, review.trust),
    }


def _told(review: Review, rows: Sequence[int], status: int = 200) -> Response:
    """How some rows stand now."""
    body = {"rows": [_row(review, row) for row in rows], **_state(review)}
    return JSONResponse(body, status_code=status)


def _refused(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=status)


def _query(asked: Mapping[str, str], classes: Sequence[str]) -> Query:
    show, order = asked.get("show", SHOWS[0]), asked.get("order", ORDERS[0])
    label = asked.get("label") or None
    if show not in SHOWS or order not in ORDERS or label not in (None, *classes):
        raise HTTPException(400, "There is no such list.")
    return Query(
        show=show,
        label=label,
        text=asked.get("text", "")[:1000],
        order=order,
        start=_number(asked, "start", 0),
        limit=min(MOST_ROWS, max(1, _number(asked, "limit", 60))),
    )


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise HTTPException(400, f"{name} must be a number.")
    return int(text)
