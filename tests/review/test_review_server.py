"""The real server of `saas review`: whom it lets in, what it tells, and what it keeps."""

import io
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from command import Here
from processes import ended
from review_runs import Server, actions, feature_run, image_run, served, write_run
from saas_ssl.review.guard import LARGEST_BODY, is_our_host
from saas_ssl.trust.decisions import LabelRow
from samples import encoded, picture, turned, write

PATHS = ["/", "/static/review.js", "/api/run", "/api/rows", "/api/changes", "/image/thumb/3"]
DECISION = {"decisions": [{"row": 39, "label": "cat", "seen": 0}]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_run(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    with served(run) as server:
        yield server


def test_it_listens_on_loopback_only(server: Server) -> None:
    assert server.url.startswith(f"http://127.0.0.1:{server.port}/?token=")
    assert len(server.token) >= 40
    own = f"/proc/{server.process.pid}/net/tcp"
    listening = [
        line.split()[1]
        for line in Path(own).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == server.port
    ]
    assert listening == [f"0100007F:{server.port:04X}"]


@pytest.mark.parametrize("path", [*PATHS, "/nothing", "/?token=", "/?token=wrong"])
def test_nobody_gets_in_without_the_token(server: Server, path: str) -> None:
    for headers in ({}, {"Cookie": "saas-review=x"}, {"Cookie": f"saas-review-{server.port}=no"}):
        status, answer, body = server.ask(path, headers=headers, token=False)
        assert status == 403
        assert b"needs its token" in body
        assert "set-cookie" not in answer


def test_half_a_token_or_two_are_none(server: Server) -> None:
    for token in (server.token[:-1], server.token + "a", f"{server.token}&token=x", "%ff%fe"):
        assert server.ask(f"/?token={token}", token=False)[0] == 403
    for method, path in (("POST", "/api/decide"), ("POST", "/api/undo"), ("DELETE", "/")):
        assert server.ask(path, DECISION, method=method, token=False)[0] == 403


def test_the_address_gives_a_cookie_that_no_other_site_gets(server: Server) -> None:
    status, headers, body = server.ask(f"/?token={server.token}", token=False)
    assert status == 200
    assert b"<h1" in body
    name, *rules = headers["set-cookie"].split("; ")
    assert name == f"saas-review-{server.port}={server.token}"
    assert set(rules) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    for path in PATHS:
        assert server.ask(path)[0] == 200  # with the cookie alone


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", None, "localhost"],
)
def test_only_its_own_address_will_do(server: Server, host: str | None) -> None:
    """A name that somebody made point to this machine is not its own."""
    named = host if host is None else host.format(port=server.port)
    status, _, body = server.ask("/api/rows", headers={"Host": named})
    assert status in (400, 421)  # 400: HTTP itself demands the header
    assert b"rows" not in body


def test_its_own_names_do(server: Server) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert server.ask("/api/run", headers={"Host": f"{host}:{server.port}"})[0] == 200


@pytest.mark.parametrize(
    ("header", "host", "ok"),
    [
        ("127.0.0.1:80", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("[::1]", "127.0.0.1", True),
        ("10.0.0.5", "127.0.0.1", False),
        ("10.0.0.5", "0.0.0.0", True),  # noqa: S104
        ("[fe80::1]:80", "0.0.0.0", True),  # noqa: S104
        ("evil.example", "0.0.0.0", False),  # noqa: S104
        ("lab.example", "lab.example", True),
        (socket.gethostname(), "0.0.0.0", True),  # noqa: S104
        ("127.0.0.1:81", "0.0.0.0", False),  # noqa: S104
        ("", "127.0.0.1", False),
        (":80", "127.0.0.1", False),
        ("127.0.0.1:80:80", "127.0.0.1", False),
    ],
)
def test_what_the_host_header_may_say(header: str, host: str, ok: bool) -> None:
    assert is_our_host(header, host, 80) == ok


def test_every_answer_has_strict_rules_and_none_is_shared(server: Server) -> None:
    answers = [server.ask(path) for path in [*PATHS, "/nothing"]]
    answers += [server.ask("/", token=False), server.ask("/", headers={"Host": "x"})]
    answers.append(server.ask("/api/rows", headers={"Origin": "http://evil.example"}))
    for _, headers, _ in answers:
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.lower().startswith("access-control")]
        assert "server" not in headers
    for path in ("/", "/api/rows"):
        assert server.ask(path)[1]["cache-control"] == "no-store"


def test_no_preflight_is_answered(server: Server) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    status, headers, _ = server.ask("/api/decide", headers=asked, method="OPTIONS")
    assert status in (403, 405, 415)
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": None}, 415),
    ],
)
def test_other_pages_cannot_decide(
    server: Server, run: Path, headers: dict[str, str | None], status: int
) -> None:
    assert server.ask("/api/decide", DECISION, headers)[0] == status
    assert (run / "review.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "path",
    [
        "/image/thumb/../../../etc/passwd",
        "/image/thumb/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/image/thumb/..%5c..",
        "/image/thumb/-1",
        "/image/thumb/40",
        "/image/thumb/99999999999999999999999",
        "/image/thumb/1.5",
        "/image/thumb/",
        "/image/other/1",
        "/image/thumb/1/../2/x",
        "/static/../page.py",
        "/static/..%2fpage.py",
        "/static/%2e%2e/page.py",
        "/static/index.html",
        "//etc/passwd",
        "/run.json",
    ],
)
def test_nothing_but_the_rows_and_the_page_can_be_asked_for(server: Server, path: str) -> None:
    status, _, body = server.ask(path)
    assert status == 404
    assert b"root:" not in body
    assert b"import" not in body


