"""What a reviewer sees: filters, orders, pages that lose no row, and numbers that add up."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from review_runs import CLASSES, TRUST, rows_of
from saas_ssl.review.log import Action, Decision, Reviewed
from saas_ssl.review.table import ORDERS, SHOWS, Query, Table

ROWS = rows_of(40)
TABLE = Table(ROWS, list(reversed(range(40))))


def reviewed(labels: Mapping[int, str | None]) -> Reviewed:
    found = Reviewed()
    for seq, (row, label) in enumerate(labels.items(), start=1):
        made = Decision(row=row, id=ROWS[row].id, label=label)
        found.apply(Action(seq=seq, time="", decisions=(made,)))
    return found


def listed(query: Query, decided: Reviewed | None = None) -> list[int]:
    return list(TABLE.page(query, decided or reviewed({})).rows)


def test_each_list_has_its_rows() -> None:
    decided = reviewed({2: CLASSES[0], 5: None, 0: CLASSES[1]})
    for show, expected in {
        "to-check": [row for row in range(40) if row % 4 in (2, 3) and row != 2],
        "review": [row for row in range(40) if (row % 4 in (2, 3) or row == 0) and row != 7],
        "outlier": [7],
        "accept": [row for row in range(40) if row % 4 in (0, 1) and row != 0],
        "given": [row for row in range(40) if row % 4 == 0],
        "checked": [0, 2, 5],
        "all": list(range(40)),
    }.items():
        assert listed(Query(show=show, order="file"), decided) == expected  # type: ignore[arg-type]
    assert 0 in listed(Query())  # a given label that looks wrong is to be checked


def test_orders() -> None:
    assert listed(Query(show="all", limit=200)) == list(reversed(range(40)))
    by_doubt = listed(Query(show="all", order="uncertain", limit=200))
    assert [ROWS[row].probability for row in by_doubt] == sorted(row.probability for row in ROWS)


def test_a_class_is_the_one_that_a_row_has_now() -> None:
    decided = reviewed({2: CLASSES[0], 3: None})
    rows = listed(Query(show="all", label=CLASSES[0], limit=200), decided)
    assert 2 in rows  # it was suggested as another
    assert 3 not in rows
    assert {ROWS[row].label for row in rows if row != 2} == {CLASSES[0]}


def test_text_is_looked_for_in_names() -> None:
    rows = [row._replace(id=f"Ärger/{row.id}.PNG") for row in ROWS]
    table = Table(rows, range(40))
    assert table.page(Query(show="all", text="äRGER/3", limit=99), reviewed({})).matching == 11
    assert table.page(Query(show="all", text="nothing"), reviewed({})).rows == []


@given(
    show=st.sampled_from(SHOWS),
    order=st.sampled_from(ORDERS),
    limit=st.integers(1, 15),
    checks=st.lists(st.integers(0, 39), max_size=20, unique=True),
)
def test_pages_lose_no_row_while_rows_are_checked(
    show: str, order: str, limit: int, checks: list[int]
) -> None:
    """A row that was not checked meanwhile is on exactly one page."""
    before = listed(Query(show=show, order=order, limit=200))  # type: ignore[arg-type]
    labels, seen, start = dict[int, str | None](), list[int](), 0
    while True:
        query = Query(show=show, order=order, start=start, limit=limit)  # type: ignore[arg-type]
        page = TABLE.page(query, reviewed(labels))
        seen += page.rows
        assert len(seen) <= len(ROWS)
        if checks:
            labels[checks.pop()] = CLASSES[0]
        if page.next is None:
            break
        start = page.next
    assert len(set(seen)) == len(seen)
    if show != "checked":
        assert set(before) - set(labels) <= set(seen)
    assert page.before + len(page.rows) == page.matching


def test_progress_adds_up() -> None:
    nothing = TABLE.progress(reviewed({}), TRUST)
    assert nothing["checked"] == nothing["corrected"] == nothing["suggestions"] == 0
    assert nothing["to_check"] == nothing["left"] == 21
    assert nothing["accuracy"] == pytest.approx(TRUST["all"])
    right, wrong = ROWS[2].label, ROWS[3].runner_up
    # A suggestion that was right, one that was wrong, an accepted one, one that nobody can tell,
    # and a given label, which is none of our suggestions.
    done = TABLE.progress(
        reviewed({2: right, 3: wrong, 5: ROWS[5].label, 6: None, 0: CLASSES[2]}), TRUST
    )
    assert (done["checked"], done["left"], done["corrected"]) == (5, 17, 2)
    assert (done["suggestions"], done["suggestions_right"]) == (3, 2)
    said = ROWS[2].probability + ROWS[3].probability + ROWS[5].probability
    assert done["suggestions_expected"] == pytest.approx(said)
    estimate = 0.9 + (3 - said) / 30
    assert done["accuracy"]["estimate"] == pytest.approx(estimate)
    assert done["accuracy"]["low"] == pytest.approx(1 - 0.2 * (1 - estimate) / 0.1)


def test_when_all_is_checked_all_is_right() -> None:
    every = {row: ROWS[row].label for row in range(40)}
    exact = sum(row.probability for row in ROWS if row.source == "inferred") / 30
    trust = {"left_out": 9, "all": {"estimate": exact, "low": 0.1, "high": 0.95}}
    accuracy = TABLE.progress(reviewed(every), trust)["accuracy"]
    assert accuracy == pytest.approx({"estimate": 1.0, "low": 1.0, "high": 1.0})
    assert TABLE.progress(reviewed({}), {"left_out": 0, "all": trust["all"]})["accuracy"] is None


def test_a_row_tells_how_it_stands() -> None:
    decided = reviewed({3: None})
    assert TABLE.shown(3, decided) == {
        "row": 3,
        **ROWS[3]._asdict(),
        "checked": True,
        "checked_label": None,
        "seen": 1,
    }
    assert TABLE.shown(2, decided)["checked"] is False
