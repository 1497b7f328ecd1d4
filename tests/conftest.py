"""What every test takes for granted: one thread, no deadline, and a Ctrl-C that is heard."""

import signal

import torch
from hypothesis import settings

# Tests are small, and two threads on a busy machine are far slower than one.
torch.set_num_threads(1)
settings.register_profile("default", deadline=None)
settings.load_profile("default")
# Shells start jobs in the background with Ctrl-C ignored, and the commands under test inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
