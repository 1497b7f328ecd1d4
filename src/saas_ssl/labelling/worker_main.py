"""The process of one worker: its first line of input says what to do, its last that it is over."""

import os
import sys
import threading

from saas_ssl.labelling.session import follow_text
from saas_ssl.labelling.stopping import RunStoppedError


def _end_with_parent() -> None:
    """The input closes when the parent ends, however it ends: so does this process."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Take part in a run."""
    text = sys.stdin.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code = 0
    try:
        follow_text(text)
    except RunStoppedError as stopped:
        code = stopped.exit_code
    except Exception as error:
        print(f"saas: {error}", file=sys.stderr)
        code = 1
    # Threads of torch.distributed may wait for processes that are gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