@pytest.mark.parametrize(
    "query",
    ["show=x", "order=x", "label=x", "start=-1", "start=x", "limit=1e9", "start=" + "9" * 40],
)
def test_wrong_questions_are_refused(server: Server, query: str) -> None:
    assert server.ask(f"/api/rows?{query}")[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"decisions": []}',
        b'{"decisions": [{"row": 1}]}',
        b'{"decisions": [{"row": "../x", "label": "cat"}]}',
        b'{"decisions": [{"row": 1, "label": "unheard of"}]}',
        b'{"decisions": [{"row": 40, "label": "cat"}]}',
        b'{"decisions": [{"row": -1, "label": "cat"}]}',
        b'{"decisions": [{"row": 1, "label": "cat", "path": "/etc"}]}',
        json.dumps({"decisions": [{"row": n % 40, "label": "cat"} for n in range(201)]}).encode(),
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_wrong_decisions_are_refused(server: Server, run: Path, body: bytes) -> None:
    status, _, answer = server.ask("/api/decide", body)
    assert status == 400
    assert json.loads(answer)["error"]
    assert (run / "review.jsonl").read_bytes() == b""


def test_large_bodies_are_refused(server: Server) -> None:
    assert server.ask("/api/decide", b" " * (LARGEST_BODY + 1))[0] == 413
    for length in (str(10**15), "-1", "x"):
        status, _, _ = server.ask("/api/decide", b"{}", {"Content-Length": length})
        assert status in (400, 413)  # 400: what is no number is no HTTP
    chunk = f"{LARGEST_BODY + 1:x}\r\n".encode() + b" " * (LARGEST_BODY + 1) + b"\r\n0\r\n\r\n"
    chunked: dict[str, str | None] = {"Content-Length": None, "Transfer-Encoding": "chunked"}
    assert server.ask("/api/decide", chunk, chunked)[0] == 413
    assert server.ask("/api/run")[0] == 200  # it is none the worse


def test_rows_come_in_pages_and_pictures_by_number(server: Server) -> None:
    first = server.json("/api/rows?limit=5")
    assert [row["row"] for row in first["rows"]] == [39, 38, 35, 34, 31]
    assert first["matching"] == 21
    second = server.json(f"/api/rows?limit=5&start={first['next']}")
    assert [row["row"] for row in second["rows"]] == [30, 27, 26, 23, 22]
    assert second["before"] == 5
    status, headers, body = server.ask("/image/thumb/39")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(body)).size == (8, 8)
    assert headers["cache-control"] == "private, max-age=86400"


