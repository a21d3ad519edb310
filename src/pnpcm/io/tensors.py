"""Files of ``torch.save``: plain tensors, whose values are all in the file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.errors import CheckpointError


def load_plain(path: Path) -> Any:
    """What is in a file of ``torch.save``, without executing code, memory-mapped if possible."""
    return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))


def check_held(path: Path, state: Mapping[str, Tensor]) -> None:
    """Refuse tensors without values of their own, and more values than the file has bytes for.

    A tensor with a stride of 0 repeats a few values up to any size, and several tensors can be the
    same part of a file.
    """
    for name, tensor in state.items():
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            kind = "quantized" if tensor.is_quantized else str(tensor.layout)
            raise CheckpointError(
                f"{path} holds {name} as a {kind} tensor on {tensor.device}, expected a dense one "
                "on the CPU; save tensor.to_dense().cpu()"
            )
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in state.items()}
    size = path.stat().st_size
    if sum(sizes.values()) > size:
        largest = max(sizes, key=lambda name: sizes[name])
        raise CheckpointError(
            f"{path} has {size} bytes, but its tensors need {sum(sizes.values())} ({largest} has "
            f"the shape {tuple(state[largest].shape)}), so that their values are repeated; save "
            "each tensor as tensor.clone()"
        )
