"""What every test takes for granted: one thread, no deadline, and a Ctrl-C that is heard."""

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from hypothesis import settings
from playwright.sync_api import Browser, expect, sync_playwright

from command import Here, called_here

# Tests are small, and two threads on a busy machine are far slower than one; also in the
# processes that tests start, whose libraries would begin with as many threads as there are cores.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
settings.register_profile("default", deadline=None)
settings.load_profile("default")
# Shells start jobs in the background with Ctrl-C ignored, and the commands under test inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
expect.set_options(timeout=30_000)


@pytest.fixture
def saas_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Here]:
    """`saas_here("label", ..., cwd=folder)`: the command within this process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    threads = torch.get_num_threads()
    yield partial(called_here, monkeypatch=monkeypatch, capsys=capsys)
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The chromium of the system: without it such tests are skipped, but not where CI runs them."""
    if CHROMIUM is None and "CI" not in os.environ:
        pytest.skip("there is no chromium on this machine")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()
