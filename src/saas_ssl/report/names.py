"""Text from anywhere, made harmless to the eye: visible, on one line and not too long."""

import unicodedata

_LONGEST = 80
_JOINERS = frozenset("\u200c\u200d")  # part of words in Persian and Hindi, and of emoji
_WIDE = frozenset("WF")


def visible(text: str) -> str:
    """What cannot be seen, or turns the text around it, as an escape; line breaks are kept."""
    return "".join(
        sign
        if sign.isprintable() or sign in _JOINERS or sign == "\n"
        else sign.encode("unicode_escape").decode()
        for sign in text
    )


def one_line(name: str, longest: int = _LONGEST) -> str:
    """A name as it is shown, cut in its middle: both ends of a path tell most."""
    line = visible(" ".join(name.split()))
    if not line:
        return "(no name)"
    if width(line) <= longest:
        return line
    half = (longest - 1) // 2
    return f"{_beginning(line, half)}…{_beginning(line[::-1], half)[::-1]}"


def quoted(name: str) -> str:
    """A name within a sentence, whose order of signs it leaves alone."""
    return f"“\u2068{one_line(name, 40)}\u2069”"


def width(text: str) -> int:
    """How many columns it takes: East Asian signs take two."""
    return sum(2 if unicodedata.east_asian_width(sign) in _WIDE else 1 for sign in text)


def _beginning(text: str, columns: int) -> str:
    """As much of it as fits."""
    end = used = 0
    for sign in text:
        used += width(sign)
        if used > columns:
            break
        end += 1
    return text[:end]
