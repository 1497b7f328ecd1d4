"""The review page in a real browser: keyboard, mouse, touch, reloads and crashes."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from browsing import hard_to_read
from review_runs import (
    CLASSES,
    Server,
    actions,
    feature_run,
    image_run,
    rows_of,
    served,
    write_images,
    write_run,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return image_run(tmp_path)


@pytest.fixture
def server(run: Path) -> Iterator[Server]:
    with served(run) as server:
        yield server


def opened(browser: Browser, url: str, **options: Any) -> Page:
    """A page of its own; whatever the browser complains of fails the test."""
    page = browser.new_context(**options).new_page()
    page.on("pageerror", lambda error: pytest.fail(f"error on the page: {error}"))
    page.on(
        "console",
        lambda message: None if "Failed to load resource" in message.text
        else pytest.fail(f"on the console: {message.text}"),
    )  # fmt: skip
    page.goto(url)
    page.locator(".row").first.wait_for()
    return page


def focused(page: Page) -> int:
    """The row that the keys are about."""
    return int(page.evaluate("document.activeElement.dataset.row"))


def labels_in(run: Path) -> list[tuple[int, str | None]]:
    return [
        (made["row"], made["label"]) for line in actions(run) for made in line.get("decisions", [])
    ]


def press(page: Page, key: str, saved: str) -> None:
    """Press a key, and wait until the page says that it is saved."""
    page.keyboard.press(key)
    expect(page.locator("#saved")).to_have_text(saved)


def test_label_with_the_keyboard(browser: Browser, server: Server, run: Path) -> None:
    page = opened(browser, server.url)
    assert "token" not in page.url
    assert focused(page) == 39
    press(page, "Enter", "Saved: 39 is cat.")
    assert labels_in(run) == [(39, "cat")]  # it was on the disk before the page said so
    assert focused(page) == 38  # on to the next
    press(page, "3", "Saved: 38 is <b>owl</b>.")
    press(page, "2", "Saved: 35 is dog.")
    press(page, "-", "Saved: 34 is unclear.")
    assert labels_in(run)[1:] == [(38, "<b>owl</b>"), (35, "dog"), (34, None)]
    assert focused(page) == 31
    page.keyboard.press("ArrowLeft")
    assert focused(page) == 34
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    below = focused(page)
    boxes = [page.locator(f"[data-row='{row}']").bounding_box() for row in (31, below)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[0]["y"] < boxes[1]["y"]
    page.keyboard.press("ArrowUp")
    assert focused(page) == 31
    page.keyboard.press(".")
    page.keyboard.type("OWL")
    press(page, "Enter", "Saved: 31 is <b>owl</b>.")
    expect(page.locator("#done")).to_have_text("5 of 21 checked, 2 corrected.")
    expect(page.locator("#suggestions")).to_contain_text("2 of 4")
    page.keyboard.press("?")
    expect(page.locator("#manual")).to_be_visible()
    expect(page.locator("#class-keys")).to_have_text("1 cat2 dog3 <b>owl</b>")
    page.keyboard.press("1")  # a key for another window
    page.keyboard.press("Escape")
    expect(page.locator("#manual")).not_to_be_visible()
    assert len(actions(run)) == 5


def test_expected_accuracy_follows(browser: Browser, server: Server) -> None:
    page = opened(browser, server.url)
    expect(page.locator("#accuracy")).to_contain_text("90.00 % (80.0 % to 96.0 %)")
    press(page, "Enter", "Saved: 39 is cat.")
    # Of 30 labels, one of probability 0.12 is known to be right now.
    expect(page.locator("#accuracy")).to_contain_text("92.93 %")


def test_undo_even_after_a_restart(browser: Browser, run: Path) -> None:
    with served(run) as server:
        page = opened(browser, server.url)
        press(page, "2", "Saved: 39 is dog.")
        press(page, "1", "Saved: 38 is cat.")
        press(page, "u", "Undone: 38 is not checked.")
        assert focused(page) == 38
        press(page, "1", "Saved: 38 is cat.")
    with served(run) as server:
        page = opened(browser, server.url)
        expect(page.locator("[data-row='38']")).to_have_count(0)  # checked, so no longer listed
        press(page, "u", "Undone: 38 is not checked.")
        expect(page.locator("[data-row='38']")).to_have_count(1)
        page.locator("#undo").click()
        expect(page.locator("#saved")).to_have_text("Undone: 39 is not checked.")
        expect(page.locator("#undo")).to_be_disabled()
    assert [line.get("undo") for line in actions(run)] == [None, None, 2, None, 4, 1]


def test_filters_and_reload(browser: Browser, server: Server) -> None:
    page = opened(browser, server.url)
    page.locator("#label").select_option("<b>owl</b>")
    expect(page.locator("#place")).to_have_text("1 to 7 of 7")
    page.locator("#show").select_option("all")
    expect(page.locator("#place")).to_have_text("1 to 13 of 13")
    page.locator("#text").fill("2")
    expect(page.locator("#place")).to_have_text("1 to 6 of 6")
    page.reload()
    expect(page.locator("#place")).to_have_text("1 to 6 of 6")
    assert page.locator("#label").input_value() == "<b>owl</b>"
    page.locator("#text").fill("nothing")
    expect(page.locator("#empty")).to_have_text("No row is like that.")
    page.locator("#label").select_option("")
    page.locator("#text").fill("")
    page.locator("#order").select_option("file")
    expect(page.locator(".row").first).to_have_attribute("data-row", "0")
    page.locator("#show").select_option("outlier")
    expect(page.locator(".row")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"


def test_an_answer_that_comes_late_is_none(browser: Browser, server: Server) -> None:
    page = opened(browser, server.url)
    held = list[Route]()
    page.route("**/api/rows?*label=cat*", lambda route: held.append(route))
    page.locator("#label").select_option("cat")
    page.locator("#label").select_option("<b>owl</b>")
    expect(page.locator("#place")).to_have_text("1 to 7 of 7")
    with page.expect_response("**/api/rows?*label=cat*") as late:
        held[0].continue_()
    late.value.finished()
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(page.locator("#place")).to_have_text("1 to 7 of 7")
    owls = page.locator(".guess strong").all_inner_texts()
    assert owls == ["<b>owl</b>"] * 7


def test_mouse_and_accept_all(browser: Browser, server: Server, run: Path) -> None:
    page = opened(browser, server.url)
    page.locator("[data-row='35'] .choices button", has_text="dog").click()
    expect(page.locator("[data-row='35'] .decided")).to_have_text("✓ dog")
    page.locator("[data-row='34'] .frame").click()
    expect(page.locator("#zoom")).to_be_visible()
    assert (
        page.locator("#zoom-image").evaluate(
            "image => image.decode().then(() => image.naturalWidth)"
        )
        == 8
    )
    page.locator("#zoom button").click()
    page.locator("#accept-all").click()
    expect(page.locator("#saved")).to_have_text("Saved: 20 rows accepted.")
    expect(page.locator("#done")).to_have_text("21 of 21 checked, 1 corrected.")
    assert len(actions(run)) == 2
    press(page, "u", "Undone: 20 rows.")
    expect(page.locator("[data-row='34'] .decided")).to_have_count(0)
    press(page, "Shift+Enter", "Saved: 20 rows accepted.")
    page.reload()
    expect(page.locator("#empty")).to_contain_text("Everything is checked.")


def test_two_windows_do_not_overwrite_each_other(
    browser: Browser, server: Server, run: Path
) -> None:
    one, two = opened(browser, server.url), opened(browser, server.url)
    two.evaluate("Object.defineProperty(document, 'hidden', {value: true})")  # it looks no more
    press(one, "2", "Saved: 39 is dog.")
    two.keyboard.press("1")
    expect(two.locator("#trouble")).to_contain_text("Not saved: 39 changed meanwhile")
    expect(two.locator("[data-row='39'] .decided")).to_have_text("✓ dog")
    assert labels_in(run) == [(39, "dog")]
    press(two, "1", "Saved: 39 is cat.")  # knowing it, one may
    expect(one.locator("[data-row='39'] .decided")).to_have_text("✓ cat")  # and the other hears
    press(one, "u", "Undone: 39 is checked: dog.")


def test_the_server_is_killed_and_comes_back(browser: Browser, run: Path) -> None:
    with served(run) as server:
        page, port = opened(browser, server.url), server.port
        press(page, "Enter", "Saved: 39 is cat.")
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        page.keyboard.press("Enter")
        expect(page.locator("#trouble")).to_contain_text("The server does not answer")
        expect(page.locator("#saved")).to_have_text("Saved: 39 is cat.")  # and nothing else
        expect(page.locator("[data-row='38'] .decided")).to_have_count(0)
    assert labels_in(run) == [(39, "cat")]
    with served(run, "--port", str(port)) as server:
        page.goto(server.url)
        expect(page.locator(".row").first).to_have_attribute("data-row", "38")
        expect(page.locator("#done")).to_have_text("1 of 21 checked, 0 corrected.")
        press(page, "Enter", "Saved: 38 is <b>owl</b>.")
    assert labels_in(run) == [(39, "cat"), (38, "<b>owl</b>")]


def test_ten_thousand_rows(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows_of(10_000), write_images(tmp_path / "x.npz", 10_000))
    with served(run) as server:
        page = opened(browser, server.url)
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        expect(page.locator("#place")).to_have_text("1 to 60 of 5,001")
        assert page.locator(".row").count() == 60
        page.keyboard.press("PageDown")
        expect(page.locator("#place")).to_have_text("61 to 120 of 5,001")
        first = focused(page)
        pictures = [url for url in asked if "/image/" in url]
        assert 0 < len(pictures) < 60  # those that can be seen, and a few more
        press(page, "Shift+Enter", "Saved: 60 rows accepted.")
        expect(page.locator("#place")).to_have_text("61 to 120 of 4,941")  # the next ones
        assert focused(page) < first
        page.keyboard.press("PageUp")
        page.keyboard.press("PageUp")
        expect(page.locator("#place")).to_have_text("1 to 60 of 4,941")
        page.locator("#text").fill("999")
        expect(page.locator("#place")).to_have_text(re.compile(r"1 to \d+ of \d+$"))


def test_features_are_a_table(browser: Browser, tmp_path: Path) -> None:
    run = feature_run(tmp_path)
    with served(run) as server:
        page = opened(browser, server.url)
        assert page.locator("img").count() == 1  # the one that would be enlarged
        expect(page.locator(".row").first).to_contain_text("width <cm>")
        press(page, "2", "Saved: 39 is dog.")
        page.keyboard.press("ArrowDown")
        assert focused(page) == 35
        page.keyboard.press(" ")
        expect(page.locator("#zoom")).not_to_be_visible()


def test_names_are_text_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    evil = '<img src=x onerror="document.title=1">'
    rows = [row._replace(id=f"{evil}{row.id}", reason=evil) for row in rows_of(8, (evil, "b"))]
    data = tmp_path / "x.csv"
    quoted = [f'"{row.id}"'.replace('"document.title=1"', '""document.title=1""') for row in rows]
    data.write_text("id,z\n" + "".join(f"{name},1\n" for name in quoted))
    run = write_run(tmp_path / "run", rows, str(data), (evil, "b"), in_shape=(1,))
    with served(run) as server:
        page = opened(browser, server.url)
        expect(page.locator(".row").first).to_contain_text(evil)
        press(page, "1", f"Saved: {rows[7].id} is {evil}.")
        assert page.title() == "Review: run"
        assert page.locator("img").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(browser: Browser, server: Server, scheme: Any) -> None:
    size = {"width": 360, "height": 740}
    page = opened(browser, server.url, viewport=size, has_touch=True, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    button = page.locator("[data-row='39'] .accept")
    box = button.bounding_box()
    assert box is not None
    assert box["height"] >= 36
    button.tap()
    expect(page.locator("[data-row='39'] .decided")).to_have_text("✓ cat")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_read_and_use_it(browser: Browser, server: Server, scheme: Any) -> None:
    page = opened(browser, server.url, color_scheme=scheme, reduced_motion="reduce")
    press(page, "Enter", "Saved: 39 is cat.")
    assert hard_to_read(page) == []
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter((node) => "
        "!(node.innerText || node.ariaLabel || node.labels?.length)).map((node) => node.outerHTML)"
    )
    assert nameless == []
    card = page.locator("[data-row='38']")
    assert card.get_attribute("aria-label") == "38: <b>owl</b>, 14 %, or cat, 76 %; not checked"
    assert page.locator("#saved").get_attribute("aria-live") == "polite"
    assert page.locator(".row[tabindex='0']").count() == 1  # Tab goes past the rows in one step
    assert CLASSES[2] == "<b>owl</b>"
