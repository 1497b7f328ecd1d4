import pytest

from saas_ssl.training.times import duration, seconds_of


def test_durations_are_said_in_fitting_units() -> None:
    said = [duration(seconds) for seconds in (0.4, 45, 125, 7000, 12_600, 181_440)]
    assert said == ["0 s", "45 s", "2 min", "117 min", "3.5 h", "2.1 days"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("20min", 1200), ("1.5h", 5400), ("2d", 172_800), (" 5 m ", 300)],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "-5m", "0s", "1w", "5 m 3 s", "1e3s", "nan", "∞s"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a length of time such as 90s, 20m, 1\.5h or 2d"):
        seconds_of(text)
