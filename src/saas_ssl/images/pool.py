"""Images decoded by all cores, in order and in flat memory.

Imports no torch, and numpy only where an image needs it: workers start fast.

Workers are plain child processes fed through pipes. Unlike those of `multiprocessing` they never
import the caller's script, so `read` works at the top level of one; unlike forked ones they share
no locks with torch's threads.
"""

import math
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, cast

from saas_ssl.images.form import Form, Seen
from saas_ssl.images.pixels import Decoded, Encoded, decode_chunk

CHUNK = 64
"""Images in a chunk: enough that the pipes cost little, few enough to stay in memory."""
Chunks = Callable[[], Iterator[Sequence[Encoded]]]
"""All images of a source from the first on, chunk by chunk, as often as it is called."""
_AHEAD = 4  # chunks per worker that may wait for the reader


def enough_workers(n: int) -> int:
    """One worker per core, but none without four chunks of its own: starting one takes a while."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, math.ceil(n / CHUNK) // 4))


def decoded(
    chunks: Iterable[Sequence[Encoded]], form: Form, workers: int = 1
) -> Generator[Decoded, None, None]:
    """Each chunk decoded, in order, a few chunks ahead of the reader."""
    if workers == 1:
        yield from (decode_chunk(chunk, form) for chunk in chunks)
        return
    processes, idle = [_Worker() for _ in range(workers)], SimpleQueue[_Worker]()
    waiting = deque[Future[Decoded]]()

    def decode(chunk: Sequence[Encoded]) -> Decoded:
        worker = idle.get()
        try:
            return worker.decode(chunk, form)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(workers) as threads:
            try:
                for worker in processes:
                    idle.put(worker)
                for chunk in chunks:
                    waiting.append(threads.submit(decode, chunk))
                    if len(waiting) > _AHEAD * workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:  # also when the reader has had enough
                for future in waiting:
                    future.cancel()
                for worker in processes:
                    worker.end()
    finally:
        for worker in processes:
            worker.end()  # a process that has replaced a crashed one meanwhile


class _Worker:
    """A child process that decodes; one that crashes on an image is replaced, the image skipped."""

    def __init__(self) -> None:
        self._ended = False
        self._start()

    def _start(self) -> None:
        # -P and the filtered path: nothing is imported from the working directory, which may hold
        # anything.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # decoders written in C print what they dislike
            env={**os.environ, "PYTHONPATH": path},
        )
        self._questions = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)
        _enlarge(self._answers)

    def decode(self, chunk: Sequence[Encoded], form: Form) -> Decoded:
        """Decode a chunk; if that crashes, halve it until the culprit is alone."""
        try:
            return self._ask(chunk, form)
        except (EOFError, OSError, pickle.UnpicklingError):
            if self._ended:
                raise
            if self._clean_up() > 0:  # it was not killed by a signal, so no image did that
                raise OSError("the processes that decode images cannot run here") from None
            self._start()
        if len(chunk) == 1:
            return Decoded(form, b"", {0: "the image crashes its decoder"}, Seen())
        half = len(chunk) // 2
        return _joined(self.decode(chunk[:half], form), self.decode(chunk[half:], form), half)

    def _ask(self, chunk: Sequence[Encoded], form: Form) -> Decoded:
        pickle.dump((chunk, form), self._questions)
        self._questions.flush()
        answer: Decoded = pickle.load(self._answers)  # noqa: S301  # from our own child
        return answer

    def _clean_up(self) -> int:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process.kill()
        for pipe in (self._questions, self._answers):
            with suppress(OSError):  # what is left in the buffer has no reader
                pipe.close()
        return self._process.wait()

    def end(self) -> None:
        """Stop it, whatever it is doing."""
        self._ended = True
        self._process.kill()
        self._clean_up()


def _enlarge(pipe: IO[bytes]) -> None:
    """Let a pipe take a whole chunk of small images, so that a worker need not wait to be read."""
    with suppress(ImportError, AttributeError, OSError):  # only Linux can, and only so often
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)


def _joined(first: Decoded, second: Decoded, places: int) -> Decoded:
    """Two neighbouring parts of a chunk as one; the first part held so many places."""
    return Decoded(
        first.form,
        first.lines + second.lines,
        {**first.bad, **{place + places: reason for place, reason in second.bad.items()}},
        first.seen | second.seen,
    )


def serve() -> None:
    """In a worker: decode chunks from stdin to stdout until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the answers
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            chunk, form = pickle.load(sys.stdin.buffer)  # noqa: S301  # from our own parent
            pickle.dump(decode_chunk(chunk, form), answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()


def in_chunks(images: Sequence[Encoded]) -> Chunks:
    """A sequence of images, chunk by chunk."""
    return lambda: (images[at : at + CHUNK] for at in range(0, len(images), CHUNK))
