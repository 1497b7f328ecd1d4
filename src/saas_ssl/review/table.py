"""The rows of a run as a reviewer asks for them: ordered, filtered, page by page, and counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from saas_ssl.review.log import Reviewed
from saas_ssl.trust.decisions import ACCEPT, OUTLIER, REVIEW, LabelRow

Show = Literal["to-check", "review", "outlier", "accept", "given", "checked", "all"]
Order = Literal["helpful", "uncertain", "file"]
SHOWS, ORDERS = get_args(Show), get_args(Order)
INFERRED = "inferred"


@dataclass(frozen=True)
class Query:
    """Which rows are asked for."""

    show: Show = "to-check"
    label: str | None = None  # rows that have this label now
    text: str = ""  # in their names, whatever the case
    order: Order = "helpful"
    start: int = 0  # the first place in the order that counts
    limit: int = 60


@dataclass(frozen=True)
class Page:
    """Some of the rows that match."""

    rows: Sequence[int]
    matching: int  # in all
    before: int  # how many of them stand before the first
    next: int | None  # where the next page starts; none: this is the last


class Table:
    """labels.csv in the orders that a reviewer may want."""

    def __init__(self, rows: Sequence[LabelRow], helpful: Sequence[int]) -> None:
        self.rows = rows
        least_certain = sorted(range(len(rows)), key=lambda row: rows[row].probability)
        self._orders: Mapping[Order, Sequence[int]] = {
            "helpful": helpful,
            "uncertain": least_certain,
            "file": range(len(rows)),
        }
        self._names = [row.id.casefold() for row in rows]
        self.inferred = sum(row.source == INFERRED for row in rows)
        self.to_check = sum(row.decision in (REVIEW, OUTLIER) for row in rows)

    def page(self, query: Query, reviewed: Reviewed) -> Page:
        """The first rows that match from a place in the order on."""
        order = self._orders[query.order]
        matching = [
            (place, row) for place, row in enumerate(order) if self._matches(row, query, reviewed)
        ]
        before = sum(place < query.start for place, _ in matching)
        part = matching[before : before + query.limit + 1]
        more = len(part) > query.limit
        return Page(
            [row for _, row in part[: query.limit]],
            len(matching),
            before,
            part[-1][0] if more else None,
        )

    def _matches(self, number: int, query: Query, reviewed: Reviewed) -> bool:
        row, decision = self.rows[number], reviewed.decision(number)
        if query.label is not None:
            label = row.label if decision is None else decision.label
            if label != query.label:
                return False
        if query.text and query.text.casefold() not in self._names[number]:
            return False
        if query.show == "to-check":
            return row.decision != ACCEPT and decision is None
        if query.show == "checked":
            return decision is not None
        if query.show == "given":
            return row.source != INFERRED
        return query.show in ("all", row.decision)

    def shown(self, number: int, reviewed: Reviewed) -> dict[str, Any]:
        """A row as the page gets it."""
        decision = reviewed.decision(number)
        return {
            "row": number,
            **self.rows[number]._asdict(),
            "checked": decision is not None,
            "checked_label": None if decision is None else decision.label,
            "seen": reviewed.changed.get(number, 0),
        }

    def progress(self, reviewed: Reviewed, trust: Mapping[str, Any]) -> dict[str, Any]:
        """How far the review is, and how many of the labels are expected to be right by now."""
        decided = reviewed.decisions
        judged = [
            (self.rows[row], decision.label)
            for row, decision in decided.items()
            if self.rows[row].source == INFERRED and decision.label is not None
        ]
        said = sum(row.probability for row, _ in judged)
        return {
            "checked": len(decided),
            "to_check": self.to_check,
            "left": self.to_check - sum(self.rows[row].decision != ACCEPT for row in decided),
            "corrected": sum(
                decision.label not in (None, self.rows[row].label)
                for row, decision in decided.items()
            ),
            "suggestions": len(judged),
            "suggestions_right": sum(row.label == label for row, label in judged),
            "suggestions_expected": said,
            "accuracy": self._accuracy(len(judged) - said, trust),
        }

    def _accuracy(self, mended: float, trust: Mapping[str, Any]) -> dict[str, float] | None:
        """The run's own estimate once so many expected errors are gone; its interval shrinks alike.

        None where no label was left out, so that nobody knows.
        """
        if not trust["left_out"] or trust["all"] is None or not self.inferred:
            return None
        errors = {name: 1.0 - trust["all"][name] for name in ("estimate", "low", "high")}
        left = max(0.0, errors["estimate"] - mended / self.inferred)
        share = left / errors["estimate"] if errors["estimate"] > 0 else 0.0
        return {name: 1.0 - share * error for name, error in errors.items()}
