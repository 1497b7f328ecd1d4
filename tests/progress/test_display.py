import io
import re

import pytest
from rich.console import Console

from saas_ssl.progress.display import Display, Speed, sparkline

PLAN = {"supervised": 1_000, "one": 6_000, "two": 3_000}


class Clock:
    """A time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def terminal(width: int = 100, soft_wrap: bool = True) -> Console:
    return Console(
        force_terminal=True, file=io.StringIO(), width=width, soft_wrap=soft_wrap, _environ={}
    )


def redirected(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width)


def shown(console: Console) -> str:
    """All that was printed or drawn, without colours and cursor movements."""
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def spend(display: Display, clock: Clock, seconds: float, passes: int, steps: int = 10) -> None:
    for _ in range(steps):
        clock.now += seconds / steps
        display.step(passes // steps)


def whole_run(display: Display, clock: Clock) -> None:
    display.begin("supervised")
    spend(display, clock, 10, 1_000)
    display.epoch(0, 0.5)
    display.begin("one")
    for m, (loss, changed) in enumerate([(2.0, 1.0), (1.0, 0.25), (0.5, 0.031)]):
        spend(display, clock, 10, 2_000)
        display.outer(m, 3, loss, changed)
    display.say("Something to know.")
    display.begin("two")
    spend(display, clock, 10, 1_500)
    display.epoch(4, 0.875)


def test_redirected_a_line_for_each_part_and_outer_iteration() -> None:
    clock, console = Clock(), redirected()
    with Display(console, PLAN, clock) as display:
        whole_run(display, clock)
    assert shown(console).splitlines() == [
        "supervised baseline",
        "phase one: labels",
        "outer   1/3   cumulative loss 2.000   changed 100.0%   200 images/s   35 s left",
        "outer   2/3   cumulative loss 1.000   changed  25.0%   200 images/s   25 s left",
        "outer   3/3   cumulative loss 0.500   changed   3.1%   200 images/s   15 s left",
        "Something to know.",
        "phase two: classifier",
    ]


def test_a_long_line_is_not_broken_when_redirected() -> None:
    clock, console = Clock(), redirected(width=40)
    with Display(console, PLAN, clock) as display:
        display.begin("one")
        spend(display, clock, 10, 2_000)
        display.outer(0, 3, 2.0, 1.0)
    assert len(shown(console).splitlines()) == 2


def test_a_terminal_shows_all_parts_in_one_view() -> None:
    clock, console = Clock(), terminal()
    with Display(console, PLAN, clock) as display:
        whole_run(display, clock)
    last_view = [line.rstrip() for line in shown(console).splitlines() if line.strip()][-5:]
    assert re.fullmatch(r"supervised baseline +━{30} +1,000 of 1,000", last_view[0])
    assert re.fullmatch(r"phase one: labels +━{30} +6,000 of 6,000", last_view[1])
    assert re.fullmatch(r"phase two: classifier +━{15}[━╺]+ +1,500 of 3,000", last_view[2])
    assert last_view[3] == "150 images/s   10 s left   epoch 5, score 0.875"
    assert last_view[4] == "cumulative loss █▃▁ 0.500   changed 3.1%"
    assert "Something to know." in shown(console)
    printed = shown(console).splitlines()
    assert "phase one: labels" not in printed  # the view says it
    assert not any(line.startswith("outer") for line in printed)


def test_the_view_goes_away() -> None:
    console = terminal()
    with Display(console, PLAN) as display:
        display.begin("supervised")
    assert isinstance(console.file, io.StringIO)
    erased = console.file.getvalue().rpartition("supervised baseline")[2]
    assert erased.count("\x1b[2K") >= erased.count("\n")


@pytest.mark.parametrize("soft_wrap", [True, False])
def test_the_view_fits_a_narrow_terminal(soft_wrap: bool) -> None:
    clock, console = Clock(), terminal(45, soft_wrap)
    with Display(console, {**PLAN, "one": 123_456_789_000}, clock) as display:
        display.begin("one")
        spend(display, clock, 10, 2_000)
        for m in range(100):
            display.outer(m, 100, 1.0 / (m + 1), 0.5)
    lines = [line for line in shown(console).splitlines() if line.strip()]
    assert max(len(line) for line in lines) == 45
    assert lines[-1].startswith("cumulative loss")


def test_many_steps_are_not_drawn_one_by_one() -> None:
    console = terminal()
    with Display(console, PLAN) as display:
        display.begin("one")
        for _ in range(10_000):
            display.step(1)
    assert 1 <= shown(console).count("phase one: labels") < 100


def test_a_terminal_that_cannot_draw_gets_lines() -> None:
    console = Console(force_terminal=True, file=io.StringIO(), _environ={"TERM": "dumb"})
    with Display(console, PLAN) as display:
        display.begin("one")
        display.outer(0, 3, 2.0, 1.0)
    assert shown(console).startswith("phase one: labels\nouter   1/3")


def test_a_terminal_without_unicode_gets_no_sparkline() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", newline="")
    console = Console(force_terminal=True, file=file, width=100, _environ={})
    with Display(console, PLAN) as display:
        display.begin("one")
        display.outer(0, 3, 2.0, 1.0)
    file.flush()
    assert b"cumulative loss 2.000" in raw.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_quiet_is_silent_but_lets_others_speak(
    is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(quiet=True, file=io.StringIO(), force_terminal=is_terminal)
    clock = Clock()
    with Display(console, PLAN, clock) as display:
        whole_run(display, clock)
        print("a warning")
    assert shown(console) == ""
    assert capsys.readouterr().out == "a warning\n"


def test_nothing_to_say_is_not_said() -> None:
    console = redirected()
    Display(console, PLAN).say(None)
    assert shown(console) == ""


def line_of(display: Display, console: Console) -> str:
    """The end of the next line: how fast, and how long still."""
    display.outer(0, 3, 2.0, 1.0)
    return shown(console).splitlines()[-1].split("100.0%   ")[1]


def test_what_an_earlier_process_did_is_done_but_not_in_the_speed() -> None:
    clock, console = Clock(), redirected()
    display = Display(console, PLAN, clock)
    display.resume("supervised", 1_000)
    display.resume("one", 4_000)
    display.begin("one")
    spend(display, clock, 10, 1_000)
    assert line_of(display, console) == "100 images/s   40 s left"  # 1,000 and 3,000


def test_a_new_plan_changes_the_time_left() -> None:
    clock, console = Clock(), redirected()
    display = Display(console, PLAN, clock)
    display.begin("one")
    spend(display, clock, 10, 1_000)
    display.replan("one", 2_000)
    assert line_of(display, console) == "100 images/s   40 s left"
    display.replan("one", 500)
    assert line_of(display, console) == "100 images/s   30 s left"
    display.replan("one", 2_000)
    display.replan("two", None)
    assert line_of(display, console) == "100 images/s   over 10 s left"
    spend(display, clock, 10, 1_000)
    assert line_of(display, console) == "100 images/s"  # all that is left has no known length


def test_a_part_that_ended_early_is_not_left_to_do() -> None:
    clock, console = Clock(), redirected()
    display = Display(console, {**PLAN, "supervised": None}, clock)
    display.begin("supervised")
    spend(display, clock, 10, 500)
    display.begin("one")
    spend(display, clock, 10, 3_000)
    display.begin("two")
    spend(display, clock, 10, 1_000)
    assert line_of(display, console) == "100 images/s   20 s left"


def test_the_speed_is_the_recent_one() -> None:
    clock = Clock()
    speed = Speed(clock)
    assert speed.per_second == 0
    for passes in [1_000] * 60 + [10] * 60:
        clock.now += 1
        speed.add(passes)
    assert speed.per_second == pytest.approx(10)


def test_the_speed_of_steps_longer_than_its_window() -> None:
    clock = Clock()
    speed = Speed(clock)
    for _ in range(5):
        clock.now += 100
        speed.add(500)
        assert speed.per_second == pytest.approx(5)


def test_sparkline() -> None:
    assert sparkline([]) == ""
    assert sparkline([3.0]) == "▁"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([-1.0, 1.0, float("nan"), float("inf"), 0.9]) == "▁█··█"
