"""review.jsonl: what is saved is on the disk, and nothing that is on the disk is lost."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl.review.log import ConflictError, ReviewLog, read_review
from samples import refusal

IDS, CLASSES = ["a.png", "b.png", "ü\n.png"], ["cat", "dog"]


def opened(run: Path) -> ReviewLog:
    return ReviewLog(run, IDS, CLASSES)


def held(run: Path) -> dict[int, str | None]:
    """What a fresh reader finds decided."""
    decisions = read_review(run, IDS, CLASSES).decisions
    return {row: decision.label for row, decision in decisions.items()}


def test_decisions_last(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.decide({0: "cat", 2: None}, {})
        assert held(tmp_path) == {0: "cat", 2: None}  # on the disk already
        log.decide({0: "dog"}, {0: 1})
    with opened(tmp_path) as log:
        assert log.reviewed.seq == 2
        assert held(tmp_path) == {0: "dog", 2: None}
    lines = (tmp_path / "review.jsonl").read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    assert first["decisions"][1] == {"row": 2, "id": "ü\n.png", "label": None}
    assert (first["seq"], second["seq"]) == (1, 2)


def test_undo_works_across_restarts(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.decide({0: "cat"}, {})
        log.decide({0: "dog", 1: "dog"}, {0: 1})
    with opened(tmp_path) as log:
        assert log.undo(2) == [0, 1]
        assert held(tmp_path) == {0: "cat"}
    with opened(tmp_path) as log:
        log.decide({1: "cat"}, {1: 3})  # what was undone is no obstacle, once it is known
        assert log.undo(4) == [1]
        assert log.undo(1) == [0]
        assert held(tmp_path) == {}
        assert refusal(lambda: log.undo(1)) == "there is nothing to undo"
    assert len((tmp_path / "review.jsonl").read_text().splitlines()) == 6  # nothing is forgotten


def test_nobody_overwrites_what_he_has_not_seen(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.decide({0: "cat"}, {0: 0, 1: 0})
        for seen in ({}, {0: 0}, {0: 7}):
            with pytest.raises(ConflictError) as caught:
                log.decide({0: "dog", 1: "dog"}, seen)
            assert caught.value.rows == [0]
        assert held(tmp_path) == {0: "cat"}  # nor a part of it
        log.decide({1: "dog"}, {})
        with pytest.raises(ConflictError):
            log.undo(1)  # the last action is another one by now
        assert held(tmp_path) == {0: "cat", 1: "dog"}
        log.undo(2)
        with pytest.raises(ConflictError):
            log.decide({1: "cat"}, {1: 2})  # undone meanwhile


@pytest.mark.parametrize(
    ("labels", "words"),
    [({3: "cat"}, "there is no row 3"), ({-1: "cat"}, "no row -1"), ({0: "owl"}, "no class 'owl'")],
)
def test_impossible_decisions_are_refused(
    tmp_path: Path, labels: dict[int, str], words: str
) -> None:
    with opened(tmp_path) as log:
        assert words in refusal(lambda: log.decide(labels, {}))
        assert held(tmp_path) == {}
    assert not (tmp_path / "review.jsonl").exists()  # nothing was decided, so nothing is left


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path):
        assert "is being reviewed by another process" in refusal(lambda: opened(tmp_path))
    with opened(tmp_path):
        pass


@given(cut=st.integers(0, 400))
def test_a_line_that_was_being_written_is_no_decision(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A process that dies leaves the file as it was after any number of bytes."""
    run = tmp_path_factory.mktemp("run")
    with opened(run) as log:
        for row, label in ((0, "cat"), (1, "dog"), (2, "cat")):
            log.decide({row: label}, {})
    whole = (run / "review.jsonl").read_bytes()
    (run / "review.jsonl").write_bytes(whole[:cut])
    kept = [line for line in whole[:cut].splitlines() if line in whole.splitlines()]
    assert list(held(run)) == list(range(len(kept)))
    with opened(run) as log:
        assert log.reviewed.seq == len(kept)
        log.decide({0: "dog"}, {0: 1 if kept else 0})
    assert held(run)[0] == "dog"
    assert (run / "review.jsonl").read_bytes().splitlines()[:-1] == kept


def action(seq: int, row: int, id_: str, label: str) -> str:
    made = [{"row": row, "id": id_, "label": label}]
    return json.dumps({"seq": seq, "time": "", "decisions": made})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "line 2 is not what saas review writes"),
        ("nonsense", "line 2 is not"),
        (action(1, 1, "b.png", "cat"), "line 2 is not"),
        ('{"seq": 2, "time": "", "undo": 5}', "line 2 is not"),
        (action(2, 1, "x", "cat"), "line 2: x is no row of this run"),
        (action(2, 9, "x", "cat"), "line 2: x is no row of this run"),
        (action(2, 1, "b.png", "owl"), "line 2: there is no class 'owl'"),
    ],
)
def test_a_broken_file_is_refused_and_left_alone(tmp_path: Path, line: str, words: str) -> None:
    with opened(tmp_path) as log:
        log.decide({0: "cat"}, {})
    file = tmp_path / "review.jsonl"
    file.write_text(f"{file.read_text()}{line}\n")
    before = file.read_bytes()
    for action in (lambda: opened(tmp_path), lambda: read_review(tmp_path, IDS, CLASSES)):
        assert words in refusal(action)
    assert file.read_bytes() == before


FULL = """
import json, sys
from pathlib import Path
from saas_ssl.review.log import ReviewLog
with ReviewLog(Path(sys.argv[1]), [str(n) for n in range(1000)], ["cat"]) as log:
    saved = 0
    try:
        for row in range(1000):
            log.decide({row: "cat"}, {})
            saved += 1
    except OSError as error:
        print(json.dumps([saved, error.errno, sorted(log.reviewed.decisions)]))
"""


def test_a_full_disk_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from pathlib import Path\n{FULL.replace('sys.argv[1]', 'Path(sys.argv[1])')}",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
    )
    saved, _, decided = json.loads(done.stdout)
    assert 10 < saved < 100
    assert decided == list(range(saved))
    ids = [str(n) for n in range(1000)]
    assert sorted(read_review(tmp_path, ids, ["cat"]).decisions) == list(range(saved))
    assert (tmp_path / "review.jsonl").read_bytes().endswith(b"\n")


def test_it_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If syncing fails, the decision is neither counted nor left in the file."""
    with opened(tmp_path) as log:
        log.decide({0: "cat"}, {})
        synced = os.fsync

        def failing(_: Any) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="Input/output"):
            log.decide({1: "dog"}, {})
        monkeypatch.setattr(os, "fsync", synced)
        assert held(tmp_path) == {0: "cat"}
        assert log.reviewed.seq == 1
