"""One thread: tests are small, and two threads on a busy machine are far slower than one."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("default", deadline=None)
settings.load_profile("default")
