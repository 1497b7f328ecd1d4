"""Who is let in: only requests to this very address that carry the token, and none too large."""

import ipaddress
import secrets
import socket
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 1 << 18  # bytes
_TOO_LARGE = "This request is too large."
_SAFE = ("GET", "HEAD")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach a server at this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"


def is_our_host(header: str, host: str, port: int) -> bool:
    """Whether a Host header names this server, and not a name that somebody made point here.

    On a network a server has addresses that it does not know; those cannot be made to point
    elsewhere, so any will do.
    """
    name, colon, number = header.casefold().rpartition(":")
    if not colon or number.endswith("]"):  # without a port, it is that of plain HTTP
        name, number = header.casefold(), "80"
    if number != str(port):
        return False
    name = name.removeprefix("[").removesuffix("]")
    if is_loopback(name):
        return True
    if is_loopback(host):
        return False
    own = (host, socket.gethostname(), socket.getfqdn())
    return _is_address(name) or name in (known.casefold() for known in own)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Lets a request through to the page if it has the token, and the answer out with its rules."""

    def __init__(self, app: ASGIApp, token: str, host: str, port: int) -> None:
        self._app, self._token, self._host, self._port = app, token, host, port
        self.cookie = f"saas-review-{port}"  # cookies of one host are shared by all its ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # a WebSocket: there is none here
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await PlainTextResponse(refusal[1], refusal[0], _HEADERS)(scope, receive, send)
            return
        from_url = self._is_token(_token_in(scope))

        async def send_with_rules(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.update(_HEADERS)
                answer.setdefault("Cache-Control", "no-store")
                if from_url:
                    answer.append(
                        "Set-Cookie",
                        f"{self.cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/",
                    )
            await send(message)

        body = await _whole_body(receive)
        if body is None:
            await PlainTextResponse(_TOO_LARGE, 413, _HEADERS)(scope, receive, send)
            return

        async def receive_body() -> Message:
            return {"type": "http.request", "body": body}

        await self._app(scope, receive_body, send_with_rules)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """The status and the reason why a request is turned away."""
        named = headers.getlist("host")
        if len(named) != 1 or not is_our_host(named[0], self._host, self._port):
            return 421, "This is not the address of this page."
        if not self._is_token(_token_in(scope)) and not self._is_token(self._in_cookie(headers)):
            return 403, (
                "This page needs its token: open the address that saas review printed, from "
                "its http:// to its end."
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if scope["method"] not in _SAFE:
            own = f"http://{headers['host']}"
            if (origin is not None and origin.casefold() != own.casefold()) or (
                site is not None and site != "same-origin"
            ):
                return 403, "Another page may not decide here."
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return 415, "Decisions are JSON."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, _TOO_LARGE
        return None

    def _in_cookie(self, headers: Headers) -> str:
        return cookie_parser(headers.get("cookie", "")).get(self.cookie, "")

    def _is_token(self, text: str) -> bool:
        """In a time that does not tell how much of it is right."""
        return secrets.compare_digest(text.encode(), self._token.encode())


def _token_in(scope: Scope) -> str:
    """The token in the address."""
    values = parse_qs(scope["query_string"].decode("latin1")).get("token", [])
    return values[0] if len(values) == 1 else ""


async def _whole_body(receive: Receive) -> bytes | None:
    """The body of a request; none: it is too large, whatever it said before."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            return None
        more = message.get("more_body", False)
    return body
