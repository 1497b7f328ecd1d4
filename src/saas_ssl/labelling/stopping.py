"""The wish to stop: Ctrl-C once ends a run after the step at hand, twice at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class RunStoppedError(Exception):
    """A run was told to stop, and has saved where it was."""

    def __init__(self, number: int) -> None:
        super().__init__("stopped")
        self.exit_code = 128 + number


class StopSignals:
    """Inside its block SIGINT and SIGTERM are noted instead of acted upon, the first time."""

    _WATCHED = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked: int | None = None  # the signal that came

    def __enter__(self) -> Self:
        # Only the main thread may set handlers; a run in another one cannot be stopped this way.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in self._WATCHED}
            for number in self._WATCHED:
                signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in getattr(self, "_before", {}).items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.asked is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = number
