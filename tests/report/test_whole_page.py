import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from report_pages import Made, Page, dot, inferred_row, page_of
from saas_ssl.report import write_report
from saas_ssl.report.choosing import MOST_EXAMPLES
from saas_ssl.report.gallery import LARGEST_PICTURE
from saas_ssl.sources.source import Skipped
from saas_ssl.trust.decisions import LabelRow


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
