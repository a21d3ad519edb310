"""One thread per test process: images are small, and two processes share the two cores."""

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests, those of training, run first: no process waits for another at the end."""
    items.sort(key=lambda item: item.path.parent.name != "training")
