"""Parts of sentences for people."""

from collections.abc import Sequence


def counted(n: int, thing: str) -> str:
    """1 file, 2 files, 1,000 files."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def some(things: Sequence[str], most: int = 5) -> str:
    """The first few of them, and how many more there are."""
    more = len(things) - most
    return ", ".join(things[:most]) + (f" and {more} more" if more > 0 else "")


def shown(name: str) -> str:
    """A name from a file as part of a sentence: one line, and not too long."""
    line = " ".join(name.split())
    return line if len(line) <= 200 else f"{line[:200]}..."
