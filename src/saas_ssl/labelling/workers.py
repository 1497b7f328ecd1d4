"""The other processes of this machine: their start and their end."""

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from saas_ssl.training.ranks import LostWorkerError


class Workers:
    """The other processes of this machine, from their start to their end.

    They are plain children: the task goes to them as text through their standard input, and when
    that closes, because this process ended in whatever way, they end too.
    """

    def __init__(self, tasks: list[str]) -> None:
        self._words: list[IO[bytes]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for task in tasks:
            words = tempfile.TemporaryFile()  # noqa: SIM115
            process = subprocess.Popen(
                [sys.executable, "-m", "saas_ssl.labelling.worker_main"],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                start_new_session=True,  # Ctrl-C is for this process, which tells them
            )
            self._words.append(words)
            self._processes.append(process)
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.write(task.encode() + b"\n")
                    process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:  # they are about to end by themselves
            for process in self._processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(30)
        self.stop(grace=20.0)

    def check(self) -> None:
        """Raise LostWorkerError if one of them ended before its time."""
        for number, process in enumerate(self._processes, start=1):
            if process.poll():
                raise LostWorkerError(
                    f"worker {number} ended {_cause(process.returncode)}{self._said(number)}"
                )

    def stop(self, grace: float) -> None:
        """Tell them to end, give them time to save, and make sure that they do."""
        for process in self._processes:
            with suppress(OSError):
                process.terminate()
        deadline = time.monotonic() + grace
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        for words in self._words:
            words.close()
        self._processes, self._words = [], []

    def _said(self, number: int) -> str:
        words = self._words[number - 1]
        words.seek(0)
        lines = words.read().decode(errors="replace").splitlines()
        told = [line.removeprefix("saas: ") for line in lines if line.startswith("saas: ")]
        return f": {told[-1]}" if told else ""


def _cause(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with code {code}"
