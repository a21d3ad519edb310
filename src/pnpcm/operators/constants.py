"""Constant tensors of operators, cast to the dtype and device of the input."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError


class Constants:
    """Base class with constant tensors that are cast to the dtype and device of the input."""

    def __init__(self) -> None:
        self._copies: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Copy of this object with its constants moved, as ``Tensor.to`` would."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        moved = copy.copy(self)
        moved._copies = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                keep = not (value.is_floating_point() or value.is_complex())
                setattr(moved, name, _move(value, None if keep else dtype, device))
            elif isinstance(value, Constants):
                setattr(moved, name, value.to(*args, **kwargs))
            elif isinstance(value, torch.nn.Module):
                setattr(moved, name, copy.deepcopy(value).to(*args, **kwargs))
        return moved

    def _like(self, name: str, x: Tensor) -> Tensor:
        """The constant ``self.name`` in the dtype and on the device of ``x``, cached."""
        key = (name, x.dtype, x.device)
        if key not in self._copies:
            real = x.real.dtype if x.is_complex() else x.dtype
            with torch.inference_mode(False):  # cached: must also be usable with autograd
                self._copies[key] = _move(getattr(self, name), real, x.device)
        return self._copies[key]


def as_constant(name: str, value: object) -> Tensor:
    """A copy of a tensor, an array or nested lists as a tensor."""
    try:
        return torch.as_tensor(value).detach().resolve_conj().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"{name} is a {type(value).__name__}, expected a tensor or an array ({error})"
        ) from error


def _move(value: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    """A constant moved to ``dtype`` and ``device``; complex ones to the complex ``dtype``."""
    if dtype is not None and value.is_complex():
        dtype = dtype.to_complex()
    return value.to(device=device, dtype=dtype)
