"""RUN/review.jsonl: every decision on the disk before anyone is told that it is saved.

A line is one action of a person: labels for some rows, or the undoing of the last action that is
not undone. Lines are only ever appended, so what a review shows is what its file says, replayed.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from saas_ssl.runs.checkpoints import sync_folder
from saas_ssl.runs.directory import try_lock
from saas_ssl.runs.files import REVIEW_FILE
from saas_ssl.sources.wording import shown


class Decision(BaseModel):
    """What a person says of a row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: int = Field(ge=0)  # of labels.csv: 0 is the first
    id: str
    label: str | None  # none: nobody can tell


class Action(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int = Field(ge=1)
    time: str
    decisions: tuple[Decision, ...] = ()
    undo: int | None = None  # the number of the action that is undone

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.decisions) == (self.undo is not None):
            raise ValueError("either decisions or an undo")
        return self


class ConflictError(Exception):
    """Somebody else has decided meanwhile; `rows` are those in question."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__("changed meanwhile")
        self.rows = rows


class Reviewed:
    """What all actions so far amount to."""

    def __init__(self) -> None:
        self.seq = 0  # of the last action
        self.changed = dict[int, int]()  # row -> the last action that touched it
        self._standing = list[Action]()  # those that are not undone
        self._of_row = dict[int, list[Decision]]()

    @property
    def decisions(self) -> Mapping[int, Decision]:
        """Row -> the decision that holds."""
        return {row: stack[-1] for row, stack in self._of_row.items() if stack}

    def decision(self, row: int) -> Decision | None:
        """The one that holds for a row."""
        stack = self._of_row.get(row)
        return stack[-1] if stack else None

    @property
    def last(self) -> Action | None:
        """The action that would be undone next."""
        return self._standing[-1] if self._standing else None

    def apply(self, action: Action) -> None:
        """One more action."""
        if action.seq != self.seq + 1:
            raise ValueError("actions are missing")
        if action.undo is None:
            self._standing.append(action)
            touched = action.decisions
            for decision in touched:
                self._of_row.setdefault(decision.row, []).append(decision)
        else:
            if self.last is None or self.last.seq != action.undo:
                raise ValueError("it undoes what is not the last action")
            touched = self._standing.pop().decisions
            for decision in touched:
                self._of_row[decision.row].pop()
        self.seq = action.seq
        self.changed |= dict.fromkeys((decision.row for decision in touched), action.seq)


class ReviewLog:
    """The file, open for one process, and what it amounts to. Not for several threads at once."""

    def __init__(self, run: Path, ids: Sequence[str], classes: Sequence[str]) -> None:
        self._run, self._path = run, run / REVIEW_FILE
        self._ids, self._classes = ids, frozenset(classes)
        is_new = not self._path.exists()
        self._file = self._path.open("a+b", buffering=0)
        try:
            if not try_lock(self._file, exclusive=True):
                raise ValueError(f"{run} is being reviewed by another process")
            self.reviewed = replayed(self._whole_lines(), self._path, ids, classes)
            if is_new:
                sync_folder(run)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file.seek(0, os.SEEK_END) == 0:
            with suppress(OSError):
                self._path.unlink()  # nothing was decided
        self._file.close()

    def decide(self, labels: Mapping[int, str | None], seen: Mapping[int, int]) -> None:
        """Give rows their labels, unless someone has since done so.

        `seen` says which action on each row the person knew of, 0 for none.
        """
        for row, label in labels.items():
            if not 0 <= row < len(self._ids):
                raise ValueError(f"there is no row {row}")
            if label is not None and label not in self._classes:
                raise ValueError(f"there is no class {shown(label)!r}")
        stale = [row for row in labels if self.reviewed.changed.get(row, 0) != seen.get(row, 0)]
        if stale:
            raise ConflictError(stale)
        made = tuple(
            Decision(row=row, id=self._ids[row], label=label) for row, label in labels.items()
        )
        self._append(Action(seq=self.reviewed.seq + 1, time=_now(), decisions=made))

    def undo(self, known: int) -> list[int]:
        """Take the last action back if it is the one that the person knows of; its rows."""
        last = self.reviewed.last
        if last is None:
            raise ValueError("there is nothing to undo")
        rows = [decision.row for decision in last.decisions]
        if last.seq != known:
            raise ConflictError(rows)
        self._append(Action(seq=self.reviewed.seq + 1, time=_now(), undo=last.seq))
        return rows

    def _append(self, action: Action) -> None:
        """Write, sync, and only then count it; what cannot be written whole leaves no trace."""
        line = action.model_dump_json(exclude_defaults=True).encode() + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(line) != len(line):
                raise OSError("the disk is full")
            os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self._file.truncate(end)
            raise
        self.reviewed.apply(action)

    def _whole_lines(self) -> list[bytes]:
        """The lines of the file, without one that was being written when the process died."""
        self._file.seek(0)
        data = self._file.read()
        *whole, rest = data.split(b"\n")
        if rest and _is_action(rest):  # somebody has edited the file
            self._file.write(b"\n")
            return [*whole, rest]
        if rest:  # nobody was ever told that this is saved
            self._file.truncate(len(data) - len(rest))
        return whole


def read_review(run: Path, ids: Sequence[str], classes: Sequence[str]) -> Reviewed:
    """What has been decided so far, while nobody or somebody reviews."""
    path = run / REVIEW_FILE
    data = path.read_bytes() if path.is_file() else b""
    *whole, rest = data.split(b"\n")
    return replayed([*whole, rest] if rest and _is_action(rest) else whole, path, ids, classes)


def replayed(
    lines: Sequence[bytes], path: Path, ids: Sequence[str], classes: Sequence[str]
) -> Reviewed:
    """All lines one after the other; a broken one, or one of another run, is refused."""
    reviewed, known = Reviewed(), frozenset(classes)
    for number, line in enumerate(lines, start=1):
        try:
            action = Action.model_validate_json(line)
            reviewed.apply(action)
        except (ValidationError, ValueError):
            raise ValueError(f"{path}, line {number} is not what saas review writes") from None
        for made in action.decisions:
            if made.row >= len(ids) or ids[made.row] != made.id:
                raise ValueError(f"{path}, line {number}: {shown(made.id)} is no row of this run")
            if made.label is not None and made.label not in known:
                raise ValueError(f"{path}, line {number}: there is no class {shown(made.label)!r}")
    return reviewed


def _is_action(line: bytes) -> bool:
    try:
        Action.model_validate_json(line)
    except ValidationError:
        return False
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
