import time
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree.ElementTree import fromstring

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from report_pages import HOSTILE, Made, Page, dot, inferred_row, page_of, some_rows
from saas_ssl.report import write_report
from saas_ssl.report.charts import About, Bars, Series, bars, line_chart
from saas_ssl.report.choosing import MOST_CLASSES, MOST_EXAMPLES, evenly_spaced, examples
from saas_ssl.report.confusion import expected_confusion, expected_wrong, largest_pairs
from saas_ssl.report.gallery import LARGEST_PICTURE
from saas_ssl.report.names import one_line, visible, width
from saas_ssl.report.reading import Columns
from saas_ssl.runs.files import save_tensors
from saas_ssl.sources.source import Skipped
from saas_ssl.trust.decisions import LabelRow

SECTIONS = [
    *("summary", "speed", "convergence", "reliability", "classes", "confusion"),
    *("sure", "unsure", "suspects", "skipped", "made"),
]


def test_every_section_is_there_in_order(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert [name for name in page.values("id") if name in SECTIONS] == SECTIONS
    links = [link for link in page.values("href") if link.startswith("#")]
    assert links == [f"#{name}" for name in SECTIONS[1:]]


def test_numbers_are_those_of_the_record(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    for words in (
        "37 rows were labelled from 4 given labels of 3 classes.",
        "96.1% 91.3% to 98.6%, a 95 % interval",
        "accepted 30 with a probability of 0.95 or more; about 99.1% of them right",
        "to check 8 5 uncertain, 1 given but suspected, 2 of perhaps no class",
        "1 file could not be used: see skipped.csv.",
        "learnt 20% faster at the end than in the first outer iteration: their loss went from "
        "2.500 to 2.000.",
        "the last one changed 5.0% of the labels, and 92.0% of all were right after it.",
        "Of 40 given labels that were left out, 95.0% were right; the probabilities said 93.4%.",
        "Of 37 inferred labels, whose truth is known, 90.0% were right; the probabilities said "
        "93.0%.",
        "“\u2068owl\u2069” is the largest class with 15 inferred labels (40.5%)",
        "saas label photos --out runs/photos",
        *("inner_epochs 4", "network small_conv", "width not set", "whiten no", "seed 4711"),
        *("accept 0.95", "label_folds 5", "in_shape 3 × 24 × 32", "torch 2.13.0", "cores 2"),
        "row 100.png given as cat but without this label it looks like owl (93%)",
        "broken.jpg the file is empty",
        "saas review RUN",
    ):
        assert words in page.text
    assert "saas predict" not in page.text


def test_charts_have_the_numbers_of_the_metrics(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert "outer iteration cumulative loss 1 2.500 2 2.250 3 2.000" in page.text
    assert "labels changed labels right 1 80.0% 90.0% 2 20.0% 91.0% 3 5.0% 92.0%" in page.text
    assert "left out 4 61.0% 50.0% given labels that were left out 36 97.0% 100.0%" in page.text
    assert "inferred labels, whose truth is known 37 93.0% 90.0%" in page.text
    assert "cat 2 50.0% 12 32.4% dog 1 25.0% 10 27.0% owl 1 25.0% 15 40.5%" in page.text


def test_confusion_is_the_sum_of_probabilities(tmp_path: Path) -> None:
    rows = [
        LabelRow("given", "a", 1.0, "given", "accept", "", 0.0),
        *(inferred_row(str(n), "a", 0.75, "b") for n in range(40)),
        *(inferred_row(str(n), "b", 0.9, "a") for n in range(10)),
    ]
    p = torch.tensor([[torch.nan] * 2, *[[0.75, 0.25]] * 40, *[[0.1, 0.9]] * 10])
    page = page_of(tmp_path, Made(classes=("a", "b"), rows=rows, probabilities=p))
    assert "about 11 of 50 inferred labels are expected to be wrong" in page.text
    assert "most often those labelled a that are really b (10)" in page.text
    assert "labelled a, really b 10 labelled b, really a 1.0" in page.text
    assert "a b a 30 10 b 1.0 9.0" in page.text  # the table


def test_confusion_of_many_rows_is_read_in_blocks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    n, K = 3_000, 900  # two and a half blocks
    p = torch.rand(n, K).softmax(dim=1)
    label, given = torch.randint(0, K, (n,)), torch.rand(n) < 0.2
    p[given] = torch.nan
    save_tensors(tmp_path / "posterior.safetensors", {"probabilities": p})
    C = expected_confusion(tmp_path / "posterior.safetensors", label, given, K)
    assert torch.allclose(
        C[label[~given][0]], p[~given & (label == label[~given][0])].double().sum(0)
    )
    assert float(C.sum()) == pytest.approx(int((~given).sum()))
    wrong = (1 - p[~given].double().gather(1, label[~given][:, None])).sum()
    assert expected_wrong(C) == pytest.approx(float(wrong))


def test_the_largest_pairs_come_first_and_the_diagonal_is_none() -> None:
    C = torch.tensor([[50.0, 2.0, 0.4], [3.0, 60.0, 0.1], [0.6, 0.0, 9.0]]).double()
    assert [(pair.label, pair.other) for pair in largest_pairs(C)] == [(1, 0), (0, 1), (2, 0)]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_changes_nothing_but_the_text(tmp_path: Path, text: str) -> None:
    def made(words: str) -> Made:
        classes = [f"{words}{k}" for k in range(3)]
        return Made(
            classes=classes,
            rows=some_rows(classes, lambda row: f"{words}{row}"),
            skipped=[Skipped(words, words)],
            command=words,
            trust={"shift": {"class": words, "given": 0.5, "inferred": 0.1, "distance": 0.4}},
        )

    shift = "The classes have other shares among the inferred labels"
    for thumbnail in (None, dot):
        plain = page_of(tmp_path / "plain", made("plain"), thumbnail)
        page = page_of(tmp_path / "hostile", made(text), thumbnail)
        assert page.shape == plain.shape
    assert shift in page.text
    assert one_line(f"{text}0", 40) in page.text  # a class
    assert one_line(f"{text}200", 24) in page.text  # a row
    assert one_line(f"{text}200") in page.values("alt")
    assert f"{one_line(text)} {one_line(text, 300)}" in page.text  # a skipped file
    reason = f"given as {text}0 but without this label it looks like {text}2 (93%)"
    assert one_line(reason, 300) in page.text
    assert " ".join(visible(text).split()) in page.text  # the command
    assert not any(sign in page.source for sign in "\u202e\x00\x07\x1b")


@cache
def plain_shape(n_classes: int) -> list[tuple[str, tuple[str, ...]]]:
    with TemporaryDirectory() as folder:
        return page_of(Path(folder), Made([f"class {k}" for k in range(n_classes)])).shape


@settings(max_examples=40)
@given(
    names=st.lists(st.text(max_size=40), min_size=2, max_size=4, unique=True),
    id_=st.text(max_size=120),
    command=st.text(st.characters(), max_size=60),
)
def test_any_text_is_shown_and_is_only_text(names: list[str], id_: str, command: str) -> None:
    with TemporaryDirectory() as folder:
        rows = some_rows(names, lambda row: f"{row} {id_}")
        page = page_of(Path(folder), Made(classes=names, rows=rows, command=command))
    assert page.shape == plain_shape(len(names))
    for name in names:
        assert one_line(name, 40) in page.text
    assert one_line(f"200 {id_}") in page.values("alt")
    assert one_line(f"200 {id_}", 24) in page.text
    assert " ".join(visible(command).split()) in page.text


def test_a_command_that_is_no_utf_8_is_shown(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(command="saas label caf\udce9"))
    assert "saas label caf\\udce9" in page.text


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    known = {"labels.csv", "skipped.csv"}
    assert all(link.startswith("#") or link in known for link in page.values("href"))
    assert {link.partition(",")[0] for link in page.values("src")} == {"data:image/png;base64"}
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "form", "base", "use"}
    assert not any(name.startswith("on") for _, found in page.elements for name in found)
    assert "url(" not in page.source
    assert "@import" not in page.source
    policy = {"http-equiv": "Content-Security-Policy", "content": page.values("content")[0]}
    assert ("meta", policy) in page.elements
    assert policy["content"].startswith("default-src 'none'; img-src data:;")


def test_the_page_can_be_read_without_seeing_it(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert page.source.lstrip().startswith("<!doctype html>\n<html lang=")
    levels = [int(tag[1]) for tag, _ in page.elements if tag in {"h1", "h2", "h3", "h4"}]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all(found.get("alt") for tag, found in page.elements if tag == "img")
    assert all("scope" in found for tag, found in page.elements if tag == "th")
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == tags.count("caption")
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for tag, found in page.elements:
        if tag == "svg":
            assert found["role"] == "img"
            assert set(str(found["aria-labelledby"]).split()) <= set(ids)


def bounded(folder: Path, made: Made, size: int) -> Page:
    record, asked = made.write(folder), list[int]()

    def blob(row: int) -> tuple[bytes, str]:
        asked.append(row)
        return bytes(size), "image/jpeg"

    begun = time.monotonic()
    write_report(folder, record, blob)
    assert time.monotonic() - begun < 20
    assert (folder / "report.html").stat().st_size < 10_000_000
    assert len(asked) <= MOST_EXAMPLES <= 300
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def many_rows(n: int, classes: Sequence[str], id_: str = "") -> list[LabelRow]:
    own, rival = classes[0], classes[1]
    rows = [
        LabelRow(f"g{k}{id_}", own, 0.1, "given", "review", rival, 0.9, f"looks like {rival}" * 9)
        for k in range(200)
    ]
    rows += [inferred_row(f"o{k}{id_}", own, 0.2, rival, "outlier") for k in range(200)]
    rows += [
        inferred_row(f"{k}{id_}", classes[k % len(classes)], 0.5 + 0.499 * (k % 97) / 96, own)
        for k in range(n - len(rows))
    ]
    return rows


def test_a_hundred_thousand_rows_fit(tmp_path: Path) -> None:
    classes = [f"class {k}" for k in range(20)]
    skipped = [Skipped(f"{n}.jpg", "the file is empty") for n in range(5_000)]
    rows = many_rows(100_000, classes, "x" * 200)
    page = bounded(tmp_path, Made(classes, rows, skipped=skipped), LARGEST_PICTURE)
    assert "and 4,900 more files in skipped.csv" in page.text
    assert "and 152 more marked review in labels.csv" in page.text
    assert "and 152 more marked outlier in labels.csv" in page.text
    assert len(page.values("src")) == MOST_EXAMPLES


def test_a_thousand_classes_fit(tmp_path: Path) -> None:
    classes = [f"class {k} {'y' * 200}" for k in range(1_000)]
    rows = many_rows(5_000, classes)
    page = bounded(tmp_path, Made(classes, rows, outers=5_000), 15_000)
    assert "The 20 classes of most inferred labels are shown; there are 980 more." in page.text
    assert "and 980 more classes in labels.csv" in page.text
    assert "Table of confusions" not in page.values("aria-label")


def test_a_picture_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    page = page_of(tmp_path, thumbnail=lambda _row: (bytes(LARGEST_PICTURE + 1), "image/png"))
    assert page.values("src") == []
    assert "row 200.png" in page.text


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first = page_of(tmp_path / "one").source
    record = Made().write(tmp_path / "two")
    results = {**record["results"], "seconds": 1.5, "bytes_sent": 17}
    results["supervised"] = {**results["supervised"], "seconds": 77.0}
    later = {"results": results, "started": "2030-12-24T12:00:00+00:00", "plan": {"seconds": 5.0}}
    (tmp_path / "two" / "metrics.jsonl").write_text(
        (tmp_path / "one" / "metrics.jsonl").read_text().replace('"seconds": ', '"seconds": 3')
    )
    write_report(tmp_path / "two", {**record, **later}, dot)
    assert (tmp_path / "two" / "report.html").read_text(encoding="utf-8") == first
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [
        *("labels.csv", "metrics.jsonl", "posterior.safetensors", "report.html", "skipped.csv")
    ]


def test_two_classes(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(classes=("no", "yes")))
    assert "of 2 classes." in page.text


def test_no_label_was_left_out(tmp_path: Path) -> None:
    none = {"estimate": 0.9, "low": 0.0, "high": 1.0}
    trust = {"left_out": 0, "reliability": [], "all": none, "accepted": none, "suspects": 0}
    rows = [row for row in some_rows(["a", "b"]) if row.id != "row 100.png"]
    page = page_of(tmp_path, Made(("a", "b"), rows, known=False, trust=trust))
    assert "expected to be right unknown no given label was left out" in page.text
    assert "No given label was left out, so nothing was measured" in page.text
    assert "No given label was left out, so none could be checked." in page.text
    assert "reliability-title" not in page.values("id")
    assert "90.0%" not in page.text
    measured = page_of(tmp_path, Made(("a", "b"), rows, trust=trust))
    assert "reliability-title" in measured.values("id")


def test_truth_that_is_not_known_is_not_shown(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(known=False))
    assert "labels right" not in page.text
    assert "whose truth is known" not in page.text


def test_no_outer_iterations(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(outers=0))
    assert page.text.count("There was no outer iteration, so there is nothing to show.") == 2
    (tmp_path / "metrics.jsonl").unlink()
    write_report(tmp_path, Made()._record(some_rows(Made.classes)), dot)


def test_one_outer_iteration(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(outers=1))
    assert "one outer iteration only" in page.text
    assert "80.0% of the labels, and 90.0% of all were right after it: many are still moving." in (
        page.text
    )


@pytest.mark.parametrize(
    "end", ['{"phase": "one", "outer": 3, "cumul', '{"phase": "one"}\n', "\x00"]
)
def test_metrics_that_are_not_whole(tmp_path: Path, end: str) -> None:
    whole = page_of(tmp_path).source
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(end)
    write_report(tmp_path, Made()._record(some_rows(Made.classes)), dot)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == whole


def test_a_loss_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    record = Made().write(tmp_path)
    metrics = (tmp_path / "metrics.jsonl").read_text().replace("2.25", "NaN")
    (tmp_path / "metrics.jsonl").write_text(metrics)
    write_report(tmp_path, record, dot)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "outer iteration cumulative loss 1 2.500 3 2.000" in page.text


def test_pictures_that_cannot_be_had(tmp_path: Path) -> None:
    page = page_of(tmp_path, thumbnail=lambda _row: None)
    assert page.values("src") == []
    for name in ("row 100.png", "row 200.png", "row 300.png", "row 400.png"):
        assert name in page.text
    some = page_of(tmp_path, thumbnail=lambda row: None if row == 40 else dot(row))
    assert some.text.count("no picture") == 1


def test_features_have_tables(tmp_path: Path) -> None:
    page = page_of(tmp_path, thumbnail=None)
    assert "img" not in {tag for tag, _ in page.elements}
    assert "row 300.png owl 50.0% cat 50.0%" in page.text
    assert "owl row probability next best probability row 202.png 99.0% cat 1.0%" in page.text
    assert "row 100.png cat 2.0% owl 93.0% given as cat but" in page.text


def test_nothing_is_accepted(tmp_path: Path) -> None:
    rows = [inferred_row(f"r{n}", "a", 0.6, "b") for n in range(9)]
    page = page_of(tmp_path, Made(("a", "b"), rows, trust={"accepted": None}))
    assert "accepted 0 with a probability of 0.95 or more to check 9" in page.text
    assert "“\u2068b\u2069” got none at all." in page.text
    assert "b 0 inferred No row got this label." in page.text


def test_nothing_is_to_review(tmp_path: Path) -> None:
    rows = [inferred_row(f"r{n}", "ab"[n % 2], 0.99, "b") for n in range(9)]
    page = page_of(tmp_path, Made(("a", "b"), rows, skipped=()), command=None)
    assert "None of them is marked for review: all are above the line of 0.95." in page.text
    assert "No given label looks wrong." in page.text
    assert "Everything that was found could be used." in page.text
    assert "started from Python" in page.text
    assert "none of the classes" not in page.text


def table_of(p: Sequence[float]) -> Columns:
    no = torch.zeros(len(p), dtype=torch.bool)
    return Columns(no.long(), torch.tensor(p, dtype=torch.float64), no, no, no)


def test_sure_examples_are_spread_over_those_that_are_equal() -> None:
    chosen = examples(table_of([0.6] * 10 + [0.994, 0.992] * 500 + [0.6] * 10), [0])
    assert chosen.sure[0] == [10 + place for place in evenly_spaced(1_000, 8)]
    better = examples(table_of([0.7] * 100 + [0.99] * 3), [0]).sure[0]
    assert better[:3] == [100, 101, 102]
    assert better[3:] == evenly_spaced(100, 5)


def test_the_least_certain_come_first() -> None:
    p = [0.5 + (37 * n % 100) / 250 for n in range(100)]
    unsure = examples(table_of(p), []).unsure
    assert [p[row] for row in unsure] == sorted(p)[: len(unsure)]


@given(st.integers(1, 500), st.integers(1, 500))
def test_evenly_spaced_places_are_different(total: int, n: int) -> None:
    places = evenly_spaced(total, n)
    assert len(set(places)) == len(places) == min(total, n)
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] < total


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\n b\t\u2028c", "a b c"),
        ("\u202eevil", "\\u202eevil"),
        ("\x00", "\\x00"),
        ("  ", "(no name)"),
        ("👩\u200d👧 مثال", "👩\u200d👧 مثال"),
        ("a" * 50 + "b" * 50, "a" * 39 + "…" + "b" * 39),
        ("猫" * 41, "猫" * 19 + "…" + "猫" * 19),
    ],
)
def test_names_are_one_visible_line(name: str, shown: str) -> None:
    assert one_line(name) == shown


