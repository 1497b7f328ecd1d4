"""Finished runs for the tests of the review, of any size and kind, and real servers on them."""

import csv
import http.client
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from safetensors.torch import save_file

from processes import started
from saas_ssl.trust.decisions import LabelRow
from samples import noise

CLASSES = ("cat", "dog", "<b>owl</b>")
TRUST = {"left_out": 50, "all": {"estimate": 0.9, "low": 0.8, "high": 0.96}, "suspects": 0}


def rows_of(n: int, classes: Sequence[str] = CLASSES) -> list[LabelRow]:
    """Every fourth row is given (the first of them suspected), every fourth accepted, the rest to
    be checked: the later, the less certain. Row 7 is an outlier.
    """
    rows = list[LabelRow]()
    for row in range(n):
        label, other = classes[row % len(classes)], classes[(row + 1) % len(classes)]
        p = 0.9 - 0.8 * row / n
        if row == 0:
            rows.append(LabelRow("0", label, 0.1, "given", "review", other, 0.8, "looks like it"))
        elif row % 4 == 0:
            rows.append(LabelRow(str(row), label, 1.0, "given", "accept", "", 0.0))
        elif row % 4 == 1:
            rows.append(LabelRow(str(row), label, 0.99, "inferred", "accept", other, 0.01))
        else:
            decision = "outlier" if row == 7 else "review"
            rows.append(LabelRow(str(row), label, p, "inferred", decision, other, 0.9 - p))
    return rows


def write_run(
    run: Path,
    rows: Sequence[LabelRow],
    data: str,
    classes: Sequence[str] = CLASSES,
    in_shape: Sequence[int] = (3, 8, 8),
    order: Sequence[int] | None = None,
    reviewed: Sequence[int] = (),
    trust: Mapping[str, Any] = TRUST,
) -> Path:
    """The files of a finished run that a review reads; without an order, the last row is first."""
    run.mkdir(parents=True)
    record = {
        "request": {"data": data},
        "data": {"classes": list(classes), "in_shape": list(in_shape)},
        "results": {"trust": dict(trust)},
    }
    (run / "run.json").write_text(json.dumps(record))
    with (run / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(LabelRow._fields)
        writer.writerows(rows)
    n, before = len(rows), torch.zeros(len(rows), dtype=torch.bool)
    before[torch.tensor(reviewed, dtype=torch.int64)] = True
    ranked = torch.tensor(list(reversed(range(n))) if order is None else order)
    save_file({"review_order": ranked, "reviewed": before}, run / "posterior.safetensors")
    images = len(in_shape) == 3
    form = {"height": 8, "width": 8, "channels": in_shape[0]}
    described: dict[str, Any] = {
        "format": 1,
        "network": "small_conv" if images else "mlp",
        "width": 4,
    }
    described |= {"in_shape": list(in_shape), "classes": list(classes)}
    described |= {"image": form if images else None, "features": None}
    (run / "model.json").write_text(json.dumps(described))
    (run / "model.safetensors").write_bytes(b"")
    return run


def write_images(path: Path, n: int) -> str:
    np.savez(path, x=noise(n, 8, 8, 3), ids=np.array([str(row) for row in range(n)]))
    return str(path)


def image_run(folder: Path, n: int = 40) -> Path:
    """A run on n small images, to be reviewed from the last to the first."""
    folder.mkdir(exist_ok=True)
    return write_run(folder / "run", rows_of(n), write_images(folder / "x.npz", n))


def feature_run(folder: Path, n: int = 40) -> Path:
    """The same of features, with names, in a table."""
    x = np.random.default_rng(0).normal(size=(n, 3))
    with (folder / "x.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "length", "width <cm>", "mass"])
        writer.writerows([row, *x[row]] for row in range(n))
    return write_run(folder / "run", rows_of(n), str(folder / "x.csv"), in_shape=(3,))


@dataclass(frozen=True)
class Server:
    """A page that is being served."""

    url: str
    process: subprocess.Popen[str]
    told: str  # what it said before

    @property
    def port(self) -> int:
        return int(urlsplit(self.url).port or 0)

    @property
    def token(self) -> str:
        return self.url.rpartition("=")[2]

    def ask(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
        method: str | None = None,
        token: bool = True,
    ) -> tuple[int, dict[str, str], bytes]:
        """(Status, headers, body) of one request, with the cookie unless it is left out.

        A header of None is not sent, not even by http.client.
        """
        sent: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}"}
        if token:
            sent["Cookie"] = f"saas-review-{self.port}={self.token}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        sent |= headers or {}
        method = method or ("GET" if data is None else "POST")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def json(self, path: str, body: Any = None) -> Any:
        status, _, answer = self.ask(path, body)
        assert status == 200, answer
        return json.loads(answer)


@contextmanager
def served(run: Path, *options: str) -> Iterator[Server]:
    """`saas review` on a run, as a process of its own."""
    arguments = ("review", str(run), "--no-browser", *options)
    with started(*arguments, cwd=run.parent) as process:
        assert process.stdout is not None
        told = ""
        while not (found := re.search(r"http://\S+", told)):
            line = process.stdout.readline()
            assert line, f"{told}\n{process.stderr.read() if process.stderr else ''}"
            told += line
        yield Server(found.group(), process, told)


def actions(run: Path) -> list[dict[str, Any]]:
    """The lines of review.jsonl."""
    return [json.loads(line) for line in (run / "review.jsonl").read_text().splitlines()]