def test_decisions_conflicts_and_undo(tmp_path: Path) -> None:
    run = image_run(tmp_path)
    with served(run) as server:
        saved = server.json("/api/decide", DECISION)
        assert saved["rows"][0]["checked_label"] == "cat"
        assert actions(run)[0]["decisions"] == [{"row": 39, "id": "39", "label": "cat"}]
        status, _, body = server.ask("/api/decide", DECISION)  # another window, which knew nothing
        assert status == 409
        assert json.loads(body)["rows"][0]["seen"] == 1
        assert len(actions(run)) == 1
        two = [{"row": row, "label": None, "seen": 0} for row in (1, 2)]
        assert server.json("/api/decide", {"decisions": two})["undo"] == {"seq": 2, "rows": 2}
        assert [row["row"] for row in server.json("/api/changes?since=1")["rows"]] == [1, 2]
        assert server.ask("/api/undo", {"seen": 1})[0] == 409
        undone = server.json("/api/undo", {"seen": 2})
        assert [row["checked"] for row in undone["rows"]] == [False, False]
        assert undone["progress"]["checked"] == 1
    with served(run) as server:  # killed, and started again
        server.json("/api/undo", {"seen": 1})
        assert server.ask("/api/undo", {"seen": 1})[0] == 400
        assert server.json("/api/rows?show=checked")["rows"] == []


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    run = image_run(tmp_path)
    with served(run) as server, ThreadPoolExecutor(8) as threads:
        asked = [{"decisions": [{"row": n % 40, "label": "cat"}]} for n in range(80)]
        statuses = list(threads.map(lambda body: server.ask("/api/decide", body)[0], asked))
    assert statuses.count(200) == 40
    assert statuses.count(409) == 40
    lines = actions(run)
    assert [line["seq"] for line in lines] == list(range(1, 41))
    assert sorted(line["decisions"][0]["row"] for line in lines) == list(range(40))


def test_what_is_saved_survives_any_kill(tmp_path: Path) -> None:
    """The server is killed in the middle of requests, again and again."""
    run, saved = image_run(tmp_path, 400), set[int]()
    for attempt in range(3):
        with served(run) as server, ThreadPoolExecutor(4) as threads:
            waiting = [
                (row, threads.submit(server.ask, "/api/decide", one))
                for row in range(100 * attempt, 100 * attempt + 100)
                if (one := {"decisions": [{"row": row, "label": "dog"}]})
            ]
            time.sleep(0.05 + 0.1 * attempt)
            server.process.kill()
            for row, answer in waiting:
                if answer.exception() is None and answer.result()[0] == 200:
                    saved.add(row)
    assert saved
    with served(run) as server:
        rows = [row["row"] for row in server.json("/api/rows?show=checked&limit=200")["rows"]]
        assert saved <= set(rows) or len(rows) == 200
    kept = {line["decisions"][0]["row"] for line in actions(run)}
    assert saved <= kept


def test_a_second_review_of_a_run_is_refused(run: Path, server: Server, saas_here: Here) -> None:
    done = saas_here("review", str(run), "--no-browser", cwd=run.parent)
    assert done.code == 1
    assert done.errors.count("\n") == 1
    assert "is being reviewed by another process" in done.errors
    assert server.ask("/api/run")[0] == 200


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told_to_and_says_how_to_go_on(tmp_path: Path, stop: signal.Signals) -> None:
    run = image_run(tmp_path)
    with served(run) as server:
        server.json("/api/decide", DECISION)
        os.kill(server.process.pid, stop)
        done = ended(server.process)
    assert done.code == (0 if stop == signal.SIGINT else 143)
    assert done.errors == ""
    if stop == signal.SIGINT:
        assert f"1 row checked. To use that: saas review {run} --export corrected.csv" in done.out
    assert len(actions(run)) == 1


def test_another_address_is_warned_of_and_needs_the_token(tmp_path: Path, saas_here: Here) -> None:
    run = image_run(tmp_path)
    with served(run, "--host", "0.0.0.0") as server:  # noqa: S104
        assert server.ask("/api/run", token=False)[0] == 403
        assert server.ask("/api/run")[0] == 200
        assert server.ask("/api/run", headers={"Host": f"10.1.2.3:{server.port}"})[0] == 200
        assert server.ask("/api/run", headers={"Host": f"evil.example:{server.port}"})[0] == 421
        assert server.process.stdout is not None
        elsewhere = f"http://{socket.gethostname()}:{server.port}/?token={server.token}"
        assert server.process.stdout.readline() == f"From other machines: {elsewhere}\n"
    assert "0.0.0.0 can be reached by other machines" in server.told
    done = saas_here("review", str(run), "--host", "no.such.host.invalid", cwd=tmp_path)
    assert (done.code, done.errors.count("\n")) == (1, 1)


