"""Processes that run cells."""

import os
import signal
import threading
from multiprocessing import parent_process


def begin_worker() -> None:
    """A process that runs cells ends with its parent, which alone answers to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
