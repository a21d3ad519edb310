"""One thread per test process: images are small, and two processes share the two cores."""

import torch

torch.set_num_threads(1)
