"""Lengths of time as people write and read them."""

import re

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str) -> float:
    """90s, 20m, 1.5h or 2d -> seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text!r} is not a length of time such as 90s, 20m, 1.5h or 2d")
    return float(match[1]) * _UNITS[match[2]]


def duration(seconds: float) -> str:
    """As people say it: 45 s, 12 min, 3.5 h, 2.1 days."""
    for unit, length, enough in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < enough:
            return f"{seconds / length:.{1 if unit == 'h' else 0}f} {unit}"
    return f"{seconds / 86_400:.1f} days"