@given(st.text(st.characters()), st.integers(3, 100))
def test_names_are_never_too_long(name: str, longest: int) -> None:
    line = one_line(name, longest)
    assert width(line) <= max(longest, len("(no name)"))
    assert "\n" not in line
    line.encode()


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_lines_of_any_numbers_are_drawn_within_the_chart(values: list[float]) -> None:
    svg = fromstring(  # noqa: S314 - our own
        line_chart(
            About("x", "<&>", '"'),
            range(1, len(values) + 1),
            ("x", "y"),
            [Series("y", values, "first")],
            max(values),
            "{:g}".format,
            "{:.3f}".format,
        )
    )
    _, _, right, bottom = map(float, svg.attrib["viewBox"].split())
    (line,) = svg.iter("polyline")
    for place in line.attrib["points"].split():
        x, y = map(float, place.split(","))
        assert 0 <= x <= right
        assert 0 <= y <= bottom
    ticks = [text.text for text in svg.iter("text") if text.attrib["class"] == "tick middle"]
    assert 1 <= len(ticks) <= 9
    assert all(1 <= int(tick or 0) <= len(values) for tick in ticks)


def test_bars_are_as_long_as_their_shares() -> None:
    svg = fromstring(  # noqa: S314 - our own
        bars(
            About("x", "t", "d"),
            [Bars("a", (0.5, "5"), (0.25, "1")), Bars("b", (0, "0"), (1, "4"))],
        )
    )
    lengths = [float(bar.attrib["width"]) for bar in svg.iter("rect")]
    assert lengths == pytest.approx([lengths[3] / 2, lengths[3] / 4, 0, lengths[3]], abs=0.11)


def test_all_classes_are_shown_in_their_order_if_they_are_few(tmp_path: Path) -> None:
    classes = [str(k) for k in range(MOST_CLASSES)]
    rows = [inferred_row(f"r{n}", classes[n % 7], 0.9, "0") for n in range(50)]
    page = page_of(tmp_path, Made(classes, rows))
    places = [page.text.index(f"{k} {8 if k == '0' else 7} inferred") for k in classes[:7]]
    assert places == sorted(places)
    assert "13 classes got none at all." in page.text
