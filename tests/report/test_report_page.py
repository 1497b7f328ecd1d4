"""The report in a real browser, opened from the disk."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browsing import hard_to_read
from report_pages import HOSTILE, Made, dot, page_of


def opened(browser: Browser, folder: Path, made: Made, **options: Any) -> Page:
    """The page; whatever it complains of, runs or asks of the network fails the test."""
    page_of(folder, made, dot)
    page = browser.new_context(**options).new_page()
    page.on("pageerror", lambda error: pytest.fail(f"error on the page: {error}"))
    page.on("console", lambda message: pytest.fail(f"on the console: {message.text}"))
    page.on("dialog", lambda dialog: pytest.fail(f"it speaks: {dialog.message}"))
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder / "report.html").as_uri())
    page.wait_for_load_state("networkidle")
    assert [url for url in asked if not url.startswith("data:")] == [page.url]
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_is_readable_everywhere(
    browser: Browser, tmp_path: Path, scheme: Any, width: int
) -> None:
    size = {"width": width, "height": 800}
    page = opened(browser, tmp_path, Made(), viewport=size, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert hard_to_read(page) == []
    expect(page.locator("h1")).to_contain_text("rows were labelled from")
    broken = "[...document.images].filter((image) => !image.naturalWidth).length"
    assert page.locator("img").count() > 5
    assert page.evaluate(broken) == 0
    assert page.locator("svg[role=img]").count() == 4
    cut = """[...document.querySelectorAll("svg text")].filter((text) => {
      const [box, { width }] = [text.getBBox(), text.ownerSVGElement.viewBox.baseVal];
      return box.x < 0 || box.x + box.width > width;
    }).map((text) => text.textContent)"""
    assert page.evaluate(cut) == []


def test_paper_is_white(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, Made(), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    body = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(body) in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert hard_to_read(page) == []


def test_names_are_harmless(browser: Browser, tmp_path: Path) -> None:
    """Names of classes, of which rows, reasons and the command are made, that try everything."""
    classes = HOSTILE[:5]
    page = opened(browser, tmp_path, Made(classes=classes, command=HOSTILE[0]))
    assert page.locator("script").count() == 0
    for name in classes:
        expect(page.locator("main")).to_contain_text(name)