def test_the_address_is_told_even_quietly(tmp_path: Path) -> None:
    run = image_run(tmp_path)
    with served(run, "--quiet", "--host", "0.0.0.0") as server:  # noqa: S104
        assert "0.0.0.0 can be reached by other machines" in server.told
        assert server.ask("/api/run")[0] == 200
        server.process.send_signal(signal.SIGINT)
        assert server.process.stdout is not None
        told = server.process.stdout.read()  # some of it may have been read with the address
        assert ended(server.process).errors == ""
    assert told.startswith("From other machines: ")
    assert told.count("\n") == 1  # and nothing else


def test_a_port_that_is_taken_is_one_sentence(
    tmp_path: Path, server: Server, saas_here: Here
) -> None:
    run = image_run(tmp_path)
    done = saas_here("review", str(run), "--port", str(server.port), cwd=tmp_path)
    assert done.code == 1
    assert f"127.0.0.1, port {server.port}: Address already in use" in done.errors


def test_images_are_shown_upright_and_made_anew(tmp_path: Path) -> None:
    """A photo on its side, with a comment that is none of the reviewer's business."""
    photo = encoded(picture(40, 120), "JPEG", exif=turned(6), comment=b"secret place")
    for name in ("a.jpg", "b.jpg"):
        write(tmp_path / "photos" / name, photo)
    rows = [LabelRow(f"{n}.jpg", "p", 0.5, "inferred", "review", "q", 0.4) for n in "ab"]
    run = write_run(tmp_path / "run", rows, "photos", ["p", "q"])
    with served(run) as server:
        _, headers, body = server.ask("/image/full/0")
        assert headers["content-type"] == "image/jpeg"
        assert Image.open(io.BytesIO(body)).size == (40, 120)
        assert b"secret" not in body
        (tmp_path / "photos" / "b.jpg").write_bytes(b"gone bad")
        assert server.ask("/image/thumb/1")[0] == 410
        (tmp_path / "photos" / "a.jpg").unlink()
        assert server.ask("/image/thumb/0")[0] == 410


def test_features_are_told_by_their_names(tmp_path: Path) -> None:
    with served(feature_run(tmp_path)) as server:
        assert server.json("/api/run")["images"] is False
        row = server.json("/api/rows")["rows"][0]
        assert [name for name, _ in row["features"]] == ["length", "width <cm>", "mass"]
        assert server.ask("/image/thumb/1")[0] == 404


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        ("rm -r run", "run is not a finished run"),
        ("rm x.npz", "the data of run are not found"),
        ("rm run/labels.csv", "run has no labels.csv"),
        ("rm run/posterior.safetensors", "has no review_order: it is broken, or of an earlier"),
        ("rm run/model.json", "it is not a finished run"),
        ("sed -i s/,reason// run/labels.csv", "labels.csv is broken"),
        ("cut -d, -f1-7 run/labels.csv > x; mv x run/labels.csv", "has no column 'reason'"),
        ("sed -i s/trust/rust/ run/run.json", "run.json is broken, or of an earlier version"),
        ("echo x > run/review.jsonl", "line 1 is not what saas review writes"),
        ("echo '{}' > run/run.json", "run.json is broken"),
    ],
)
def test_what_cannot_be_reviewed_is_told_in_one_sentence(
    tmp_path: Path, prepare: str, words: str, saas_here: Here
) -> None:
    image_run(tmp_path)
    write_run_relative(tmp_path)
    os.system(f"cd '{tmp_path}' && {prepare}")  # noqa: S605
    done = saas_here("review", "run", "--no-browser", cwd=tmp_path)
    assert done.code == 1
    assert done.errors.startswith("saas: ")
    assert done.errors.count("\n") == 1
    assert words in done.errors


def write_run_relative(folder: Path) -> None:
    """Let the run name its data as seen from the folder."""
    record = json.loads((folder / "run/run.json").read_text())
    record["request"]["data"] = "x.npz"
    (folder / "run/run.json").write_text(json.dumps(record))


def test_data_that_moved_are_found_by_their_new_place(tmp_path: Path) -> None:
    run = image_run(tmp_path)
    (tmp_path / "x.npz").rename(tmp_path / "y.npz")
    with served(run, "--data", str(tmp_path / "y.npz")) as server:
        assert server.ask("/image/thumb/3")[0] == 200
