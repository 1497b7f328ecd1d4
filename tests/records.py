"""What run.json says of runs that were never made."""

from typing import Any

TRUST: dict[str, Any] = {
    "left_out": 100,
    "left_out_right": 96,
    "few_labels": False,
    "a": 2.0,
    "all": {"estimate": 0.96, "low": 0.91, "high": 0.985},
    "accepted": {"estimate": 0.9912, "low": 0.97, "high": 1.0},
    "suspects": 0,
    "shift": None,
    "measured": None,
}
