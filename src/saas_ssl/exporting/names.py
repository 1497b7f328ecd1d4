"""Names from anywhere as names of files that are safe on every system."""

import os
import unicodedata
from collections.abc import Sequence

from saas_ssl.sources.folders import UNLABELLED_FOLDERS
from saas_ssl.sources.label_files import same_text

_FORBIDDEN = frozenset('/\\:*?"<>|')  # by some system
_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10)))
)
_LONGEST = 120  # bytes; systems take 255, and something may be put behind it


def safe_name(name: str) -> str:
    """The name itself if it is safe, otherwise one like it, with %XX for what is not.

    The result is one visible name: it has no slash, and is neither empty nor begins with a dot.
    """
    last = len(name) - 1
    safe = "".join(
        _escaped(sign)
        if sign in _FORBIDDEN
        or unicodedata.category(sign)[0] == "C"
        or (at in (0, last) and sign in ". ")
        else sign
        for at, sign in enumerate(name)
    )
    if len(safe.encode()) > _LONGEST:
        safe = safe.encode()[:_LONGEST].decode(errors="ignore").rstrip(". ")
    return f"{safe}_" if not safe or safe.split(".")[0].casefold() in _DEVICES else safe


def class_folders(classes: Sequence[str]) -> dict[str, str]:
    """A folder for each class, by its own name if that is safe; no two on any system are one."""
    wanted = {name: safe_name(name) for name in classes}
    for name in classes:
        if wanted[name].casefold() in UNLABELLED_FOLDERS:  # those are read as no class
            wanted[name] += "_"
    taken = dict[str, int]()
    as_they_are_first = sorted(classes, key=lambda name: wanted[name] != name)
    folders = {name: free_name_in(taken, wanted[name]) for name in as_they_are_first}
    return {name: folders[name] for name in classes}


def free_name_in(taken: dict[str, int], name: str) -> str:
    """The name, or with -2, -3, ... before its ending, the first that is free; now it is taken."""
    stem, ending = os.path.splitext(name)
    free, n = name, taken.get(_key(name), 1)
    while _key(free) in taken:
        n += 1
        free = f"{stem}-{n}{ending}"
    taken[_key(name)] = n  # where to go on: names that many share take no longer
    taken.setdefault(_key(free), 1)
    return free


def _key(name: str) -> str:
    """What some systems take for the same."""
    return same_text(name).casefold()


def _escaped(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode("utf-8", "surrogatepass"))
